// A comparison for people and for scripts. As in bloaty: signed, largest change first, what is left
// out summed up, the total last.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/json_values.hpp"
#include "report/names.hpp"
#include "report/page.hpp"
#include "report/place_text.hpp"
#include "report/text.hpp"
#include "report/units.hpp"
#include "report/views/diff.hpp"

namespace memlab::report {

namespace {

const std::string& order_name(const DiffOptions& options) {
    return order_names().at(static_cast<std::size_t>(options.order));
}

bool counts(Order order) {
    return order == Order::count || order == Order::temporaries;
}

Change change_of(const Figures& before, const Figures& after, Order order) {
    return {value_of(before, order), value_of(after, order)};
}

class Text {
  public:
    explicit Text(const DiffOptions& options) : options_(options), page_(options.style) {}

    std::string write(const DiffSide& before, const DiffSide& after, const Diff& diff) {
        side("before", before);
        side("after", after);
        for (const DeviceDiff& device : diff.devices) {
            one(device);
        }
        if (diff.devices.empty()) {
            page_.line("");
            page_.line("  Neither allocated GPU memory.");
        }
        scopes(diff);
        page_.warnings(diff.notes);
        return page_.take();
    }

  private:
    void side(const char* name, const DiffSide& side) {
        const Process& process = side.report.process;
        const std::string who = "  " + page_.clean(base_name(process.executable)) + " (pid " +
                                std::to_string(process.pid) + ")";
        const std::size_t room = page_.room_beside(10 + display_width(who));
        const std::string text =
            shorten_begin(page_.clean(side.file), room, options_.style.ascii) + page_.dim(who);
        page_.line("  " + left(name, 8) + text);
    }

    void one(const DeviceDiff& device) {
        page_.heading("GPU " + std::to_string(device.index) + ": " + page_.clean(device.name));
        page_.line(page_.dim("  " + left("", 14) + right("before", 12) + right("after", 13) +
                             right("change", 14) + right("", 9)));
        for (const DeviceDiff::Total& total : device.totals) {
            const auto show = [&](std::uint64_t value) {
                return total.bytes ? format_bytes(value) : format_count(value);
            };
            page_.line("  " + left(total.name, 14) + right(show(total.change.before), 12) +
                       right(show(total.change.after), 13) +
                       paint(total.change, right(signed_text(total.change, total.bytes), 14) +
                                               right(format_change_percent(total.change), 9)) +
                       page_.dim(std::string("  ") + total.meaning));
        }
        page_.heading(
            options_.by_place ? "By place" : "By call stack",
            order_name(options_) +
                (options_.filter.empty() ? "" : ", only " + page_.clean(options_.filter)));
        if (device.sites.empty()) {
            page_.line("  nothing changed");
            return;
        }
        page_.line(page_.dim("  " + right("change", 13) + right("", 9) +
                             (is_wide() ? right("before", 12) + right("after", 12) : "") +
                             "  where"));
        Figures before;  // of the others
        Figures after;
        for (std::size_t i = 0; i < device.sites.size(); ++i) {
            const SiteDiff& site = device.sites[i];
            if (i < options_.top) {
                row(change_of(site.before, site.after, options_.order), describe(site));
            } else {
                before.add(site.before);
                after.add(site.after);
            }
        }
        if (device.sites.size() > options_.top) {
            row(change_of(before, after, options_.order),
                page_.dim("[" + format_plural(device.sites.size() - options_.top, "other") + "]"));
        }
        row(change_of(device.before, device.after, options_.order),
            page_.dim(device.unchanged == 0
                          ? "[total]"
                          : "[total; " + format_count(device.unchanged) + " unchanged]"));
    }

    bool is_wide() const { return page_.width() >= 104; }
    std::size_t figures_width() const { return 2 + 13 + 9 + (is_wide() ? 24 : 0) + 2; }

    std::string signed_text(const Change& change, bool bytes) const {
        return bytes ? format_change(change) : format_count_change(change);
    }

    std::string paint(const Change& change, const std::string& text) const {
        return change.size() == 0             ? page_.dim(text)
               : change.after > change.before ? page_.red(text)
                                              : page_.cyan(text);
    }

    void row(const Change& change, const std::string& where) {
        const bool bytes = !counts(options_.order);
        const auto show = [&](std::uint64_t value) {
            return bytes ? format_bytes(value) : format_count(value);
        };
        page_.line(
            "  " +
            paint(change,
                  right(signed_text(change, bytes), 13) + right(format_change_percent(change), 9)) +
            (is_wide() ? right(show(change.before), 12) + right(show(change.after), 12) : "") +
            "  " + where);
    }

    /// The place, then as many of its callers as there is room for: they tell stacks apart.
    std::string describe(const SiteDiff& site) const {
        const std::size_t room = page_.room_beside(figures_width());
        const PlaceTextOptions place_options{options_.style, options_.working_directory,
                                             options_.templates};
        const std::size_t whole = display_width(
            describe_place(site.place, site.kind, site.api, 10 * room, place_options));
        const std::size_t for_calls = std::max(room / 2, room - std::min(room, whole));
        const std::string arrow = options_.style.ascii ? " <- " : " ← ";
        std::string calls;
        std::string module = site.place.module;
        for (const Place& call : site.calls) {
            const std::string next = arrow + name_of(call, module);
            module = call.module;
            if (display_width(calls) + display_width(next) > for_calls) {
                break;
            }
            calls += next;
        }
        return describe_place(site.place, site.kind, site.api, room - display_width(calls),
                              place_options) +
               page_.dim(calls);
    }

