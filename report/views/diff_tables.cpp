#include "report/views/diff_tables.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "report/summary/json_values.hpp"
#include "report/summary/place_text.hpp"
#include "report/text/text.hpp"
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

ChangeRow make_row(const Change& change) {
    return {change, format_change_percent(change)};
}

bool is_wide(const Page& page) {
    return page.width() >= 104;
}

}  // namespace

void DiffTables::totals(const std::vector<DiffTotal>& totals) {
    page_.line(page_.dim("  " + left("", 14) + right("before", 12) + right("after", 13) +
                         right("change", 14) + right("", 9)));
    for (const DiffTotal& total : totals) {
        page_.line("  " + left(total.name, 14) +
                   right(unsigned_text(total.change.before, total.bytes), 12) +
                   right(unsigned_text(total.change.after, total.bytes), 13) +
                   paint(total.change, right(signed_text(total.change, total.bytes), 14) +
                                           right(format_change_percent(total.change), 9)) +
                   page_.dim(std::string("  ") + total.meaning));
    }
}

void DiffTables::sites(const SiteChanges& changes, const std::string& whose) {
    page_.heading(options_.by_place ? "By place" : "By call stack",
                  order_name(options_) + whose + only());
    if (changes.sites.empty()) {
        page_.line("  nothing changed");
        return;
    }
    const bool wide = is_wide(page_);
    head(wide, "where");
    std::vector<std::string> rows;
    for (std::size_t i = 0; i < changes.sites.size() && i < options_.top; ++i) {
        rows.push_back(describe(changes.sites[i], {}));
    }
    const auto telling = CallTexts(options_).telling_calls(changes, rows);
    SiteStats before;  // of the others
    SiteStats after;
    for (std::size_t i = 0; i < changes.sites.size(); ++i) {
        const SiteDiff& site = changes.sites[i];
        if (i < options_.top) {
            row(make_row(order_change(site.before, site.after, options_.order)), wide,
                telling[i].empty() ? rows[i] : describe(site, telling[i]));
        } else {
            before.add(site.before);
            after.add(site.after);
        }
    }
    if (changes.sites.size() > options_.top) {
        row(make_row(order_change(before, after, options_.order)), wide,
            page_.dim("[" + format_plural(changes.sites.size() - options_.top, "other") + "]"));
    }
    row(make_row(order_change(changes.before, changes.after, options_.order)), wide,
        page_.dim(changes.unchanged == 0
                      ? "[total]"
                      : "[total; " + format_count(changes.unchanged) + " unchanged]"));
}

void DiffTables::head(bool figures, const std::string& what) {
    page_.line(page_.dim("  " + right("change", 13) + right("", 9) +
                         (figures ? right("before", 12) + right("after", 12) : "") + "  " + what));
}

void DiffTables::row(const ChangeRow& row, bool figures, const std::string& what) {
    const bool bytes = !is_count(options_.order);
    const auto show = [&](bool exists, std::uint64_t value) {
        return right(exists ? unsigned_text(value, bytes) : "-", 12);
    };
    page_.line(
        "  " +
        paint(row.change, right(signed_text(row.change, bytes), 13) + right(row.percent, 9)) +
        (figures ? show(row.has_before, row.change.before) + show(row.has_after, row.change.after)
                 : "") +
        "  " + what);
}

std::string DiffTables::only() const {
    return options_.filter.empty() ? "" : ", only " + page_.clean(options_.filter);
}

std::string DiffTables::paint(const Change& change, const std::string& text) const {
    return change.size() == 0             ? page_.dim(text)
           : change.after > change.before ? page_.red(text)
                                          : page_.cyan(text);
}

