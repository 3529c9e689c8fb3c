// Who holds the device memory at this moment: `sites`, `nn-modules`.
#include <new>
#include <optional>
#include <string>

#include "interpose/answers/answers.hpp"
#include "interpose/process/session.hpp"
#include "model/interval_document.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t default_rows = 10;
constexpr std::uint64_t most_rows = 100'000;
// Intervals that the program begins have numbers from 1.
constexpr std::uint64_t own_interval = 0;

using MaybeTotals = std::optional<trace::IntervalTotals>;

/// All that is live, as an interval that ends when it begins: by the tables of sites and
/// nn.Modules, however many allocations there are.
MaybeTotals held_now(trace::Intervals& intervals, std::size_t rows) {
    if (!intervals.begin(own_interval)) {
        return std::nullopt;
    }
    struct Forget {
        trace::Intervals& intervals;
        ~Forget() { intervals.forget(own_interval); }
    } const forget{intervals};
    const trace::IntervalTotals* const totals = intervals.end(own_interval, rows);
    return totals == nullptr ? std::nullopt : MaybeTotals(*totals);
}

/// `totals(intervals, aggregate)` as a document; with `edit(document)`.
template <typename Totals, typename Edit>
void answer_with(Session& session, Answer* answer, const Totals& totals, const Edit& edit) {
    if (session.recorder() == nullptr) {
        answer->problem = no_recording;
        return;
    }
    std::optional<model::IntervalDocument> document;
    bool no_memory = false;
    session.recorder()->with_intervals(
        profiler::monotonic_ns() + max_wait_for_recorder_ns,
        [&](trace::Intervals& intervals, const trace::Aggregator& aggregate) {
            try {
                if (const MaybeTotals found = totals(intervals, aggregate)) {
                    document = model::interval_document(aggregate, *found);
                }
            } catch (const std::bad_alloc&) {
                no_memory = true;
            }
        });
    if (no_memory) {
        throw std::bad_alloc();
    }
    if (!document) {
        answer->problem = answer->problem.empty() ? recording_is_busy : answer->problem;
        return;
    }
    edit(*document);
    answer->document = model::to_json(*document);
}

}  // namespace

void answer_sites(Session& session, Arguments arguments, Answer* answer) {
    std::uint64_t rows = default_rows;
    bool since_mark = false;
    for (const std::string_view argument : arguments) {
        if (argument == "since-mark") {
            since_mark = true;
        } else if (const auto number = number_in(argument, most_rows)) {
            rows = *number;
        } else {
            answer->problem = "sites takes a number of call sites, and since-mark";
            return;
        }
    }
    const auto totals = [&](trace::Intervals& intervals,
                            const trace::Aggregator& aggregate) -> MaybeTotals {
        if (!since_mark) {
            return held_now(intervals, rows);
        }
        if (!aggregate.latest_mark()) {
            answer->problem = "there is no mark yet; memlab-ctl PID mark NAME makes one";
            return std::nullopt;
        }
        const std::uint64_t moments[] = {aggregate.latest_mark()->serial,
                                         aggregate.latest_serial()};
        return intervals.made_between(moments, rows);
    };
    answer_with(session, answer, totals,
                [](model::IntervalDocument& document) { document.nn_modules.clear(); });
}

void answer_nn_modules(Session& session, Arguments arguments, Answer* answer) {
    const std::optional<std::uint64_t> rows =
        arguments.empty() ? default_rows : number_in(arguments.front(), most_rows);
    if (!rows) {
        answer->problem = "nn-modules takes a number of nn.Modules";
        return;
    }
    answer_with(
        session, answer,
        [](trace::Intervals& intervals, const trace::Aggregator&) {
            return held_now(intervals, 0);
        },
        [&](model::IntervalDocument& document) {
            if (document.nn_modules.size() > *rows) {
                document.nn_modules.resize(*rows);
            }
        });
}

}  // namespace memlab::interpose
