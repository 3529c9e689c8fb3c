// What can be limited, and how limits are written. One table says it for the command line, the
// budget file and the messages alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/check/figure.hpp"

namespace memlab::check {

enum class Metric : std::uint8_t {
    peak_allocated,
    peak_reserved,
    leaks,
    leak_count,
    allocations,
    growth,
    fragmentation,
    bypass,
    ooms,
};

/// What a limit is about: all that a process does, or a part of it.
struct Subject {
    enum class Kind : std::uint8_t {
        all,
        site,   ///< the call stacks that `text` matches (report/summary/filter.hpp)
        scope,  ///< the scopes of that path ("train/step"), or of that name
        kind,   ///< one kind of memory: "pinned"
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
    std::string_view what;  ///< for --help
};

/// All of them, in the order of Metric.
const std::vector<MetricInfo>& metrics();
const MetricInfo& info(Metric metric);
/// Null for a name that is none.
const MetricInfo* find_metric(std::string_view name);
bool measures(const MetricInfo& metric, Subject::Kind kind);

/// "site", "scope", "kind": the word in --limit METRIC@WORD:..., and of [[WORD]] in a budget; empty
/// for all.
std::string_view word_of(Subject::Kind kind);

/// The most that is allowed: an amount, or an amount or a share above the baseline's figure.
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

/// "pinned=64MiB": a limit of one kind of memory. Takes "pinned=" off `text`; all of the memory
/// where there is no such thing.
Subject take_kind(std::string_view* text);

/// Reads "4 GiB", "1.5MiB", "1048576", "20%", "+5%", "+64 MiB". Else nothing, and `problem` says
/// what is taken.
std::optional<Bound> parse_bound(std::string_view text, Unit unit, std::string* problem);

/// What is wrong with the subject's text, "what; what to do"; empty when all is well.
std::string problem_of(const Subject& subject);

/// What a limit allows where the baseline has `baseline` (which absolute ones do not look at).
Figure allowed(const Bound& bound, Unit unit, Figure baseline);

/// "4.00 GiB", "+5.0%": as it was given.
std::string bound_text(const Bound& bound, Unit unit);

/// "peak_allocated", "leaks of site forward_pass".
std::string name_of(Metric metric, const Subject& subject);

}  // namespace memlab::check
