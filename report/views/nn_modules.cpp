#include "report/views/nn_modules.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "model/bounded_sum.hpp"
#include "report/device_label.hpp"
#include "report/nn_module_parts.hpp"
#include "report/summary/json_values.hpp"
#include "report/text/page.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"
#include "trace/aggregate/nn_module_owner.hpp"

namespace memlab::report {

void NnModuleShare::add(std::uint64_t more_count, std::uint64_t more_bytes, Category category) {
    CategoryShare& part = categories[static_cast<std::size_t>(category)];
    model::add_to(count, more_count);
    model::add_to(bytes, more_bytes);
    model::add_to(part.count, more_count);
    model::add_to(part.bytes, more_bytes);
}

namespace {

/// The part of `whole` that `part` is not.
NnModuleShare rest_of(const NnModuleShare& whole, const NnModuleShare& part) {
    const auto less = [](std::uint64_t from, std::uint64_t by) {
        return from - std::min(from, by);
    };
    NnModuleShare rest;
    rest.count = less(whole.count, part.count);
    rest.bytes = less(whole.bytes, part.bytes);
    for (std::size_t i = 0; i < category_count; ++i) {
        rest.categories[i].count = less(whole.categories[i].count, part.categories[i].count);
        rest.categories[i].bytes = less(whole.categories[i].bytes, part.categories[i].bytes);
    }
    return rest;
}

/// Adds up the sites of one device.
class Adder {
  public:
    Adder(const model::Report& report, const model::Device& device, Resolver& resolver)
        : report_(report), resolver_(resolver) {
        of_.device = &device;
        of_.categories = has_categories(report, device);
        of_.doubt = doubt_about_categories(report, device, resolver);
        for (const model::NnModuleStack& stack : report.nn_modules) {
            if (stack.name) {
                names_.insert(*stack.name);
            }
        }
    }

    NnModulesOfDevice add() {
        NnModuleShare all;
        for (const model::Site& site : report_.sites) {
            if (is_held(site)) {
                all.add(site.at_peak_count, site.at_peak_bytes, category_of(site));
            }
        }
        NnModuleShare inside;
        std::unordered_map<std::size_t, std::uint64_t> inside_of;  // bytes by site
        std::set<std::uint64_t> unnamed;
        for (const model::NnModuleStack& stack : report_.nn_modules) {
            for (const model::NnModuleStack::Holding& held : stack.sites) {
                const model::Site& site = report_.sites[held.site];
                if (held.at_peak_count == 0 || !is_held(site)) {
                    continue;
                }
                const Category category = category_of(site);
                inside.add(held.at_peak_count, held.at_peak_bytes, category);
                model::add_to(inside_of[held.site], held.at_peak_bytes);
                if (stack.name) {
                    add_to_path(stack, held, category);
                } else {
                    unnamed.insert(stack.nn_module);
                    of_.unnamed.add(held.at_peak_count, held.at_peak_bytes, category);
                }
            }
        }
        of_.held = all.bytes;
        of_.outside = rest_of(all, inside);
        of_.outside_labels = labels_outside(inside_of);
        of_.unnamed_count = unnamed.size();
        sort(of_.outermost);
        return std::move(of_);
    }

  private:
    bool is_held(const model::Site& site) const {
        return site.device == of_.device->index && site.at_peak_count != 0 &&
               model::is_in_curves(site.kind);
    }
    Category category_of(const model::Site& site) {
        return of_.categories ? categorize(site, resolver_) : Category::other;
    }

    /// Of the sites that held more than what nn.Modules have of them, those that name none.
    std::vector<model::SiteLabel> labels_outside(
        const std::unordered_map<std::size_t, std::uint64_t>& inside_of) const {
        SiteRow row;
        for (std::size_t i = 0; i < report_.sites.size(); ++i) {
            const model::Site& site = report_.sites[i];
            const auto inside = inside_of.find(i);
            if (is_held(site) &&
                (inside == inside_of.end() || inside->second < site.at_peak_bytes)) {
                row.add(site, i);
            }
        }
        const auto has_owner = [&](const model::SiteLabel& label) {
            return trace::nn_module_owner(
                label.name, [&](std::string_view name) { return names_.contains(name); });
        };
        std::erase_if(row.labels, has_owner);
        std::stable_sort(row.labels.begin(), row.labels.end(),
                         [](const model::SiteLabel& a, const model::SiteLabel& b) {
                             const bool a_is_last = a.name == model::other_names;
                             const bool b_is_last = b.name == model::other_names;
                             return a_is_last != b_is_last ? b_is_last
                                                           : a.live_bytes > b.live_bytes;
                         });
        return std::move(row.labels);
    }