    /// A caller's function, or where it is: "+0x12f0" within the module of the call before it.
    std::string name_of(const Place& call, const std::string& module) const {
        if (!call.function.empty()) {
            return page_.clean(
                collapse_templates(without_anonymous(call.function), options_.style.ascii));
        }
        const std::string where = location_text(call, options_.working_directory);
        return page_.clean(call.file.empty() && call.module == module && !module.empty()
                               ? where.substr(base_name(module).size())
                               : where);
    }

    void scopes(const Diff& diff) {
        if (diff.scopes.empty() && diff.unchanged_scopes == 0) {
            return;
        }
        page_.heading("By scope", "what one entry adds at its peak");
        if (diff.scopes.empty()) {
            page_.line("  nothing changed");
            return;
        }
        page_.line(page_.dim("  " + right("change", 13) + right("", 9) + right("before", 12) +
                             right("after", 12) + right("escaped", 13) + "  scope"));
        for (std::size_t i = 0; i < diff.scopes.size() && i < options_.top; ++i) {
            const ScopeDiff& scope = diff.scopes[i];
            const Change& adds = scope.peak_growth_bytes;
            page_.line("  " +
                       paint(adds, right(format_change(adds), 13) +
                                       right(format_change_percent(adds), 9)) +
                       right(format_bytes(adds.before), 12) + right(format_bytes(adds.after), 12) +
                       right(format_change(scope.escaped_bytes), 13) + "  " +
                       shorten_begin(page_.clean(scope.path), page_.room_beside(65),
                                     options_.style.ascii));
        }
        const std::size_t more = diff.scopes.size() - std::min(diff.scopes.size(), options_.top);
        if (more + diff.unchanged_scopes != 0) {
            page_.line(page_.dim("  [" + (more == 0 ? "" : format_plural(more, "other") + ", ") +
                                 format_count(diff.unchanged_scopes) + " unchanged]"));
        }
    }

    const DiffOptions& options_;
    Page page_;
};

/// `change` is null where it does not fit into 64 bits.
ordered_json change_json(const Change& change) {
    ordered_json signed_change = nullptr;
    if (change.size() <= static_cast<std::uint64_t>(INT64_MAX)) {
        const auto size = static_cast<std::int64_t>(change.size());
        signed_change = change.after >= change.before ? size : -size;
    }
    return {{"before", change.before}, {"after", change.after}, {"change", signed_change}};
}

ordered_json side_json(const DiffSide& side) {
    return {{"file", side.file},
            {"executable", side.report.process.executable},
            {"pid", side.report.process.pid}};
}

ordered_json device_json(const DeviceDiff& device, const DiffOptions& options) {
    ordered_json totals = ordered_json::object();
    for (const DeviceDiff::Total& total : device.totals) {
        totals[total.member] = change_json(total.change);
    }
    ordered_json sites = ordered_json::array();
    Figures before;  // of the others
    Figures after;
    for (const SiteDiff& site : device.sites) {
        const Change change = change_of(site.before, site.after, options.order);
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
             {"before", figures_json(site.before)},
             {"after", figures_json(site.after)},
             {"change", change_json(change)["change"]},
             {"share", change.before == 0 ? ordered_json(nullptr)
                                          : ordered_json((static_cast<double>(change.after) -
                                                          static_cast<double>(change.before)) /
                                                         static_cast<double>(change.before))}});
    }
    ordered_json others = {{"sites", device.sites.size() - sites.size()}};
    others.update(change_json(change_of(before, after, options.order)));
    return {{"index", device.index},
            {"name", device.name},
            {"totals", std::move(totals)},
            {"sites", std::move(sites)},
            {"others", std::move(others)},
            {"unchanged", device.unchanged},
            {"before", figures_json(device.before)},
            {"after", figures_json(device.after)}};
}

}  // namespace

std::string render_diff_text(const DiffSide& before, const DiffSide& after, const Diff& diff,
                             const DiffOptions& options) {
    return Text(options).write(before, after, diff);
}

std::string render_diff_json(const DiffSide& before, const DiffSide& after, const Diff& diff,
                             const DiffOptions& options) {
    ordered_json out = {{"format", "memlab-diff"},
                        {"version", 1},
                        {"before", side_json(before)},
                        {"after", side_json(after)},
                        {"sort", order_name(options)},
                        {"filter", text_or_null(options.filter)},
                        {"devices", ordered_json::array()},
                        {"scopes", ordered_json::array()},
                        {"unchanged_scopes", diff.unchanged_scopes},
                        {"notes", diff.notes}};
    for (const DeviceDiff& device : diff.devices) {
        out["devices"].push_back(device_json(device, options));
    }
    for (const ScopeDiff& scope : diff.scopes) {
        out["scopes"].push_back({{"path", scope.path},
                                 {"kind", scope.kind},
                                 {"entries", change_json(scope.entries)},
                                 {"peak_growth_bytes", change_json(scope.peak_growth_bytes)},
                                 {"allocated_bytes", change_json(scope.allocated_bytes)},
                                 {"escaped_bytes", change_json(scope.escaped_bytes)}});
    }
    return json_text(out) + "\n";
}

}  // namespace memlab::report
