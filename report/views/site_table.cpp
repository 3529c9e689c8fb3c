#include "report/views/site_table.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/bounded_sum.hpp"
#include "report/device_label.hpp"
#include "report/lacks.hpp"
#include "report/nn_module_parts.hpp"
#include "report/summary/json_values.hpp"
#include "report/summary/place_text.hpp"
#include "report/text/page.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

/// That of all sites of a row.
std::optional<Category> common_category(const model::Report& report, const SiteRow& row,
                                        Resolver& resolver) {
    std::optional<Category> common;
    for (const std::size_t index : row.sites) {
        const Category category = categorize(report.sites[index], resolver);
        if (common && *common != category) {
            return std::nullopt;
        }
        common = category;
    }
    return common;
}

SiteTable make_table(const model::Report& report, const ViewedMemory& memory, Resolver& resolver,
                     const std::vector<bool>& taken, const ViewOptions& options) {
    const model::Device& device = memory.device();
    SiteTable table;
    table.report = &report;
    table.device = &device;
    table.kind = memory.kind();
    table.whole = memory.stats(report);
    table.categories = has_categories(report, device);
    table.doubt = doubt_about_categories(report, device, resolver);
    SiteRows rows;
    std::map<Category, SiteRow> by_category;
    std::map<std::pair<std::string, std::string>, SiteRow> by_nn_module;
    for (std::size_t i = 0; i < report.sites.size(); ++i) {
        const model::Site& site = report.sites[i];
        if (!memory.has(site) || !taken.at(i)) {
            continue;
        }
        SiteStats figures = memory.stats(site, i);
        figures.held_only = options.by_parts;
        table.taken.add(figures);
        if (options.by == SitesBy::nn_module) {
            const std::string name = nn_module_of(report, site);
            const std::string kind = model::is_in_curves(site.kind) ? "" : site.kind;
            SiteRow& row = by_nn_module[{name, kind}];
            row.nn_module = name;
            row.kind = kind;
            row.add(site, i, figures);
        } else if (options.by == SitesBy::category) {
            by_category[table.categories ? categorize(site, resolver) : Category::other].add(
                site, i, figures);
        } else {
            rows.add(resolver.place(site.stack), site, i, figures);
        }
    }
    table.rows = rows.take();
    for (SiteRow& row : table.rows) {
        row.category = table.categories ? common_category(report, row, resolver) : std::nullopt;
    }
    for (auto& [name_and_kind, row] : by_nn_module) {
        row.category = table.categories ? common_category(report, row, resolver) : std::nullopt;
        table.rows.push_back(std::move(row));
    }
    for (auto& [category, row] : by_category) {
        row.category = category;
        table.rows.push_back(std::move(row));
    }
    std::stable_sort(table.rows.begin(), table.rows.end(), [&](const auto& a, const auto& b) {
        return sort_value(a.stats, options.order) > sort_value(b.stats, options.order);
    });
    if (options.by == SitesBy::place && options.order == Order::peak && !table.rows.empty()) {
        std::vector<std::pair<std::size_t, std::uint64_t>> stacks;
        for (const std::size_t i : table.rows.front().sites) {
            stacks.emplace_back(report.sites[i].stack, memory.stats(report.sites[i], i).peak_bytes);
        }
        table.proposal = propose_skip(resolver, stacks, table.taken.peak_bytes);
    }
    return table;
}

/// Below this width a row takes two lines: its figures, then its place.
constexpr std::size_t min_one_line_width = 109;

/// A row's labels, most used first, other_names last.
std::vector<model::MemoryLabel> all_labels(const SiteRow& row) {
    std::vector<model::SiteLabel> labels = row.labels;
    std::stable_sort(labels.begin(), labels.end(),
                     [](const model::SiteLabel& a, const model::SiteLabel& b) {
                         const bool a_is_last = a.name == model::other_names;
                         const bool b_is_last = b.name == model::other_names;
                         return a_is_last != b_is_last ? b_is_last : a.count > b.count;
                     });
    std::vector<model::MemoryLabel> all;
    all.reserve(labels.size());
    for (model::SiteLabel& label : labels) {
        all.push_back(
            {std::move(label.name), label.count, label.live_bytes, std::move(label.detail)});
    }
    return all;
}

class SiteText {
  public:
    explicit SiteText(const ViewOptions& options) : options_(options), page_(options.style) {}

    std::string write(const std::vector<SiteTable>& tables) {
        for (const SiteTable& table : tables) {
            if (!table.kind.empty() || options_.order != Order::peak ||
                !is_outside_curves_only(*table.device)) {
                one(table);
            }
        }
        if (tables.empty()) {
            page_.line("No GPU memory was allocated.");
        }
        return page_.take();
    }

