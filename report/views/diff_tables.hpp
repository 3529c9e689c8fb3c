// Tables of a comparison of two recordings or two runs, as text. As in bloaty: signed,
// largest change first, omitted rows summed up, the total last.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/text/page.hpp"
#include "report/text/table.hpp"
#include "report/views/diff.hpp"
#include "report/views/diff_calls.hpp"

namespace memlab::report {

/// A row of a table of changes. A side that does not exist has no figure.
struct ChangeRow {
    Change change;
    std::string percent;
    bool has_before = true;
    bool has_after = true;
};

/// Writes tables to a page. Options and page must outlive this. Thread-safety: none.
class DiffTables {
  public:
    DiffTables(const DiffOptions& options, Page& page) : options_(options), page_(page) {}

    /// What is compared: "before" or "after", and a text that has passed Page::clean().
    void side(const std::string& name, const std::string& text);

    /// One row per figure: before, after, change, percent, meaning.
    void totals(const std::vector<DiffTotal>& totals);

    /// "By call stack", or by place; `whose` is appended to the heading's note and may be empty.
    void sites(const SiteChanges& changes, const std::string& whose);

    void scopes(const ScopeChanges& changes, const std::string& note);

    /// A table of change, percent and `what`, which row() is given; with `figures` also before and
    /// after. Formatted as the order of the options requires. This must outlive it.
    Table<ChangeRow> changes_of(const std::string& what, bool figures);

    /// The filter, for a heading: ", only TEXT"; empty if there is none.
    std::string only() const;

  private:
    std::string_view color(const Change& change) const;
    std::string describe(const SiteDiff& site, const std::vector<TellingCall>& telling,
                         std::size_t width) const;

    const DiffOptions& options_;
    Page& page_;
};

/// The order's name on the command line: "peak".
const std::string& order_name(const DiffOptions& options);

}  // namespace memlab::report
