// Detects memory growth from step to step. A step ends at a mark whose name recurs, or at the end
// of a scope that is entered repeatedly while the scopes around it are not: the outermost loop.
// docs/scopes.md defines the verdict.
//
// The samples are the bytes allocated at the end of each step, in total and by call site. Minimum
// and maximum are kept for a fixed number of blocks of equally many steps; when they are full,
// pairs are merged. A site is updated lazily, before its bytes change: they were the same at the
// end of every step since the last update. So an event costs O(1), amortized, and memory is
// O(sites), up to a limit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace memlab::trace {

enum class Verdict : std::uint8_t { too_few_steps, steady, growing, sawtooth };
/// "too few steps", "steady", ...
const char* name_of(Verdict verdict);

/// What ends a step.
enum class StepKind : std::uint8_t {
    mark,
    scope,
    range,
    found,  ///< by a reader, which set Aggregator::end_steps_at(); no recording has it
};
/// "mark", "scope", "range", "found"
const char* name_of(StepKind kind);

/// The series of a value at the end of each step, in at most `size` blocks of equally many steps.
template <std::size_t size>
class StepBlocks {
  public:
    static_assert(size % 2 == 0);
    struct Block {
        std::uint64_t min = 0;
        std::uint64_t max = 0;

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive(self.min, self.max);
        }
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
            fall_bytes_ += up ? 0 : last_ - value;
        }
        last_ = value;
        steps_ += times;
        while (times != 0) {
            if (used_ == 0 || in_last_ == steps_per_block_) {
                if (used_ == size) {
                    merge_pairs();
                }
                blocks_[used_++] = {value, value};
                in_last_ = 0;
            }
            Block& block = blocks_[used_ - 1];
            block.min = block.min < value ? block.min : value;
            block.max = block.max > value ? block.max : value;
            const std::uint64_t space = steps_per_block_ - in_last_;
            const std::uint64_t taken = times < space ? times : space;
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
    std::uint64_t fall_bytes() const { return fall_bytes_; }  ///< sum of all falls

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.used_, self.steps_per_block_, self.in_last_, self.steps_, self.last_,
                self.rises_, self.falls_, self.fall_bytes_);
        if constexpr (Archive::reading) {
            if (!self.valid()) {
                archive.fail();
                return;
            }
        }
        for (std::size_t i = 0; i < self.used_; ++i) {
            archive(self.blocks_[i]);
        }
    }

  private:
    bool valid() const {
        return used_ <= size && steps_per_block_ != 0 && steps_per_block_ >> 48 == 0 &&
               in_last_ <= steps_per_block_ && steps_ <= used_ * steps_per_block_;
    }
    /// All blocks are full: merges pairs and doubles the steps per block.
    void merge_pairs() {
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
    std::uint64_t fall_bytes_ = 0;
};

/// The trend of a series.
struct Trend {
    Verdict verdict = Verdict::too_few_steps;
    double bytes_per_step = 0;        ///< least-squares slope of the blocks' minima, after warm-up
    std::uint64_t warm_up_steps = 0;  ///< excluded
    std::uint64_t first_bytes = 0;    ///< minimum of the first block after warm-up
    std::uint64_t last_bytes = 0;     ///< at the end of the last step
    std::uint64_t min_bytes = 0;      ///< after warm-up
    std::uint64_t max_bytes = 0;
};

template <std::size_t size>
Trend fit_trend(const StepBlocks<size>& values);

struct SiteTrend {
    std::uint32_t site = 0;
    Trend trend;
};

/// One kind of step.
struct StepTotals {
    static constexpr std::size_t blocks = 32;

    StepKind kind = StepKind::mark;
    std::uint32_t path = 0;  ///< of name families: a family, or a path of ScopeStats
    std::uint64_t steps = 0;
    Verdict verdict = Verdict::too_few_steps;
    Trend trend = {};  ///< of the total allocated bytes
    std::uint64_t steps_per_block = 1;
    std::vector<StepBlocks<blocks>::Block> values = {};
    bool by_site = false;                 ///< sites were tracked
    std::vector<SiteTrend> growing = {};  ///< fastest first
    std::uint64_t sites_left_out = 0;
};

class StepStats {
  public:
    static constexpr std::size_t max_kinds = 64;
    static constexpr std::uint64_t min_steps = 8;  ///< for a verdict
    static constexpr std::size_t max_candidates = 4096;
    static constexpr std::size_t max_followed = 4;  ///< kinds of steps with figures by site
    static constexpr std::size_t max_sites = 8192;  ///< of one kind of step
    static constexpr std::size_t site_blocks = 16;

    /// True while before_change() must be called.
    bool following() const { return steps_ended_ != 0; }

    /// A step ended while `level` bytes were allocated. `may_begin`: may start a new kind of step.
    /// True when a kind began whose sites are not tracked: too many others are. May throw
    /// std::bad_alloc.
    bool end(StepKind kind, std::uint32_t path, std::uint64_t level, bool may_begin);

    /// Tracks the sites of the newest kind in place of those of a kind within it, if there is one.
    /// `parent(path)`: the path of the scope around it, if there is one.
    template <typename Parent>
    void follow_newest(Parent parent) {
        const Kind& newest = kinds_.back();
        for (std::size_t i = 0; i + 1 < kinds_.size(); ++i) {
            if (kinds_[i].by_site && kinds_[i].kind == newest.kind &&
                is_within(kinds_[i].path, newest.path, parent)) {
                follow_newest_for(i);
                return;
            }
        }
    }