  private:
    void one(const SiteTable& table) {
        page_.heading(
            device_title(*table.device, options_.style.ascii, table.kind),
            (options_.by == SitesBy::category    ? std::string("categories")
             : options_.by == SitesBy::nn_module ? std::string("nn.Modules")
                                                 : format_plural(table.rows.size(), "place")) +
                ", by " + order_names().at(static_cast<std::size_t>(options_.order)) +
                (options_.filter.empty() ? "" : ", only " + page_.clean(options_.filter)));
        if (table.rows.empty()) {
            page_.line("  no call site matches");
            return;
        }
        const Table<SiteStats> figures = this->figures(table);
        figures.head();
        const std::size_t begin = one_line() ? figures.last_column() : 6;
        SiteStats rest;
        for (std::size_t i = 0; i < table.rows.size(); ++i) {
            const SiteRow& row = table.rows[i];
            if (i >= options_.top) {
                rest.add(row.stats);
                continue;
            }
            line(figures, row.stats, what(row, page_.remaining_width(begin)));
            page_.note_below(begin, model::format_label_names(all_labels(row)));
        }
        if (table.rows.size() > options_.top) {
            line(figures, rest,
                 page_.dim("[" + format_plural(table.rows.size() - options_.top, "other") + "]"));
        }
        if (table.rows.size() > 1) {
            line(figures, table.taken, page_.dim("[all]"));
        }
        if (table.proposal) {
            page_.paragraph("  ", page_.clean(table.proposal->text()));
        }
        if (options_.by == SitesBy::category && !table.categories) {
            page_.paragraph("  ", no_categories);
        } else if (options_.by == SitesBy::category && table.doubt != nullptr) {
            page_.paragraph("  ", table.doubt);
        }
    }

    /// The place of a row and what it is for, or the category that it is of.
    std::string what(const SiteRow& row, std::size_t width) const {
        if (options_.by == SitesBy::category) {
            return category_name(row.category.value_or(Category::other));
        }
        const bool told = row.category && *row.category != Category::other;
        const std::string category =
            told ? "  [" + std::string(category_name(*row.category)) + "]" : "";
        if (options_.by == SitesBy::nn_module) {
            return nn_module_text(row, width - std::min(width, display_width(category)),
                                  options_.style.ascii) +
                   page_.dim(category);
        }
        return describe_place(row.place, row.kind, row.api,
                              width - std::min(width, display_width(category)),
                              {options_.style, options_.working_directory, options_.templates}) +
               page_.dim(category);
    }

    bool one_line() const { return page_.width() >= min_one_line_width; }

    /// The figures, one for each order, and the share beside the one that it is of.
    Table<SiteStats> figures(const SiteTable& of) {
        const Order order = options_.order;
        Table<SiteStats> table(page_, 1);
        const auto share_beside = [&](Order figure) {
            if (figure == order) {
                table.share([order](const SiteStats& each) { return sort_value(each, order); },
                            sort_value(of.whole, order));
            }
        };
        table.bytes("at peak", &SiteStats::peak_bytes);
        share_beside(Order::peak);
        if (!options_.by_parts) {
            table.bytes("total", &SiteStats::bytes);
            share_beside(Order::bytes);
            table.count("allocations", 12, &SiteStats::count);
            share_beside(Order::count);
        }
        table.bytes(of.report != nullptr ? moment_column(*of.report, "at end") : "at end",
                    &SiteStats::live_bytes);
        share_beside(Order::live);
        if (!options_.by_parts) {
            table.count("temporary", 12, &SiteStats::temporaries);
            share_beside(Order::temporaries);
        }
        table.last(one_line() ? "where" : "");
        return table;
    }

    /// On a narrow page a place that does not fit has a line of its own.
    void line(const Table<SiteStats>& table, const SiteStats& figures, const std::string& where) {
        if (one_line() || table.last_column() + display_width(where) <= page_.width()) {
            table.row(figures, where);
        } else {
            table.row(figures);
            page_.line("      " + where);
        }
    }

    const ViewOptions& options_;
    Page page_;
};

}  // namespace

void SiteRows::add(const Place& place, const model::Site& site, std::size_t index,
                   const SiteStats& figures) {
    const auto [entry, is_new] = known_.try_emplace({place, site.kind}, rows_.size());
    if (is_new) {
        rows_.push_back({place, site.kind, site.api, {}, {}, {}, {}, {}});
    }
    rows_[entry->second].add(site, index, figures);
}

