// The tables of a comparison, for people and for scripts, whether it is of two recordings or of two
// runs of many. As in bloaty: signed, largest change first, what is left out summed up, the total
// last.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "report/text/page.hpp"
#include "report/views/diff.hpp"

namespace memlab::report {

/// A row of a table of changes. Without the one side it has no figure there.
struct ChangeRow {
    Change change;
    std::string percent;
    bool had = true;  ///< there is a figure before
    bool has = true;  ///< there is one after
};

/// Writes to a page; both must outlive it. Thread-safety: none.
class DiffTables {
  public:
    DiffTables(const DiffOptions& options, Page& page) : options_(options), page_(page) {}

    /// A figure each: before, after, change, percent, and what it means.
    void totals(const std::vector<DiffTotal>& totals);

    /// "By call stack", or by place; `whose` says of what, where that is not plain.
    void sites(const SiteChanges& changes, const std::string& whose);

    void scopes(const ScopeChanges& changes, const std::string& note);

    /// The head of rows that are told by change, percent and `what`; with `figures` before and
    /// after, too.
    void head(bool figures, const std::string& what);
    /// By the order of the options. `what` goes to the page as it is.
    void row(const ChangeRow& row, bool figures, const std::string& what);
    /// Columns before `what`.
    static std::size_t figures_width(bool figures) { return 2 + 13 + 9 + (figures ? 24 : 0) + 2; }

    /// What --filter takes, for a heading: ", only TEXT"; empty: everything.
    std::string only() const;

  private:
    std::string paint(const Change& change, const std::string& text) const;
    std::string describe(const SiteDiff& site) const;
    std::string name_of(const Place& call, const std::string& module) const;

    const DiffOptions& options_;
    Page& page_;
};

/// "peak": the order, as the command line has it.
const std::string& order_name(const DiffOptions& options);

/// What `order` sorts by, of both.
Change change_of(const Figures& before, const Figures& after, Order order);

/// {before, after, change}; change is null where it does not fit into 64 bits.
nlohmann::ordered_json change_json(const Change& change);

/// {<member>: {before, after, change}}.
nlohmann::ordered_json totals_json(const std::vector<DiffTotal>& totals);

/// Adds sites, others, unchanged, before and after to `out`, as render_diff_json() has them.
void add_sites_json(const SiteChanges& changes, const DiffOptions& options,
                    nlohmann::ordered_json& out);

/// [{path, kind, entries, peak_growth_bytes, allocated_bytes, escaped_bytes}].
nlohmann::ordered_json scopes_json(const ScopeChanges& changes);

}  // namespace memlab::report
