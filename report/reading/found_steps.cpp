#include "report/reading/found_steps.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/report_builder.hpp"
#include "report/reading/read_ahead.hpp"
#include "report/reading/reader.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/folded_name.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {
namespace {

constexpr std::size_t max_calls = 250'000;
/// So many times as many calls are looked at where the first ones load what stays.
constexpr std::size_t max_parts = 4;
/// Iterations; as many as a verdict needs, or one fewer: the first may differ.
constexpr std::size_t least_iterations = 7;
/// Marks of one name that are most likely those of steps.
constexpr std::size_t marks_of_steps = 24;
/// Call sites that return in each.
constexpr std::size_t least_sites = 3;
/// Numbers of iterations that are tried, and call sites for each.
constexpr std::size_t max_counts = 48;
constexpr std::size_t max_anchors = 2;

constexpr std::uint32_t never = ~std::uint32_t{0};

/// A thread came to a call site, from another one.
struct Visit {
    std::uint32_t site = 0;
    std::uint64_t live = 0;  ///< bytes, after its first call
};

struct CallSite {
    trace::EventType type = trace::EventType::alloc;
    std::uint32_t stack = 0;
    std::uint32_t thread = 0;
    bool on_several_threads = false;
    std::uint32_t visits = 0;
    std::uint32_t first = 0;  ///< visit
    std::uint32_t last = 0;
};

struct Block {
    std::uint32_t made = 0;  ///< visit
    std::uint32_t freed = never;
};

/// Whose step() a stack runs.
struct OptimizerStep {
    std::string function = {};  ///< "Adam.step"
    std::string caller = {};    ///< "train.py:51"
};

/// Reduces a log to visits of call sites.
class CallCollector final : public trace::RecordSink {
  public:
    using RecordSink::on;

    /// Thrown to end the reading.
    struct Enough {};

    /// `until_marked`: no more is wanted where the program marks its steps. `look` is called when
    /// there are max_calls; false: no more is wanted.
    CallCollector(bool until_marked, std::function<bool(CallCollector&)> look)
        : until_marked_(until_marked), look_(std::move(look)) {}

    void on(const trace::StringDef& record) override { texts_[record.id] = record.text; }
    void on(const trace::PythonFrameDef& record) override { frames_[record.id] = record; }
    void on(const trace::StackDef& record) override {
        if (const std::optional<OptimizerStep> step = optimizer_step(record)) {
            optimizers_.emplace(record.id, *step);
        }
    }
    void on_freed(const trace::Event& free_requested) override { on(free_requested); }
    void on(const trace::Event& event) override {
        if (event.type == trace::EventType::mark || event.type == trace::EventType::scope_begin) {
            mark(event.name);
        } else {
            add(event);
        }
        if ((is_marked() || blocks_.size() >= max_calls || visits_.size() >= max_calls) &&
            !look_(*this)) {
            throw Enough();
        }
    }
    bool is_marked() const { return until_marked_ && most_marks_ >= marks_of_steps; }
    /// Whether it only made what stays: the steps may follow.
    bool is_loading() const { return live_blocks_.size() * 5 >= blocks_.size() * 4; }
    /// What came before is no part of a loop.
    void begin_again() {
        visits_.clear();
        sites_.clear();
        blocks_.clear();
        numbers_.clear();
        last_of_thread_.clear();
        live_blocks_.clear();
        live_ = 0;
    }
    trace::StepAnchor::Level level() const { return level_; }
    const std::vector<Visit>& visits() const { return visits_; }
    const std::vector<CallSite>& sites() const { return sites_; }
    const std::vector<Block>& blocks() const { return blocks_; }
    /// Null: the stack runs no optimizer's step.
    const OptimizerStep* optimizer(std::uint32_t stack) const {
        const auto found = optimizers_.find(stack);
        return found == optimizers_.end() ? nullptr : &found->second;
    }

  private:
    using Level = trace::StepAnchor::Level;

    void add(const trace::Event& event) {
        if (event.kind == trace::MemoryKind::suballocation && level_ == Level::driver) {
            begin_at_framework();
        }
        const bool is_visit = trace::StepAnchor::is_call(event, level_) && call(event);
        if ((event.kind == trace::MemoryKind::suballocation) != (level_ == Level::framework)) {
            return;
        }
        if (event.type == trace::EventType::alloc) {
            const auto at = static_cast<std::uint32_t>(blocks_.size());
            blocks_.push_back({last_visit(), never});
            live_blocks_[event.address] = {at, event.size};
            live_ += event.size;
        } else if (event.type == trace::EventType::free_requested) {
            const auto found = live_blocks_.find(event.address);
            if (found != live_blocks_.end()) {
                blocks_[found->second.first].freed = last_visit();
                live_ -= found->second.second;
                live_blocks_.erase(found);
            }
        }
        if (is_visit) {
            visits_.back().live = live_;
        }
    }