void SiteRow::add(const model::Site& site, std::size_t index, const SiteStats& figures) {
    stats.add(figures);
    sites.push_back(index);
    for (const model::SiteLabel& label : site.labels) {
        const auto [at, is_new] = label_numbers.try_emplace(label.name, labels.size());
        if (is_new) {
            labels.push_back(label);
            continue;
        }
        model::SiteLabel& same = labels[at->second];
        model::keep_common_detail(same, label);
        model::add_to(same.count, label.count);
        model::add_to(same.live_count, label.live_count);
        model::add_to(same.live_bytes, label.live_bytes);
    }
}

std::string nn_module_text(const SiteRow& row, std::size_t width, bool ascii) {
    const std::string kind = row.kind.empty() ? "" : "  " + row.kind + " memory";
    return shorten_begin(printable(row.nn_module, ascii),
                         width - std::min(width, display_width(kind)), ascii) +
           kind;
}

std::vector<model::MemoryLabel> live_labels(const SiteRow& row) {
    std::vector<model::MemoryLabel> live;
    for (const model::SiteLabel& label : row.labels) {
        if (label.live_count != 0) {
            live.push_back({label.name, label.live_count, label.live_bytes, label.detail});
        }
    }
    model::sort_labels(live);
    return live;
}

ordered_json labels_json(const std::vector<model::SiteLabel>& labels) {
    ordered_json out = ordered_json::array();
    for (const model::SiteLabel& label : labels) {
        out.push_back({{"name", label.name},
                       {"count", label.count},
                       {"live_count", label.live_count},
                       {"live_bytes", label.live_bytes}});
        add_detail(label.detail, out.back());
    }
    return out;
}

std::vector<SiteTable> site_tables(const model::Report& report, Resolver& resolver,
                                   const std::vector<bool>& taken, const ViewOptions& options) {
    std::vector<SiteTable> tables;
    for (const ViewedMemory& memory : viewed_memory(report, taken, options.order, options.device)) {
        tables.push_back(make_table(report, memory, resolver, taken, options));
    }
    return tables;
}

std::string render_sites_text(const std::vector<SiteTable>& tables, const ViewOptions& options) {
    return SiteText(options).write(tables);
}

std::string render_sites_json(const std::string& file, const std::vector<SiteTable>& tables,
                              const ViewOptions& options) {
    ordered_json out = {{"file", file},
                        {"sort", order_names().at(static_cast<std::size_t>(options.order))},
                        {"filter", text_or_null(options.filter)},
                        {"devices", ordered_json::array()}};
    for (const SiteTable& table : tables) {
        ordered_json sites = ordered_json::array();
        SiteStats rest;
        for (const SiteRow& row : table.rows) {
            if (sites.size() >= options.top) {
                rest.add(row.stats);
                continue;
            }
            ordered_json site = ordered_json::object();
            if (options.by == SitesBy::nn_module) {
                site = {{"nn_module", row.nn_module}, {"kind", text_or_null(row.kind)}};
            } else if (options.by == SitesBy::place) {
                site = {{"place", place_json(row.place)}, {"kind", row.kind}, {"api", row.api}};
            }
            if (row.category) {
                site["category"] = category_name(*row.category);
            }
            site["share"] = fraction(sort_value(row.stats, options.order),
                                     sort_value(table.whole, options.order));
            site.update(site_stats_json(row.stats));
            site["sites"] = recorded_sites(*table.report, row.sites);
            if (!row.labels.empty()) {
                site["labels"] = labels_json(row.labels);
            }
            sites.push_back(std::move(site));
        }
        ordered_json others = {{"places", table.rows.size() - sites.size()}};
        others.update(site_stats_json(rest));
        if (table.kind.empty()) {
            out["devices"].push_back(
                {{"index", table.device->index}, {"name", table.device->name}});
        }
        ordered_json& device = out["devices"].back();  // a device comes before its kinds
        ordered_json& to = table.kind.empty() ? device : device["kinds"][table.kind];
        to.update({{"total", site_stats_json(table.whole)},
                   {"taken", site_stats_json(table.taken)},
                   {"sites", std::move(sites)},
                   {"others", std::move(others)}});
    }
    return json_text(out);
}

std::string device_title(const model::Device& device, bool ascii, const std::string& kind) {
    if (!kind.empty()) {
        return printable(kind_label(device, kind), ascii);
    }
    return printable(device_label(device), ascii) + ": " + printable(device.name, ascii);
}

}  // namespace memlab::report
