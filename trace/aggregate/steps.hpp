// Does the program grow from step to step? A step ends at a mark whose name comes again, or at the
// end of a scope that is entered again while the scopes around it are not; docs/scopes.md says how
// the verdict is reached.
//
// Only what is allocated at the end of each step counts, in all and by call site. Of a run of steps
// the lowest and the highest value are kept, in a fixed number of blocks of equally many steps:
// when they are full, two become one. A site is looked at when its bytes are about to change: since
// it was looked at last they were the same at the end of every step. So an event costs O(1),
// amortized, and the memory is O(sites), with a bound.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace memlab::trace {

enum class Verdict : std::uint8_t { too_few_steps, steady, growing, sawtooth };
/// "too few steps", "steady", ...
const char* name_of(Verdict verdict);

/// What ends a step.
enum class StepKind : std::uint8_t { mark, scope, range };
/// "mark", "scope", "range"
const char* name_of(StepKind kind);

/// A value at the end of each step, in at most `size` blocks of equally many steps.
template <std::size_t size>
class StepBlocks {
  public:
    static_assert(size % 2 == 0);
    struct Block {
        std::uint64_t min = 0;
        std::uint64_t max = 0;
    };

    /// The value was `value` at the end of `times` more steps.
    void add(std::uint64_t value, std::uint64_t times = 1) {
        if (times == 0) {
            return;
        }
        if (steps_ != 0 && value != last_) {
            const bool up = value > last_;
            rises_ += up ? 1 : 0;
            falls_ += up ? 0 : 1;
            fallen_ += up ? 0 : last_ - value;
        }
        last_ = value;
        steps_ += times;
        while (times != 0) {
            if (used_ == 0 || in_last_ == steps_per_block_) {
                if (used_ == size) {
                    halve();
                }
                blocks_[used_++] = {value, value};
                in_last_ = 0;
            }
            Block& block = blocks_[used_ - 1];
            block.min = block.min < value ? block.min : value;
            block.max = block.max > value ? block.max : value;
            const std::uint64_t room = steps_per_block_ - in_last_;
            const std::uint64_t taken = times < room ? times : room;
            in_last_ += taken;
            times -= taken;
        }
    }

    const Block* blocks() const { return blocks_.data(); }
    std::size_t used() const { return used_; }
    std::uint64_t steps() const { return steps_; }
    std::uint64_t steps_per_block() const { return steps_per_block_; }
    std::uint64_t last() const { return last_; }
    std::uint64_t rises() const { return rises_; }
    std::uint64_t falls() const { return falls_; }
    std::uint64_t fallen() const { return fallen_; }  ///< sum of all falls

  private:
    /// All blocks are full.
    void halve() {
        for (std::size_t i = 0; i < size / 2; ++i) {
            const Block& a = blocks_[2 * i];
            const Block& b = blocks_[2 * i + 1];
            blocks_[i] = {a.min < b.min ? a.min : b.min, a.max > b.max ? a.max : b.max};
        }
        used_ = size / 2;
        steps_per_block_ *= 2;
        in_last_ = steps_per_block_;
    }

    std::array<Block, size> blocks_{};
    std::size_t used_ = 0;
    std::uint64_t steps_per_block_ = 1;
    std::uint64_t in_last_ = 0;
    std::uint64_t steps_ = 0;
    std::uint64_t last_ = 0;
    std::uint64_t rises_ = 0;
    std::uint64_t falls_ = 0;
    std::uint64_t fallen_ = 0;
};

/// What a row of blocks says.
struct Trend {
    Verdict verdict = Verdict::too_few_steps;
    double bytes_per_step = 0;        ///< least squares through the blocks' minima, after warm-up
    std::uint64_t warm_up_steps = 0;  ///< left out
    std::uint64_t first_bytes = 0;    ///< minimum of the first block after warm-up
    std::uint64_t last_bytes = 0;     ///< at the end of the last step
    std::uint64_t min_bytes = 0;      ///< after warm-up
    std::uint64_t max_bytes = 0;
};