/// The place, then as many of its callers as fit: they distinguish the stacks.
std::string DiffTables::describe(const SiteDiff& site,
                                 const std::vector<TellingCall>& telling) const {
    const std::size_t width = page_.remaining_width(figures_width(is_wide(page_)));
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
    page_.line(page_.dim("  " + right("change", 13) + right("", 9) + right("before", 12) +
                         right("after", 12) + right("left behind", 13) + "  scope"));
    for (std::size_t i = 0; i < diff.scopes.size() && i < options_.top; ++i) {
        const ScopeDiff& scope = diff.scopes[i];
        const Change& adds = scope.peak_growth_bytes;
        page_.line(
            "  " +
            paint(adds, right(format_change(adds), 13) + right(format_change_percent(adds), 9)) +
            right(format_bytes(adds.before), 12) + right(format_bytes(adds.after), 12) +
            right(format_change(scope.escaped_bytes), 13) + "  " +
            shorten_begin(page_.clean(scope.path), page_.remaining_width(65),
                          options_.style.ascii));
    }
    const std::size_t more = diff.scopes.size() - std::min(diff.scopes.size(), options_.top);
    if (more + diff.unchanged_scopes != 0) {
        page_.line(page_.dim("  [" + (more == 0 ? "" : format_plural(more, "other") + ", ") +
                             format_count(diff.unchanged_scopes) + " unchanged]"));
    }
}

const std::string& order_name(const DiffOptions& options) {
    return order_names().at(static_cast<std::size_t>(options.order));
}

Change order_change(const SiteStats& before, const SiteStats& after, Order order) {
    return {sort_value(before, order), sort_value(after, order)};
}

ordered_json change_json(const Change& change) {
    ordered_json signed_change = nullptr;
    if (change.size() <= static_cast<std::uint64_t>(INT64_MAX)) {
        const auto size = static_cast<std::int64_t>(change.size());
        signed_change = change.after >= change.before ? size : -size;
    }
    return {{"before", change.before}, {"after", change.after}, {"change", signed_change}};
}

ordered_json totals_json(const std::vector<DiffTotal>& totals) {
    ordered_json out = ordered_json::object();
    for (const DiffTotal& total : totals) {
        out[total.member] = change_json(total.change);
    }
    return out;
}

void add_sites_json(const SiteChanges& changes, const DiffOptions& options, ordered_json& out) {
    ordered_json sites = ordered_json::array();
    SiteStats before;  // of the others
    SiteStats after;
    for (const SiteDiff& site : changes.sites) {
        const Change change = order_change(site.before, site.after, options.order);
        if (sites.size() >= options.top) {
            before.add(site.before);
            after.add(site.after);
            continue;
        }
        ordered_json calls = ordered_json::array();
        for (const Place& call : site.calls) {
            calls.push_back(place_json(call));
        }
        sites.push_back(
            {{"place", place_json(site.place)},
             {"calls", std::move(calls)},
             {"kind", site.kind},
             {"api", site.api},
             {"before", site_stats_json(site.before)},
             {"after", site_stats_json(site.after)},
             {"change", change_json(change)["change"]},
             {"share", change.before == 0 ? ordered_json(nullptr)
                                          : ordered_json((static_cast<double>(change.after) -
                                                          static_cast<double>(change.before)) /
                                                         static_cast<double>(change.before))}});
    }
    ordered_json others = {{"sites", changes.sites.size() - sites.size()}};
    others.update(change_json(order_change(before, after, options.order)));
    out["sites"] = std::move(sites);
    out["others"] = std::move(others);
    out["unchanged"] = changes.unchanged;
    out["before"] = site_stats_json(changes.before);
    out["after"] = site_stats_json(changes.after);
}

ordered_json scopes_json(const ScopeChanges& changes) {
    ordered_json out = ordered_json::array();
    for (const ScopeDiff& scope : changes.scopes) {
        out.push_back({{"path", scope.path},
                       {"kind", scope.kind},
                       {"entries", change_json(scope.entries)},
                       {"peak_growth_bytes", change_json(scope.peak_growth_bytes)},
                       {"allocated_bytes", change_json(scope.allocated_bytes)},
                       {"escaped_bytes", change_json(scope.escaped_bytes)}});
    }
    return out;
}

}  // namespace memlab::report