    void add_to_path(const model::NnModuleStack& stack, const model::NnModuleStack::Holding& held,
                     Category category) {
        NnModule* at = &of_.outermost;
        at->share.add(held.at_peak_count, held.at_peak_bytes, category);
        std::size_t depth = 0;
        for (std::size_t end = 0; end < stack.name->size();) {
            end = ++depth == max_depth ? std::string::npos : stack.name->find('.', end + 1);
            end = std::min(end, stack.name->size());
            at = &child(*at, stack.name->substr(0, end));
            at->share.add(held.at_peak_count, held.at_peak_bytes, category);
        }
        at->own.add(held.at_peak_count, held.at_peak_bytes, category);
        const std::string class_name = stack.class_name.value_or("");
        const bool first = at->own.count == held.at_peak_count;
        at->class_name = first || at->class_name == class_name ? class_name : "";
    }
    NnModule& child(NnModule& of, const std::string& name) {
        NnModule*& known = by_name_[name];
        if (known == nullptr) {
            known = &of.children.emplace_back();
            known->name = name;
        }
        return *known;
    }
    // NOLINTNEXTLINE(misc-no-recursion): to max_depth
    static void sort(NnModule& of) {
        of.children.sort(
            [](const NnModule& a, const NnModule& b) { return a.share.bytes > b.share.bytes; });
        for (NnModule& each : of.children) {
            sort(each);
        }
    }

    /// Components of a name that are told apart.
    static constexpr std::size_t max_depth = 32;

    const model::Report& report_;
    Resolver& resolver_;
    NnModulesOfDevice of_;
    std::set<std::string, std::less<>> names_;
    std::unordered_map<std::string, NnModule*> by_name_;
};

class NnModulesText {
  public:
    NnModulesText(const model::Report& report, const ViewOptions& options)
        : report_(report), options_(options), page_(options.style) {}

    std::string write(const std::vector<NnModulesOfDevice>& devices) {
        for (const NnModulesOfDevice& device : devices) {
            one(device);
        }
        if (devices.empty()) {
            const bool driver = has_framework_memory(report_) &&
                                std::all_of(report_.devices.begin(), report_.devices.end(),
                                            [](const auto& device) { return device.is_gpu(); });
            page_.paragraph("", report_.nn_modules.empty() ? no_nn_modules
                                : driver
                                    ? "The driver's level has what PyTorch's cache took from CUDA, "
                                      "of no nn.Module: --level framework has the tensors."
                                    : "No nn.Module held memory of a GPU at its peak.");
        }
        return page_.take();
    }

  private:
    struct Row {
        std::string what;
        NnModuleShare share;
    };

    void one(const NnModulesOfDevice& of) {
        const std::uint64_t inside =
            model::saturating_add(of.outermost.share.bytes, of.unnamed.bytes);
        page_.heading(
            device_title(*of.device, options_.style.ascii),
            format_bytes(inside) + " by nn.Modules, of " + format_bytes(of.held) + " at the peak");
        const std::vector<Row> rows = rows_of(of);
        Table<Row> table(page_);
        table.left("nn.Module", Column::fitted, [](const Row& row) { return row.what; });
        table.bytes("bytes", [](const Row& row) { return row.share.bytes; })
            .share([](const Row& row) { return row.share.bytes; }, of.held);
        add_categories(of, table);
        constexpr std::size_t min_name = 24;
        table.fit(rows, min_name);
        table.head();
        table.rows(rows, rows.size());
        if (of.outside.bytes != 0) {
            constexpr std::size_t below_name = 4;
            page_.note_below(below_name, names_of(of.outside_labels));
        }
        if (of.doubt != nullptr) {
            page_.paragraph("  ", of.doubt);
        }
        if (of.unnamed.count != 0) {
            page_.line("");
            page_.paragraph("  ", how_nn_modules_get_names);
        }
    }

    static std::string names_of(const std::vector<model::SiteLabel>& labels) {
        std::vector<model::MemoryLabel> names;
        names.reserve(labels.size());
        for (const model::SiteLabel& label : labels) {
            names.push_back({label.name, label.count, label.live_bytes, label.detail});
        }
        return model::format_label_names(names);
    }

    /// Those that something was held of; where the page is too narrow, what nn.Modules held most
    /// of.
    static void add_categories(const NnModulesOfDevice& of, Table<Row>& table) {
        using Held = std::pair<std::uint64_t, std::uint64_t>;  // by nn.Modules, outside
        std::array<Held, category_count> held{};
        for (std::size_t i = 0; of.categories && i < category_count; ++i) {
            for (const NnModuleShare* const share : {&of.outermost.share, &of.unnamed}) {
                model::add_to(held[i].first, share->categories[i].bytes);
            }
            held[i].second = of.outside.categories[i].bytes;
        }
        for (std::size_t i = 0; i < category_count; ++i) {
            if (held[i] == Held()) {
                continue;
            }
            const auto larger = std::count_if(held.begin(), held.end(),
                                              [&](const Held& each) { return each > held[i]; });
            const std::string name = category_name(static_cast<Category>(i));
            table.right(
                name, std::max<std::size_t>(12, name.size() + 2),
                [i](const Row& row) {
                    const std::uint64_t bytes = row.share.categories[i].bytes;
                    return bytes == 0 ? std::string() : format_bytes(bytes);
                },
                static_cast<int>(larger) + 1);
        }
    }

