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
#include <optional>
#include <string>
#include <vector>

#include "report/lacks.hpp"
#include "report/symbols/resolver.hpp"
#include "report/views/site_stats.hpp"
#include "report/views/site_table.hpp"

namespace memlab::report {

struct DiffOptions : ViewOptions {
    bool by_place = false;  ///< one row per place instead of per call stack
};

/// A figure before and after.
struct Change {
    std::uint64_t before = 0;
    std::uint64_t after = 0;

    /// The absolute difference.
    std::uint64_t size() const { return before > after ? before - after : after - before; }
    /// The signed difference; none if it does not fit into 64 bits.
    std::optional<std::int64_t> difference() const {
        if (size() > static_cast<std::uint64_t>(INT64_MAX)) {
            return std::nullopt;
        }
        const auto change = static_cast<std::int64_t>(size());
        return after >= before ? change : -change;
    }
    /// What became more, relative to what there was; none if there was nothing.
    std::optional<double> share() const {
        return before == 0
                   ? std::nullopt
                   : std::optional((static_cast<double>(after) - static_cast<double>(before)) /
                                   static_cast<double>(before));
    }

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"before", "the figure of BEFORE"}, self.before);
        visit.number({"after", "the figure of AFTER"}, self.after);
        visit.signed_or_null({"change", "the difference; null beyond 64 bits"}, self.difference());
    }
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
    std::string nn_module = {};  ///< by nn.Module: nn_module_of(), with no place, kind and API
};

/// The changes of call sites between two recordings, or two groups of recordings.
struct SiteChanges {
    std::vector<SiteDiff> sites;  ///< changed sites, largest change first
    std::size_t unchanged = 0;
    SiteStats before;  ///< of all sites that match the filter
    SiteStats after;
};

/// The first rows of them, and what the others sum up to.
struct FirstSites {
    Order order = Order::peak;
    SiteChanges changes;     ///< its `sites` are those rows
    std::size_t others = 0;  ///< how many
    SiteStats others_before;
    SiteStats others_after;

    /// As many rows as the options say.
    FirstSites(const SiteChanges& all, const DiffOptions& options);
    FirstSites() = default;

    /// The change of the figure that the order sorts by.
    Change change(const SiteStats& before, const SiteStats& after) const {
        return {sort_value(before, order), sort_value(after, order)};
    }

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.list({"sites", "those that changed, the largest change first; `--top` of them"},
                   self.changes.sites, [&self](const SiteDiff& site, auto& to) {
                       const Change change = self.change(site.before, site.after);
                       to.object_or_null(
                           {"place",
                            "the frame that stands for the call stack; null "
                            "where none was recorded"},
                           site.place.recorded ? std::optional(site.place) : std::nullopt);
                       to.list({"calls", "the calls that lead there, innermost first"}, site.calls);
                       to.text_or_null({"nn_module",
                                        "with `--by nn-module`: its qualified name; place is "
                                        "null, kind and api are empty"},
                                       site.nn_module);
                       to.text({"kind", "the kind of memory"}, site.kind);
                       to.text({"api", "the function that allocated"}, site.api);
                       to.object({"before", "of BEFORE"}, site.before);
                       to.object({"after", "of AFTER"}, site.after);
                       to.signed_or_null({"change",
                                          "of the figure that `sort` names; null beyond "
                                          "64 bits"},
                                         change.difference());
                       to.real_or_null({"share",
                                        "the change, relative to BEFORE; null where it "
                                        "has none"},
                                       change.share());
                   });
        visit.group({"others", "the rest of those that changed"}, [&self](auto& to) {
            const Change change = self.change(self.others_before, self.others_after);
            to.number({"sites", "how many"}, self.others);
            Change::fields(change, to);
        });
        visit.number({"unchanged", "how many did not change"}, self.changes.unchanged);
        visit.object({"before", "of all that match the filter, of BEFORE"}, self.changes.before);
        visit.object({"after", "the same of AFTER"}, self.changes.after);
    }
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
    std::optional<std::uint64_t> index_before;  ///< where it is another one in BEFORE
    std::string label;                          ///< "GPU 0"; "GPU 0, then GPU 3"
    std::string name;                           ///< "A, then B" if they differ
    std::vector<DiffTotal> totals;
};

struct ScopeDiff {
    std::string path;
    std::string kind;
    Change entries;
    Change peak_growth_bytes;
    Change allocated_bytes;
    Change escaped_bytes;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text({"path", "its name, below those around it"}, self.path);
        visit.text({"kind", "of scope, as in the report"}, self.kind);
        visit.object({"entries", "how often it was entered"}, self.entries);
        visit.object({"peak_growth_bytes", "what one entry adds at its peak"},
                     self.peak_growth_bytes);
        visit.object({"allocated_bytes", "in all of them"}, self.allocated_bytes);
        visit.object({"escaped_bytes", "of that, what was still live when it ended"},
                     self.escaped_bytes);
    }
};

struct ScopeChanges {
    std::vector<ScopeDiff> scopes;  ///< changed scopes, largest change of peak growth first
    std::size_t unchanged_scopes = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.list({"scopes", "those that changed, the largest growth of a peak first"},
                   self.scopes);
        visit.number({"unchanged_scopes", "how many did not change"}, self.unchanged_scopes);
    }
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
    std::vector<Lack> run_lacks = {};  ///< of the run that the report is alone in

    /// What the report lacks, and its run.
    std::vector<Lack> lacks() const;
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
/// sort, filter (null: none), devices [index, index_before (if another), name, totals {<member>:
/// {before, after, change}}, sites [place, calls, kind, api, before, after (<stats>), change, share
/// (null: it is new)], others {sites, before, after, change}, unchanged, before, after (<stats>)],
/// scopes [path, kind, entries, peak_growth_bytes, allocated_bytes, escaped_bytes: {before, after,
/// change}], unchanged_scopes, notes. change is by the order.
std::string render_diff_json(const DiffSide& before, const DiffSide& after, const Diff& diff,
                             const DiffOptions& options);

}  // namespace memlab::report