    void mark(std::uint32_t name) {
        if (until_marked_) {
            most_marks_ = std::max(most_marks_, ++marks_[trace::folded_name(texts_[name])]);
        }
    }

    /// What came before the first tensor is no part of a loop.
    void begin_at_framework() {
        level_ = Level::framework;
        begin_again();
    }

    std::uint32_t last_visit() const {
        return visits_.empty() ? 0 : static_cast<std::uint32_t>(visits_.size() - 1);
    }

    /// Whether it begins a visit.
    bool call(const trace::Event& event) {
        const std::uint64_t key =
            std::uint64_t{event.stack} << 1 | (event.type == trace::EventType::alloc ? 0U : 1U);
        const auto [found, is_new] =
            numbers_.emplace(key, static_cast<std::uint32_t>(sites_.size()));
        if (is_new) {
            sites_.push_back({.type = event.type, .stack = event.stack, .thread = event.thread});
        }
        CallSite& site = sites_[found->second];
        site.on_several_threads = site.on_several_threads || site.thread != event.thread;
        const auto last = last_of_thread_.emplace(event.thread, never).first;
        if (last->second == found->second) {
            return false;
        }
        last->second = found->second;
        const auto at = static_cast<std::uint32_t>(visits_.size());
        site.first = site.visits == 0 ? at : site.first;
        site.last = at;
        ++site.visits;
        visits_.push_back({.site = found->second});
        return true;
    }

    std::optional<OptimizerStep> optimizer_step(const trace::StackDef& stack) {
        for (std::size_t i = 0; i < stack.frames.size(); ++i) {
            const trace::PythonFrameDef* const frame = python_frame(stack, i);
            if (frame == nullptr || !texts_[frame->file].ends_with("torch/optim/optimizer.py") ||
                texts_[frame->function].find("profile_hook_step") == std::string::npos) {
                continue;
            }
            OptimizerStep step;
            for (std::size_t at = i; at-- != 0;) {
                const trace::PythonFrameDef* const inner = python_frame(stack, at);
                if (inner != nullptr && inner->file != frame->file) {
                    step.function = texts_[inner->function];
                    break;
                }
            }
            if (const auto* const outer = python_frame(stack, i + 1)) {
                const std::string& file = texts_[outer->file];
                step.caller = file.substr(file.rfind('/') + 1) + ":" + std::to_string(outer->line);
            }
            return step;
        }
        return {};
    }
    const trace::PythonFrameDef* python_frame(const trace::StackDef& stack, std::size_t i) const {
        const auto found =
            i < stack.frames.size() ? frames_.find(stack.frames[i].python) : frames_.end();
        return found == frames_.end() ? nullptr : &found->second;
    }

    std::unordered_map<std::uint32_t, std::string> texts_;
    std::unordered_map<std::uint32_t, trace::PythonFrameDef> frames_;
    std::unordered_map<std::uint32_t, OptimizerStep> optimizers_;
    std::vector<Visit> visits_;
    std::vector<CallSite> sites_;
    std::vector<Block> blocks_;
    std::unordered_map<std::uint64_t, std::uint32_t> numbers_;
    std::unordered_map<std::uint32_t, std::uint32_t> last_of_thread_;
    std::unordered_map<std::uint64_t, std::pair<std::uint32_t, std::uint64_t>> live_blocks_;
    std::uint64_t live_ = 0;
    Level level_ = Level::driver;
    const bool until_marked_;
    const std::function<bool(CallCollector&)> look_;
    std::unordered_map<std::string, std::size_t> marks_;  ///< by name without its numbers
    std::size_t most_marks_ = 0;
};

/// What the iterations between the visits of one call site have in common.
struct Loop {
    std::uint32_t anchor = 0;               ///< index of its call site
    std::vector<std::uint32_t> ends = {};   ///< the visits of that: each ends an iteration
    std::vector<std::uint32_t> sites = {};  ///< that return as often in nearly every one
    std::vector<std::uint32_t> once = {};   ///< of these, those that return once
    double regular = 0;  ///< part of the visits by allocations that are of `sites`
};

class LoopFinder {
  public:
    explicit LoopFinder(const CallCollector& calls) : calls_(calls) {}

    std::optional<FoundSteps> find() {
        std::optional<Loop> best;
        bool best_has_optimizer = false;
        for (const std::uint32_t anchor : anchors()) {
            Loop loop = follow(anchor);
            if (!is_loop(loop)) {
                continue;
            }
            const bool has_optimizer = optimizer_of(loop) != nullptr;
            if (!best || has_optimizer > best_has_optimizer ||
                (has_optimizer == best_has_optimizer && is_outside(loop, *best))) {
                best = std::move(loop);
                best_has_optimizer = has_optimizer;
            }
        }
        return best ? std::optional(describe(*best)) : std::nullopt;
    }

