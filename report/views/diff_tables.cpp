#include "report/views/diff_tables.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "report/summary/place_text.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

bool is_count(Order order) {
    return order == Order::count || order == Order::temporaries;
}

std::string signed_text(const Change& change, bool bytes) {
    return bytes ? format_change(change) : format_count_change(change);
}

std::string unsigned_text(std::uint64_t value, bool bytes) {
    return bytes ? format_bytes(value) : format_count(value);
}

std::string before_text(const DiffTotal& total) {
    return unsigned_text(total.change.before, total.bytes);
}

std::string after_text(const DiffTotal& total) {
    return unsigned_text(total.change.after, total.bytes);
}

ChangeRow make_row(const Change& change) {
    return {change, format_change_percent(change)};
}

bool is_wide(const Page& page) {
    return page.width() >= 104;
}

}  // namespace

void DiffTables::side(const std::string& name, const std::string& text) {
    Table<std::string> table(page_);
    table.left("", 6, std::identity()).last("");
    table.row(name, text);
}

void DiffTables::totals(const std::vector<DiffTotal>& totals) {
    Table<DiffTotal> table(page_);
    const auto color = [this](const DiffTotal& total) { return this->color(total.change); };
    table.left("", 14, &DiffTotal::name)
        .right("before", 12, before_text)
        .right("after", 13, after_text)
        .right("change", 14,
               [](const DiffTotal& total) { return signed_text(total.change, total.bytes); })
        .color(color)
        .right("", 9, [](const DiffTotal& total) { return format_change_percent(total.change); })
        .color(color)
        .last("", [this](const DiffTotal& each) { return page_.dim(each.meaning); });
    table.head();
    // A rest that was and is nothing tells nothing.
    std::vector<DiffTotal> shown;
    std::copy_if(totals.begin(), totals.end(), std::back_inserter(shown), [](const auto& total) {
        return total.member != std::string_view("rest_bytes") || total.change.before != 0 ||
               total.change.after != 0;
    });
    table.rows(shown, shown.size());
}

void DiffTables::sites(const SiteChanges& changes, const std::string& whose) {
    page_.heading(options_.by == SitesBy::nn_module ? "By nn.Module"
                  : options_.by_place               ? "By place"
                                                    : "By call stack",
                  order_name(options_) + whose + only());
    if (changes.sites.empty()) {
        page_.line("  nothing changed");
        return;
    }
    const FirstSites rows(changes, options_);
    const Table<ChangeRow> table = changes_of("where", is_wide(page_));
    table.head();
    std::vector<std::string> places;
    for (const SiteDiff& site : rows.changes.sites) {
        places.push_back(describe(site, {}, table.last_width()));
    }
    const auto telling = CallTexts(options_).telling_calls(changes, places);
    for (std::size_t i = 0; i < places.size(); ++i) {
        const SiteDiff& site = rows.changes.sites[i];
        table.row(make_row(rows.change(site.before, site.after)),
                  telling[i].empty() ? places[i] : describe(site, telling[i], table.last_width()));
    }
    if (rows.others != 0) {
        table.row(make_row(rows.change(rows.others_before, rows.others_after)),
                  page_.dim("[" + format_plural(rows.others, "other") + "]"));
    }
    table.row(make_row(rows.change(changes.before, changes.after)),
              page_.dim(changes.unchanged == 0
                            ? "[total]"
                            : "[total; " + format_count(changes.unchanged) + " unchanged]"));
}

Table<ChangeRow> DiffTables::changes_of(const std::string& what, bool figures) {
    const bool bytes = !is_count(options_.order);
    Table<ChangeRow> table(page_);
    const auto color = [this](const ChangeRow& row) { return this->color(row.change); };
    table
        .right("change", 13,
               [bytes](const ChangeRow& row) { return signed_text(row.change, bytes); })
        .color(color)
        .right("", 9, &ChangeRow::percent)
        .color(color);
    if (figures) {
        table
            .right("before", 12,
                   [bytes](const ChangeRow& row) {
                       return row.has_before ? unsigned_text(row.change.before, bytes) : "-";
                   })
            .right("after", 12, [bytes](const ChangeRow& row) {
                return row.has_after ? unsigned_text(row.change.after, bytes) : "-";
            });
    }
    table.last(what);
    return table;
}

std::string DiffTables::only() const {
    return options_.filter.empty() ? "" : ", only " + page_.clean(options_.filter);
}

std::string_view DiffTables::color(const Change& change) const {
    return change.size() == 0             ? options_.style.dim()
           : change.after > change.before ? options_.style.red()
                                          : options_.style.cyan();
}

/// The place, then as many of its callers as fit: they distinguish the stacks.
std::string DiffTables::describe(const SiteDiff& site, const std::vector<TellingCall>& telling,
                                 std::size_t width) const {
    if (!site.nn_module.empty()) {
        return shorten_begin(page_.clean(site.nn_module), width, options_.style.ascii);
    }
    const PlaceTextOptions place_options{options_.style, options_.working_directory,
                                         options_.templates};
    const std::size_t whole =
        display_width(describe_place(site.place, site.kind, site.api, 10 * width, place_options));
    const std::size_t calls_width =
        std::min(std::max(width / 2, width - std::min(width, whole)), page_.width());
    const std::string calls = CallTexts(options_).text(site, telling, calls_width);
    return describe_place(site.place, site.kind, site.api, width - display_width(calls),
                          place_options) +
           page_.dim(calls);
}

void DiffTables::scopes(const ScopeChanges& diff, const std::string& note) {
    if (diff.scopes.empty() && diff.unchanged_scopes == 0) {
        return;
    }
    page_.heading("By scope", note);
    if (diff.scopes.empty()) {
        page_.line("  nothing changed");
        return;
    }
    const auto adds = [](auto text) {
        return [text](const ScopeDiff& scope) { return text(scope.peak_growth_bytes); };
    };
    const auto color = adds([this](const Change& change) { return this->color(change); });
    Table<ScopeDiff> table(page_);
    table.right("change", 13, adds(format_change))
        .color(color)
        .right("", 9, adds(format_change_percent))
        .color(color)
        .bytes("before", adds([](const Change& change) { return change.before; }))
        .bytes("after", adds([](const Change& change) { return change.after; }))
        .right("left behind", 13,
               [](const ScopeDiff& scope) { return format_change(scope.escaped_bytes); })
        .last("scope", [&](const ScopeDiff& scope) {
            return shorten_begin(page_.clean(scope.path), table.last_width(), options_.style.ascii);
        });
    table.head();
    const std::size_t more = table.rows(diff.scopes, options_.top);
    if (more + diff.unchanged_scopes != 0) {
        page_.line(page_.dim("  [" + (more == 0 ? "" : format_plural(more, "other") + ", ") +
                             format_count(diff.unchanged_scopes) + " unchanged]"));
    }
}

const std::string& order_name(const DiffOptions& options) {
    return order_names().at(static_cast<std::size_t>(options.order));
}

}  // namespace memlab::report