    std::vector<Row> rows_of(const NnModulesOfDevice& of) {
        std::vector<Row> rows;
        if (of.outermost.share.count != 0) {
            add(of.outermost, 0, rows);
        }
        if (of.unnamed.count != 0) {
            rows.push_back({"[" + format_plural(of.unnamed_count, "nn.Module") + " without a name]",
                            of.unnamed});
        }
        if (of.outside.bytes != 0) {
            rows.push_back({outside_nn_modules, of.outside});
        }
        return rows;
    }

    // NOLINTNEXTLINE(misc-no-recursion): to Adder::max_depth
    void add(const NnModule& of, std::size_t depth, std::vector<Row>& rows) {
        std::string what(2 * depth, ' ');
        if (!of.name.empty()) {
            what += page_.clean(of.short_name()) + (of.class_name.empty() ? "" : "  ");
        } else if (of.class_name.empty()) {
            what += "outermost";
        }
        rows.push_back({what + page_.clean(of.class_name), of.share});
        const std::size_t shown = std::min(options_.top, of.children.size());
        std::size_t place = 0;
        NnModuleShare others;
        for (const NnModule& each : of.children) {
            if (place++ < shown) {
                add(each, depth + 1, rows);
                continue;
            }
            for (std::size_t c = 0; c < category_count; ++c) {
                others.add(each.share.categories[c].count, each.share.categories[c].bytes,
                           static_cast<Category>(c));
            }
        }
        if (shown == of.children.size()) {
            return;
        }
        rows.push_back({std::string(2 * (depth + 1), ' ') + "[" +
                            format_plural(of.children.size() - shown, "other") + "]",
                        others});
    }

    const model::Report& report_;
    const ViewOptions& options_;
    Page page_;
};

ordered_json categories_json(const NnModulesOfDevice& of, const NnModuleShare& share) {
    if (!of.categories) {
        return nullptr;
    }
    ordered_json out = ordered_json::object();
    for (std::size_t i = 0; i < category_count; ++i) {
        out[category_name(static_cast<Category>(i))] = share.categories[i].bytes;
    }
    return out;
}

// NOLINTNEXTLINE(misc-no-recursion): to Adder::max_depth
void add_json(const NnModulesOfDevice& device, const NnModule& of, ordered_json& to) {
    to.push_back({{"name", of.name},
                  {"class", text_or_null(of.class_name)},
                  {"bytes", of.share.bytes},
                  {"count", of.share.count},
                  {"own_bytes", of.own.bytes},
                  {"own_count", of.own.count},
                  {"categories", categories_json(device, of.share)}});
    for (const NnModule& each : of.children) {
        add_json(device, each, to);
    }
}

}  // namespace

std::vector<NnModulesOfDevice> nn_modules(const model::Report& report, Resolver& resolver,
                                          const ViewOptions& options) {
    std::vector<NnModulesOfDevice> found;
    for (const model::Device& device : report.devices) {
        if (options.device && device.index != *options.device) {
            continue;
        }
        NnModulesOfDevice of = Adder(report, device, resolver).add();
        if (of.outermost.share.count != 0 || of.unnamed.count != 0) {
            found.push_back(std::move(of));
        }
    }
    return found;
}

std::string render_nn_modules_text(const model::Report& report,
                                   const std::vector<NnModulesOfDevice>& devices,
                                   const ViewOptions& options) {
    return NnModulesText(report, options).write(devices);
}

std::string render_nn_modules_json(const std::string& file,
                                   const std::vector<NnModulesOfDevice>& devices) {
    ordered_json list = ordered_json::array();
    for (const NnModulesOfDevice& of : devices) {
        ordered_json modules = ordered_json::array();
        if (of.outermost.share.count != 0) {
            add_json(of, of.outermost, modules);
        }
        ordered_json outside = {{"bytes", of.outside.bytes},
                                {"count", of.outside.count},
                                {"categories", categories_json(of, of.outside)}};
        if (!of.outside_labels.empty()) {
            outside["labels"] = labels_json(of.outside_labels);
        }
        list.push_back({{"index", of.device->index},
                        {"name", of.device->name},
                        {"peak_bytes", of.held},
                        {"nn_modules", std::move(modules)},
                        {"unnamed",
                         {{"nn_modules", of.unnamed_count},
                          {"bytes", of.unnamed.bytes},
                          {"count", of.unnamed.count},
                          {"categories", categories_json(of, of.unnamed)}}},
                        {"outside", std::move(outside)}});
    }
    return json_text({{"file", file}, {"devices", std::move(list)}});
}

}  // namespace memlab::report
