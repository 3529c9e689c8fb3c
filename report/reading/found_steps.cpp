#include "report/reading/found_steps.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "model/report_builder.hpp"
#include "report/reading/call_collector.hpp"
#include "report/reading/first_iteration.hpp"
#include "report/reading/read_ahead.hpp"
#include "report/reading/reader.hpp"
#include "trace/aggregate/aggregator.hpp"

namespace memlab::report {
namespace {

/// So many times as many calls are looked at where the first ones load what stays.
constexpr std::size_t max_parts = 4;
/// Iterations; as many as a verdict needs, or one fewer: the first may differ.
constexpr std::size_t least_iterations = 7;
/// As many as a loop has that needs not be most of what the program did.
constexpr std::size_t clear_iterations = 16;
/// Call sites that return in each.
constexpr std::size_t least_sites = 3;
/// Numbers of iterations that are tried, and call sites for each.
constexpr std::size_t max_counts = 48;
constexpr std::size_t max_anchors = 2;

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
        // A short program compiles and tunes for longer than it loops.
        const bool clear = loop.regular >= 0.95 && loop.ends.size() >= clear_iterations;
        return loop.sites.size() >= least_sites && loop.regular >= 0.8 &&
               (site.last - site.first) * 20ULL >= calls_.visits().size() * (clear ? 3ULL : 6ULL) &&
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
            freed += block.freed != Block::never && block.freed <= next[1] ? 1 : 0;
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
        const std::size_t accumulated = optimizer_of(loop) == nullptr ? passes_of_step(loop) : 1;
        FoundSteps found;
        found.anchor = {at.type, at.stack, at.thread, calls_.level()};
        if (accumulated > 1) {
            found.anchor.ends_every(accumulated, emptiest_visit(end, accumulated));
        } else if (const auto first = stack_in_first_iteration(calls_, loop.once, end)) {
            found.anchor.ends_first_at(*first);
        }
        if (const OptimizerStep* const step = optimizer_of(loop)) {
            found.evidence = (step->function.empty() ? "the optimizer's step" : step->function) +
                             " returns" + (step->caller.empty() ? "" : " at " + step->caller);
        } else {
            found.evidence = std::to_string(loop.sites.size()) + " call sites return in each";
            if (accumulated > 1) {
                found.evidence += " of " + std::to_string(accumulated) +
                                  " passes, whose gradients are freed together";
            }
        }
        return found;
    }

    /// With accumulated gradients an optimizer that allocates nothing is seen by nothing else: what
    /// backward's threads allocate in every n-th iteration stays, in the others it does not. 1:
    /// each iteration is a step.
    std::size_t passes_of_step(const Loop& loop) const {
        if (calls_.level() != trace::StepAnchor::Level::framework) {
            return 1;
        }
        std::vector<std::size_t> staying(loop.ends.size() - 1);  // by iteration
        std::vector<std::size_t> longest(staying.size());        // in iterations
        for (const Block& block : calls_.blocks()) {
            const CallSite& site = calls_.sites()[calls_.visits()[block.made].site];
            const std::size_t made = iteration(loop, block.made);
            if (made >= staying.size() || site.on_several_threads ||
                site.thread == calls_.first_thread()) {
                continue;
            }
            const std::size_t freed =
                block.freed == Block::never ? staying.size() : iteration(loop, block.freed);
            if (freed > made) {
                ++staying[made];
                longest[made] = std::max(longest[made], freed - made);
            }
        }
        // At most every second iteration is a first pass.
        std::vector<std::size_t> sorted = staying;
        const auto quarter = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 4);
        std::nth_element(sorted.begin(), quarter, sorted.end());
        const std::size_t usual = *quarter;
        std::vector<std::size_t> first_passes;
        for (std::size_t i = 0; i < staying.size(); ++i) {
            if (staying[i] > usual) {
                first_passes.push_back(i);
            }
        }
        if (first_passes.size() < least_iterations) {
            return 1;
        }
        const std::size_t middle = first_passes.size() / 2;
        const std::size_t passes = first_passes[middle] - first_passes[middle - 1];
        std::size_t regular = 0;
        for (std::size_t i = 1; i < first_passes.size(); ++i) {
            regular += first_passes[i] - first_passes[i - 1] == passes &&
                       longest[first_passes[i - 1]] <= passes;
        }
        return regular * 10 >= (first_passes.size() - 1) * 9 ? passes : 1;
    }

    /// Before the first one, or after the last: as many as there are.
    static std::size_t iteration(const Loop& loop, std::uint32_t visit) {
        const auto next = std::upper_bound(loop.ends.begin(), loop.ends.end(), visit);
        return next == loop.ends.begin() ? loop.ends.size()
                                         : static_cast<std::size_t>(next - loop.ends.begin()) - 1;
    }

    /// Of each `every` visits to a call site the one at which least is allocated, counted from the
    /// log's first visit.
    std::size_t emptiest_visit(std::uint32_t site, std::size_t every) const {
        std::vector<double> live(every);
        std::vector<std::size_t> count(every);
        std::size_t number = calls_.sites()[site].earlier;
        for (const Visit& visit : calls_.visits()) {
            if (visit.site == site) {
                live[number % every] += static_cast<double>(visit.live);
                ++count[number % every];
                ++number;
            }
        }
        for (std::size_t i = 0; i < every; ++i) {
            live[i] /= static_cast<double>(std::max<std::size_t>(count[i], 1));
        }
        return static_cast<std::size_t>(std::min_element(live.begin(), live.end()) - live.begin());
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
