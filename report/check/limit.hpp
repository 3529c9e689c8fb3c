// Metrics, limits and their syntax. The command line, budget files and messages share one table of
// metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/check/figure.hpp"

namespace memlab::report::check {

enum class Metric : std::uint8_t {
    peak_allocated,
    peak_reserved,
    peak_managed,
    peak_pinned,
    leaks,
    leak_count,
    allocations,
    growth,
    fragmentation,
    bypass,
    ooms,
    contexts,
    modules,
    unexplained,
    rank_imbalance,
};

/// Of the ranks of a run together; the others are of each process.
inline bool is_of_run(Metric metric) {
    return metric == Metric::rank_imbalance;
}

/// What a limit applies to: a whole process, or a part of it.
struct Subject {
    enum class Kind : std::uint8_t {
        all,
        site,       ///< the call stacks that `text` matches (report/summary/filter.hpp)
        scope,      ///< the scopes with that path ("train/step") or name
        kind,       ///< one kind of memory: "pinned"
        nn_module,  ///< what the nn.Modules that `text` names held: matches_nn_module()
    };
    Kind kind = Kind::all;
    std::string text;

    bool operator==(const Subject&) const = default;
};

struct MetricInfo {
    Metric metric;
    std::string_view name;  ///< in budget files; on the command line with dashes
    Unit unit;
    bool of_sites;
    bool of_scopes;
    bool of_kinds;
    bool of_nn_modules;
    std::string_view what;  ///< description for --help
};

/// All metrics, in the order of Metric.
const std::vector<MetricInfo>& metrics();
const MetricInfo& info(Metric metric);
/// Null for an unknown name.
const MetricInfo* find_metric(std::string_view name);
bool measures(const MetricInfo& metric, Subject::Kind kind);

/// "site", "scope", "kind", "nn_module": WORD in --limit METRIC@WORD:... and in [[WORD]] of a
/// budget; "" for all.
std::string_view keyword(Subject::Kind kind);

/// The maximum: an absolute amount, or an amount or a share above the baseline's figure.
struct Bound {
    enum class Kind : std::uint8_t { absolute, above_baseline, share_above_baseline };
    Kind kind = Kind::absolute;
    Figure amount;

    bool relative() const { return kind != Kind::absolute; }
};

struct Limit {
    Metric metric = Metric::peak_allocated;
    Subject subject;
    Bound bound;
    std::string origin;  ///< where it was given: "--leaks", "budget.toml:7"
};

/// "pinned=64MiB" limits one kind of memory: removes "pinned=" from `text` and returns that kind.
/// Without such a prefix the subject is the whole process.
Subject take_kind(std::string_view* text);

/// Parses "4 GiB", "1.5MiB", "1048576", "20%", "+5%", "+64 MiB". Else std::nullopt, and `problem`
/// says what is accepted.
std::optional<Bound> parse_bound(std::string_view text, Unit unit, std::string* problem);

/// What is wrong with the subject's text: "what; what to do"; empty when it is valid.
std::string subject_problem(const Subject& subject);

/// The largest figure that a limit allows; absolute limits ignore `baseline`.
Figure allowed(const Bound& bound, Unit unit, Figure baseline);

/// "4.00 GiB", "+5.0%": as given.
std::string bound_text(const Bound& bound, Unit unit);

/// "peak_allocated", "leaks of site forward_pass".
std::string name_of(Metric metric, const Subject& subject);

}  // namespace memlab::report::check