  private:
    /// Call sites of which many others are reached as often, those first that are reached least
    /// often.
    std::vector<std::uint32_t> anchors() const {
        std::map<std::uint32_t, std::vector<std::uint32_t>> by_count;
        for (std::uint32_t i = 0; i < calls_.sites().size(); ++i) {
            const CallSite& site = calls_.sites()[i];
            if (site.visits >= least_iterations && !site.on_several_threads) {
                by_count[site.visits].push_back(i);
            }
        }
        std::vector<std::pair<std::size_t, std::uint32_t>> counts;
        counts.reserve(by_count.size());
        for (const auto& [count, sites] : by_count) {
            counts.emplace_back(sites.size(), count);
        }
        std::stable_sort(counts.begin(), counts.end(),
                         [](const auto& a, const auto& b) { return a.first > b.first; });
        counts.resize(std::min(counts.size(), max_counts));
        std::sort(counts.begin(), counts.end(),
                  [](const auto& a, const auto& b) { return a.second < b.second; });
        std::vector<std::uint32_t> out;
        for (const auto& [sites, count] : counts) {
            const std::vector<std::uint32_t>& all = by_count[count];
            for (std::size_t i = 0; i < max_anchors && i < all.size(); ++i) {
                out.push_back(all[i * all.size() / max_anchors]);
            }
        }
        return out;
    }

    /// Compares all iterations with one in the middle, and with the next one.
    Loop follow(std::uint32_t anchor) const {
        std::vector<std::uint32_t> ends;
        const CallSite& site = calls_.sites()[anchor];
        for (std::uint32_t at = site.first; at <= site.last; ++at) {
            if (calls_.visits()[at].site == anchor) {
                ends.push_back(at);
            }
        }
        const std::size_t iterations = ends.size() - 1;
        Loop loop = compare(anchor, ends, iterations / 2);
        Loop next = compare(anchor, ends, std::min(iterations / 2 + 1, iterations - 1));
        return next.regular > loop.regular ? next : loop;
    }

    Loop compare(std::uint32_t anchor, const std::vector<std::uint32_t>& ends,
                 std::size_t model) const {
        const std::size_t warm_up = ends.size() > 8 ? 2 : 1;
        const std::vector<Visit>& visits = calls_.visits();
        const std::size_t count = calls_.sites().size();
        std::vector<std::uint32_t> expected(count);
        std::vector<std::uint32_t> times(count);
        std::vector<std::uint32_t> as_expected(count);
        std::vector<std::uint64_t> total(count);
        for (std::uint32_t at = ends[model]; at < ends[model + 1]; ++at) {
            ++expected[visits[at].site];
        }
        for (std::size_t i = warm_up; i + 1 < ends.size(); ++i) {
            for (std::uint32_t at = ends[i]; at < ends[i + 1]; ++at) {
                ++times[visits[at].site];
            }
            for (std::uint32_t at = ends[i]; at < ends[i + 1]; ++at) {
                std::uint32_t& here = times[visits[at].site];
                total[visits[at].site] += here;
                as_expected[visits[at].site] += here != 0 && here == expected[visits[at].site];
                here = 0;
            }
        }
        Loop loop;
        loop.anchor = anchor;
        loop.ends = ends;
        const auto compared = static_cast<double>(ends.size() - 1 - warm_up);
        std::uint64_t all = 0;
        std::uint64_t regular = 0;
        for (std::uint32_t i = 0; i < count; ++i) {
            const bool counts = calls_.sites()[i].type == trace::EventType::alloc;
            all += counts ? total[i] : 0;
            if (as_expected[i] >= 0.9 * compared) {
                regular += counts ? total[i] : 0;
                loop.sites.push_back(i);
                if (expected[i] == 1) {
                    loop.once.push_back(i);
                }
            }
        }
        loop.regular = all == 0 ? 0 : static_cast<double>(regular) / static_cast<double>(all);
        return loop;
    }

    /// Whether the iterations are of the same calls, are much of what the program did, and free
    /// most of what they allocate.
    bool is_loop(const Loop& loop) const {
        const CallSite& site = calls_.sites()[loop.anchor];
        return loop.sites.size() >= least_sites && loop.regular >= 0.8 &&
               (site.last - site.first) * 10ULL >= calls_.visits().size() * 3ULL &&
               frees_what_it_makes(loop);
    }

