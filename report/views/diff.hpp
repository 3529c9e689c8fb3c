// Two reports side by side: what a change to the program, its input or a library did to its memory.
//
// Call sites are matched by what their stacks say: the functions and the names of their files, from
// the place that allocated outwards, and the kind of memory. Lines do not count, nor do folders:
// code moves, and checkouts differ. Without names module and offset must be the same, as they are
// between two runs of one build.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "report/symbols/resolver.hpp"
#include "report/views/figures.hpp"
#include "report/views/site_table.hpp"

namespace memlab::report {

/// A figure before and after.
struct Change {
    std::uint64_t before = 0;
    std::uint64_t after = 0;

    /// Without its sign.
    std::uint64_t size() const { return before > after ? before - after : after - before; }
    bool operator==(const Change&) const = default;
};

/// "+3.81 MiB", "-512 B", "0 B".
std::string format_change(const Change& change);
/// "+12", "-1,234", "0".
std::string format_count_change(const Change& change);
/// "+12.3%", "-50.5%", "new", "gone"; "0.0%" where nothing changed.
std::string format_change_percent(const Change& change);

struct SiteDiff {
    Place place;               ///< as it is after, where it still exists
    std::vector<Place> calls;  ///< its callers, inner ones first, as far as they are the program's
    std::string kind;
    std::string api;
    Figures before;
    Figures after;
};

/// The call sites of one recording and another, or of several and several others.
struct SiteChanges {
    std::vector<SiteDiff> sites;  ///< those that changed, by the size of the change
    std::size_t unchanged = 0;
    Figures before;  ///< of all that was taken
    Figures after;
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
    std::string name;  ///< "A, then B" where they differ
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
    std::vector<ScopeDiff> scopes;  ///< those that changed, by what an entry adds
    std::size_t unchanged_scopes = 0;
};

struct Diff : ScopeChanges {
    std::vector<DeviceDiff> devices;
    std::vector<std::string> notes;  ///< what makes the comparison less than exact
};

/// A report, and which of its sites count.
struct DiffSide {
    std::string file;
    const Report& report;
    Resolver& resolver;
    std::vector<bool> taken;
};

struct DiffOptions : ViewOptions {
    bool by_place = false;  ///< one row for each place, whoever called it
};

Diff diff_reports(const DiffSide& before, const DiffSide& after, const DiffOptions& options);

/// Several reports and several others, whichever belong together: the sites of all their GPUs (or
/// of the one that `options` names, in each) added up.
SiteChanges diff_sites(const std::vector<DiffSide>& before, const std::vector<DiffSide>& after,
                       const DiffOptions& options);

/// The same of their scopes, by path.
ScopeChanges diff_scopes(const std::vector<DiffSide>& before, const std::vector<DiffSide>& after);

/// A sentence where functions without names may be told apart that are one; else empty.
std::string note_of_builds(const std::vector<DiffSide>& before, const std::vector<DiffSide>& after,
                           const SiteChanges& changes);

/// For people; ends with a newline.
std::string render_diff_text(const DiffSide& before, const DiffSide& after, const Diff& diff,
                             const DiffOptions& options);

/// A whole document: format "memlab-diff", version 1, before and after {file, executable, pid},
/// sort, filter (null: none), devices [index, name, totals {<member>: {before, after, change}},
/// sites [place, calls, kind, api, before, after (<figures>), change, share (null: it is new)],
/// others {sites, before, after, change}, unchanged, before, after (<figures>)], scopes [path,
/// kind, entries, peak_growth_bytes, allocated_bytes, escaped_bytes: {before, after, change}],
/// unchanged_scopes, notes. change is by the order.
std::string render_diff_json(const DiffSide& before, const DiffSide& after, const Diff& diff,
                             const DiffOptions& options);

}  // namespace memlab::report