    /// A kind of step, as (kind, path). The number of its steps that ended; 0: no such kind (yet).
    std::uint64_t ended(StepKind kind, std::uint32_t path) const {
        const auto at = index_.find(pack_key(kind, path));
        return at == index_.end() ? 0 : kinds_[at->second].values.steps();
    }

    /// Kinds of steps that were not followed, or not to their end: there were more than max_kinds.
    /// Of names beyond max_candidates each end counts.
    std::uint64_t kinds_left_out() const { return kinds_left_out_; }

    /// Including those of inner loops.
    std::size_t kind_count() const { return kinds_.size(); }
    std::pair<StepKind, std::uint32_t> kind(std::size_t i) const {
        return {kinds_[i].kind, kinds_[i].path};
    }

    /// Must be called before the site's live bytes change; `live` is their current value. May throw
    /// std::bad_alloc.
    void before_change(std::uint32_t site, std::uint64_t live) {
        if (site < checked_at_.size() && checked_at_[site] == steps_ended_) {
            return;
        }
        update_site(site, live);
    }

    /// The steps of the program, in order of first appearance: not those of a loop within a loop
    /// that has steps enough for a verdict. `live(site)` returns a site's current live bytes;
    /// `parent` as in follow_newest(). May throw std::bad_alloc.
    template <typename Live, typename Parent>
    std::vector<StepTotals> totals(Live live, Parent parent) const {
        std::vector<StepTotals> all;
        for (const Kind& kind : kinds_) {
            if (is_inner(kind, parent)) {
                continue;
            }
            std::vector<SiteTrend> sites;
            for (const Followed& followed : kind.sites) {
                StepBlocks<site_blocks> values = followed.values;
                values.add(live(followed.site), kind.steps_followed - values.steps());
                sites.push_back({followed.site, fit_trend(values)});
            }
            all.push_back(make_totals(kind, std::move(sites)));
        }
        return all;
    }

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.kinds_, self.index_, self.candidates_, self.checked_at_, self.steps_ended_,
                self.followed_);
        if (archive.version() >= 5) {
            archive(self.ends_, self.kinds_left_out_);
        }
    }
    /// Whether a restored state is consistent with `sites` call sites and these numbers of
    /// ScopeStats' paths and of name families.
    bool valid(std::size_t sites, std::size_t paths, std::size_t families) const;

  private:
    struct Followed {
        std::uint32_t site = 0;
        StepBlocks<site_blocks> values;

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive(self.site, self.values);
        }
    };
    struct Kind {
        StepKind kind = StepKind::mark;
        std::uint32_t path = 0;
        StepBlocks<StepTotals::blocks> values;
        bool by_site = false;
        std::uint64_t steps_followed = 0;  ///< steps that ended since sites are tracked
        std::vector<Followed> sites;
        std::vector<std::uint32_t> slot;  ///< by site: index into sites + 1; 0: none
        std::uint64_t left_out = 0;
        std::uint64_t last_end = 0;  ///< StepStats::ends_ at its latest step

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive.choice(self.kind, StepKind::range);
            archive(self.path, self.values, self.by_site, self.steps_followed, self.sites,
                    self.slot, self.left_out);
            if (archive.version() >= 5) {
                archive(self.last_end);
            }
        }
    };
    /// Not followed: it ended once, so that it is no step yet, or there was no place for it.
    struct Candidate {
        std::uint64_t level = 0;
        std::uint64_t ended = 0;  ///< ends_ then
        std::uint64_t steps = 1;  ///< more where there was no place for it
        bool left_out = false;    ///< it recurred while there was no place for it

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive(self.level);
            if (archive.version() >= 5) {
                archive(self.ended, self.steps, self.left_out);
            }
        }
    };
    static constexpr std::uint32_t slot_left_out = ~std::uint32_t{0};

    static std::uint64_t pack_key(StepKind kind, std::uint32_t path) {
        return (static_cast<std::uint64_t>(kind) << 32) | path;
    }

    template <typename Parent>
    static bool is_within(std::uint32_t path, std::uint32_t outer, Parent parent) {
        for (std::optional<std::uint32_t> up = parent(path); up; up = parent(*up)) {
            if (*up == outer) {
                return true;
            }
        }
        return false;
    }

    /// Whether a scope around it is a kind of step, and has steps enough for a verdict.
    template <typename Parent>
    bool is_inner(const Kind& kind, Parent parent) const {
        if (kind.kind == StepKind::mark || kind.kind == StepKind::found) {
            return false;
        }
        for (std::optional<std::uint32_t> up = parent(kind.path); up; up = parent(*up)) {
            if (ended(kind.kind, *up) >= min_steps) {
                return true;
            }
        }
        return false;
    }

    bool make_room(Candidate& candidate);
    void follow_newest_for(std::size_t other);
    void update_site(std::uint32_t site, std::uint64_t live);
    static StepTotals make_totals(const Kind& kind, std::vector<SiteTrend> sites);

    std::vector<Kind> kinds_;
    std::unordered_map<std::uint64_t, std::uint32_t> index_;  ///< (kind, path): in kinds_
    std::unordered_map<std::uint64_t, Candidate> candidates_;
    std::vector<std::uint64_t> checked_at_;  ///< by site: steps_ended_ at the last update
    std::uint64_t steps_ended_ = 0;          ///< of kinds that are tracked by site
    std::size_t followed_ = 0;
    std::uint64_t ends_ = 0;  ///< of steps and of what may become one
    std::uint64_t kinds_left_out_ = 0;
};

}  // namespace memlab::trace