    bool frees_what_it_makes(const Loop& loop) const {
        std::uint64_t made = 0;
        std::uint64_t freed = 0;
        for (const Block& block : calls_.blocks()) {
            const auto next = std::upper_bound(loop.ends.begin(), loop.ends.end(), block.made);
            if (next == loop.ends.begin() || loop.ends.end() - next < 2) {
                continue;
            }
            ++made;
            freed += block.freed != never && block.freed <= next[1] ? 1 : 0;
        }
        return freed * 2 >= made;
    }

    static bool is_outside(const Loop& loop, const Loop& other) {
        return loop.ends.size() != other.ends.size() ? loop.ends.size() < other.ends.size()
                                                     : loop.regular > other.regular;
    }

    /// Of a call site that is reached once in each iteration: of an outer loop, all are reached
    /// more often.
    const OptimizerStep* optimizer_of(const Loop& loop) const {
        for (const std::uint32_t site : loop.once) {
            if (const auto* const step = calls_.optimizer(calls_.sites()[site].stack)) {
                return step;
            }
        }
        return nullptr;
    }

    /// The step ends where least is allocated.
    FoundSteps describe(const Loop& loop) const {
        std::vector<double> live(calls_.sites().size());
        for (const Visit& visit : calls_.visits()) {
            live[visit.site] += static_cast<double>(visit.live) /
                                static_cast<double>(calls_.sites()[visit.site].visits);
        }
        std::uint32_t end = loop.anchor;
        for (const std::uint32_t site : loop.once) {
            const CallSite& each = calls_.sites()[site];
            if (!each.on_several_threads && live[site] < live[end] &&
                each.visits + 1 >= loop.ends.size() && each.visits <= loop.ends.size() + 1) {
                end = site;
            }
        }
        const CallSite& at = calls_.sites()[end];
        FoundSteps found;
        found.anchor = {at.type, at.stack, at.thread, calls_.level()};
        if (const OptimizerStep* const step = optimizer_of(loop)) {
            found.evidence = (step->function.empty() ? "the optimizer's step" : step->function) +
                             " returns" + (step->caller.empty() ? "" : " at " + step->caller);
        } else {
            found.evidence = std::to_string(loop.sites.size()) + " call sites return in each";
        }
        return found;
    }

    const CallCollector& calls_;
};

bool is_found(const model::Steps& steps) {
    return steps.kind == trace::name_of(trace::StepKind::found);
}

}  // namespace

std::optional<FoundSteps> find_steps(const std::string& log, bool* marked) {
    std::optional<FoundSteps> found;
    std::size_t parts = 0;
    const auto look = [&](CallCollector& calls) {
        if (calls.is_marked()) {
            return false;
        }
        found = LoopFinder(calls).find();
        if (found || ++parts == max_parts || !calls.is_loading()) {
            return false;
        }
        calls.begin_again();
        return true;
    };
    CallCollector calls(marked != nullptr, look);
    try {
        read_input_log(log, calls, nullptr, trace::LogPart::beginning);
        look(calls);
    } catch (const CallCollector::Enough&) {  // of the log
    }
    if (marked != nullptr) {
        *marked = calls.is_marked();
    }
    return found;
}

bool has_marked_steps(const model::Report& report) {
    return std::any_of(report.steps.begin(), report.steps.end(), [](const model::Steps& steps) {
        return steps.verdict != trace::name_of(trace::Verdict::too_few_steps) && !is_found(steps);
    });
}

void describe_found_steps(model::Report& report, const FoundSteps& found) {
    for (model::Steps& steps : report.steps) {
        if (is_found(steps)) {
            steps.evidence = found.evidence;
            steps.anchor = found.anchor;
        }
    }
    std::stable_partition(report.steps.begin(), report.steps.end(), std::not_fn(is_found));
}

void add_found_steps(model::Report& report, const std::string& log) {
    if (log.empty() || report.steps_looked_for || has_marked_steps(report)) {
        return;
    }
    const std::optional<FoundSteps> found = find_steps(log);
    if (!found) {
        return;
    }
    trace::Aggregator figures;
    figures.end_steps_at(found->anchor);
    read_log_ahead(log, figures, trace::LogPart::sums);
    ReadResult again = make_report(figures, model::Moment::end);
    if (!again.report) {
        return;
    }
    describe_found_steps(*again.report, *found);
    for (model::Steps& steps : again.report->steps) {
        // Growing sites are named by their index: the report may be of another version.
        const auto is_other = [&](const model::Steps::Growing& growing) {
            return growing.site >= report.sites.size() ||
                   report.sites[growing.site].count != again.report->sites[growing.site].count ||
                   report.sites[growing.site].stack != again.report->sites[growing.site].stack;
        };
        if (is_found(steps) && std::none_of(steps.growing.begin(), steps.growing.end(), is_other)) {
            report.steps.push_back(std::move(steps));
        }
    }
}

}  // namespace memlab::report
