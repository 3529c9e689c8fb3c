// Compares two reports: the effect of a change to the program, its input or a library on its
// memory.
//
// Call sites are matched by the functions and base file names of their stacks, from the allocating
// place outwards, and by the kind of memory. Lines and folders are ignored: code moves, and
// checkouts differ. Frames without names match if module and offset are equal, as in two runs of
// one build.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "report/symbols/resolver.hpp"
#include "report/views/site_stats.hpp"
#include "report/views/site_table.hpp"

namespace memlab::report {

/// A figure before and after.
struct Change {
    std::uint64_t before = 0;
    std::uint64_t after = 0;

    /// The absolute difference.
    std::uint64_t size() const { return before > after ? before - after : after - before; }
    bool operator==(const Change&) const = default;
};

/// "+3.81 MiB", "-512 B", "0 B".
std::string format_change(const Change& change);
/// "+12", "-1,234", "0".
std::string format_count_change(const Change& change);
/// "+12.3%", "-50.5%", "new", "gone"; "0.0%" if unchanged, ">+999%" beyond that.
std::string format_change_percent(const Change& change);

struct SiteDiff {
    Place place;  ///< of the later report, if it still has any there; of its largest call site
    std::vector<Place> calls;  ///< its callers as of CallChains, innermost first
    std::string kind;
    std::string api;
    SiteStats before;
    SiteStats after;
};

/// The changes of call sites between two recordings, or two groups of recordings.
struct SiteChanges {
    std::vector<SiteDiff> sites;  ///< changed sites, largest change first
    std::size_t unchanged = 0;
    SiteStats before;  ///< of all sites that match the filter
    SiteStats after;
};

/// A row of a table of totals.
struct DiffTotal {
    const char* name;     ///< "allocated"
    const char* member;   ///< "allocated_peak_bytes"
    const char* meaning;  ///< "peak"
    bool bytes;
    Change change;
};

struct DeviceDiff : SiteChanges {
    std::uint64_t index = 0;
    std::string label;  ///< "GPU 0"
    std::string name;   ///< "A, then B" if they differ
    std::vector<DiffTotal> totals;
};

struct ScopeDiff {
    std::string path;
    std::string kind;
    Change entries;
    Change peak_growth_bytes;
    Change allocated_bytes;
    Change escaped_bytes;
};

struct ScopeChanges {
    std::vector<ScopeDiff> scopes;  ///< changed scopes, largest change of peak growth first
    std::size_t unchanged_scopes = 0;
};

struct Diff : ScopeChanges {
    std::vector<DeviceDiff> devices;
    std::vector<std::string> notes;  ///< limits of the comparison
};

/// A report, and which of its sites are compared.
struct DiffSide {
    std::string file;
    const model::Report& report;
    Resolver& resolver;
    std::vector<bool> taken;
};

struct DiffOptions : ViewOptions {
    bool by_place = false;  ///< one row per place instead of per call stack
};

Diff diff_reports(const DiffSide& before, const DiffSide& after, const DiffOptions& options);

/// Compares two groups of reports: sums the sites over all GPUs (or the one that `options` names)
/// of all reports of a group.
SiteChanges diff_sites(const std::vector<DiffSide>& before, const std::vector<DiffSide>& after,
                       const DiffOptions& options);

/// Compares the scopes of two groups of reports, by path.
ScopeChanges diff_scopes(const std::vector<DiffSide>& before, const std::vector<DiffSide>& after);

/// A note if unnamed functions of different builds could not be matched; else empty.
std::string builds_note(const std::vector<DiffSide>& before, const std::vector<DiffSide>& after,
                        const SiteChanges& changes);

/// Text; ends with a newline.
std::string render_diff_text(const DiffSide& before, const DiffSide& after, const Diff& diff,
                             const DiffOptions& options);

/// Markdown for the comment of a pull request: totals, and the call sites that changed.
std::string render_diff_markdown(const DiffSide& before, const DiffSide& after, const Diff& diff,
                                 const DiffOptions& options);
/// The same of two groups of recordings, named `before` and `after`.
std::string render_changes_markdown(const std::string& before, const std::string& after,
                                    const std::vector<DiffTotal>& totals,
                                    const SiteChanges& changes,
                                    const std::vector<std::string>& notes,
                                    const DiffOptions& options);

/// A line of CSV for each call site that changed, after a heading.
std::string render_diff_csv(const Diff& diff);
std::string render_changes_csv(const SiteChanges& changes);

/// Whether any total in bytes is higher after.
bool grew(const std::vector<DiffTotal>& totals);

/// A whole document: format "memlab-diff", version 1, before and after {file, executable, pid},
/// sort, filter (null: none), devices [index, name, totals {<member>: {before, after, change}},
/// sites [place, calls, kind, api, before, after (<stats>), change, share (null: it is new)],
/// others {sites, before, after, change}, unchanged, before, after (<stats>)], scopes [path,
/// kind, entries, peak_growth_bytes, allocated_bytes, escaped_bytes: {before, after, change}],
/// unchanged_scopes, notes. change is by the order.
std::string render_diff_json(const DiffSide& before, const DiffSide& after, const Diff& diff,
                             const DiffOptions& options);

}  // namespace memlab::report