template <std::size_t size>
Trend judge(const StepBlocks<size>& values);

struct SiteTrend {
    std::uint32_t site = 0;
    Trend trend;
};

/// One kind of step.
struct StepTotals {
    static constexpr std::size_t blocks = 32;

    StepKind kind = StepKind::mark;
    std::uint32_t path = 0;  ///< of name families: a family, or a path of ScopeFigures
    std::uint64_t steps = 0;
    Verdict verdict = Verdict::too_few_steps;
    Trend trend = {};  ///< of all that is allocated
    std::uint64_t steps_per_block = 1;
    std::vector<StepBlocks<blocks>::Block> values = {};
    bool by_site = false;                 ///< sites were followed
    std::vector<SiteTrend> growing = {};  ///< fastest first
    std::uint64_t sites_left_out = 0;
};

class StepFigures {
  public:
    static constexpr std::size_t max_kinds = 64;
    static constexpr std::size_t max_candidates = 4096;
    static constexpr std::size_t max_followed = 4;  ///< kinds of steps with figures by site
    static constexpr std::size_t max_sites = 8192;  ///< of one kind of step
    static constexpr std::size_t site_blocks = 16;

    /// True while before_change() must be told.
    bool following() const { return steps_ended_ != 0; }

    /// A step ended while `level` bytes were allocated. `may_begin`: this may be the first of its
    /// kind. May throw std::bad_alloc.
    void end(StepKind kind, std::uint32_t path, std::uint64_t level, bool may_begin);

    /// Steps that have ended of a kind, in the order of totals(); 0 before there is such a kind.
    std::uint64_t ended(std::size_t kind) const {
        return kind < kinds_.size() ? kinds_[kind].values.steps() : 0;
    }

    /// The site's live bytes are about to change; `live` is what they are. May throw
    /// std::bad_alloc.
    void before_change(std::uint32_t site, std::uint64_t live) {
        if (site < seen_.size() && seen_[site] == steps_ended_) {
            return;
        }
        look_at(site, live);
    }

    /// In order of first appearance. `live(site)` is what each site has now. May throw
    /// std::bad_alloc.
    template <typename Live>
    std::vector<StepTotals> totals(Live live) const {
        std::vector<StepTotals> all;
        for (const Kind& kind : kinds_) {
            std::vector<SiteTrend> sites;
            for (const Followed& followed : kind.sites) {
                StepBlocks<site_blocks> values = followed.values;
                values.add(live(followed.site), kind.since_followed - values.steps());
                sites.push_back({followed.site, judge(values)});
            }
            all.push_back(totals_of(kind, std::move(sites)));
        }
        return all;
    }

  private:
    struct Followed {
        std::uint32_t site = 0;
        StepBlocks<site_blocks> values;
    };
    struct Kind {
        StepKind kind = StepKind::mark;
        std::uint32_t path = 0;
        StepBlocks<StepTotals::blocks> values;
        bool by_site = false;
        std::uint64_t since_followed = 0;  ///< steps that ended since sites are followed
        std::vector<Followed> sites;
        std::vector<std::uint32_t> place;  ///< by site: index + 1, 0: not followed
        std::uint64_t left_out = 0;
    };

    void look_at(std::uint32_t site, std::uint64_t live);
    static StepTotals totals_of(const Kind& kind, std::vector<SiteTrend> sites);

    std::vector<Kind> kinds_;
    std::unordered_map<std::uint64_t, std::uint32_t> index_;       ///< (kind, path): of kinds_
    std::unordered_map<std::uint64_t, std::uint64_t> candidates_;  ///< level at the one end so far
    std::vector<std::uint64_t> seen_;  ///< by site: steps_ended_ when it was looked at
    std::uint64_t steps_ended_ = 0;    ///< of kinds that are followed by site
    std::size_t followed_ = 0;
};

}  // namespace memlab::trace
