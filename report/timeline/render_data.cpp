// JSON and CSV output of a timeline.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "model/bounded_sum.hpp"
#include "report/summary/json_values.hpp"
#include "report/timeline/render.hpp"

namespace memlab::report {

namespace {

ordered_json bytes_json(const CategoryBytes& bytes) {
    ordered_json out;
    for (std::size_t i = 0; i < category_count; ++i) {
        out[category_name(static_cast<Category>(i))] = bytes.at(i);
    }
    return out;
}

ordered_json categories_json(const CategoryTimeline& timeline) {
    ordered_json out;
    out["bucket_ns"] = timeline.bucket_ns;
    out["highest_ns"] = timeline.highest_ns;
    ordered_json& categories = out["categories"] = ordered_json::object();
    for (std::size_t i = 0; i < category_count; ++i) {
        const CategoryTimeline::Figures& figures = timeline.figures.at(i);
        categories[category_name(static_cast<Category>(i))] = {
            {"at_begin", figures.at_begin},
            {"at_highest", timeline.at_highest.at(i)},
            {"highest", figures.highest},
            {"highest_ns", figures.highest_ns},
            {"at_end", figures.at_end}};
    }
    ordered_json& rows = out["rows"] = ordered_json::array();
    for (const CategoryRow& row : timeline.rows) {
        rows.push_back({{"begin_ns", row.begin_ns},
                        {"at_ns", row.at_ns},
                        {"bytes", bytes_json(row.bytes)},
                        {"last", bytes_json(row.last)}});
    }
    return out;
}

/// "optimizer_state": a category as the name of a column.
std::string column_name(std::size_t category) {
    std::string name = category_name(static_cast<Category>(category));
    std::replace(name.begin(), name.end(), ' ', '_');
    return name;
}

ordered_json device_json(const DeviceTimeline& timeline, bool by_category) {
    ordered_json device;
    device["index"] = timeline.device->index;
    device["name"] = timeline.device->name;
    device["bucket_ns"] = timeline.bucket_ns;
    device["exact"] = timeline.exact;
    ordered_json& curves = device["curves"] = ordered_json::object();
    for (std::size_t curve = 0; curve < model::curve_count; ++curve) {
        const auto& figures = timeline.curves[curve];
        if (!figures) {
            curves[model::curve_names[curve]] = nullptr;
            continue;
        }
        curves[model::curve_names[curve]] = {{"at_begin", figures->at_begin},
                                             {"lowest", figures->lowest},
                                             {"highest", figures->highest},
                                             {"highest_ns", figures->highest_ns},
                                             {"at_end", figures->at_end}};
        // Present where it is true only: the figures that are usual need no comment.
        if (figures->highest_at_most) {
            curves[model::curve_names[curve]]["highest_at_most"] = true;
        }
        if (figures->lowest_at_least) {
            curves[model::curve_names[curve]]["lowest_at_least"] = true;
        }
    }
    ordered_json& rows = device["rows"] = ordered_json::array();
    for (const model::TimelineRow& row : timeline.rows) {
        ordered_json out;
        out["begin_ns"] = row.begin_ns;
        for (std::size_t curve = 0; curve < model::curve_count; ++curve) {
            const auto& values = row.curves[curve];
            out[model::curve_names[curve]] =
                values ? ordered_json::array({values->min, values->max, values->last})
                       : ordered_json();
        }
        rows.push_back(std::move(out));
    }
    for (const KindTimeline& kind : timeline.kinds) {
        ordered_json& out = device["kind_curves"][kind.kind];
        out = {{"bucket_ns", kind.bucket_ns},           {"at_begin", kind.figures.at_begin},
               {"lowest", kind.figures.lowest},         {"highest", kind.figures.highest},
               {"highest_ns", kind.figures.highest_ns}, {"at_end", kind.figures.at_end},
               {"rows", ordered_json::array()}};
        for (const model::KindCurve::Row& row : kind.rows) {
            out["rows"].push_back(
                {{"begin_ns", row.begin_ns}, {"bytes", {row.min, row.max, row.last}}});
        }
    }
    if (by_category) {
        device["by_category"] =
            timeline.categories ? categories_json(*timeline.categories) : ordered_json();
    }
    return device;
}

ordered_json moment_json(const MomentView& moment, const ViewOptions& options) {
    ordered_json at;
    at["time_ns"] = moment.time_ns;
    at["name"] = moment.name;
    ordered_json& devices = at["devices"] = ordered_json::array();
    for (const SiteTable& table : moment.tables) {
        ordered_json& device = devices.emplace_back(ordered_json{{"index", table.device->index}});
        for (const LiveMemory& memory : live_memory(table, moment)) {
            ordered_json& to = memory.kind.empty() ? device : device["kinds"][memory.kind];
            ordered_json sites = ordered_json::array();
            for (const LiveMemory::Row& row : memory.rows) {
                if (sites.size() >= options.top) {
                    break;
                }
                if (options.by == SitesBy::nn_module) {
                    sites.push_back({{"nn_module", row.row->nn_module},
                                     {"bytes", row.bytes},
                                     {"count", row.count}});
                } else {
                    sites.push_back({{"place", place_json(row.row->place)},
                                     {"kind", row.row->kind},
                                     {"api", text_or_null(row.row->api)},
                                     {"bytes", row.bytes},
                                     {"count", row.count}});
                }
            }
            to["bytes"] = memory.bytes;
            to["count"] = memory.count;
            to["sites"] = std::move(sites);
        }
    }
    return at;
}

}  // namespace

std::string render_timeline_json(const std::string& file, const TimelineView& view,
                                 const MomentView* moment, const ViewOptions& options) {
    ordered_json root;
    root["file"] = file;
    root["source"] = view.from_log ? "event log" : "report";
    root["from_ns"] = view.from_ns;
    root["to_ns"] = view.to_ns;
    ordered_json& devices = root["devices"] = ordered_json::array();
    for (const DeviceTimeline& device : view.devices) {
        devices.push_back(device_json(device, view.by_category));
    }
    ordered_json& marks = root["marks"] = ordered_json::array();
    for (const TimelineMark& mark : view.marks) {
        marks.push_back({{"time_ns", mark.time_ns}, {"name", mark.name}});
    }
    ordered_json& scopes = root["scopes"] = ordered_json::array();
    for (const TimelineScope& scope : view.scopes) {
        scopes.push_back({{"name", scope.name},
                          {"thread", scope.thread},
                          {"depth", scope.depth},
                          {"begin_ns", scope.begin_ns},
                          {"end_ns", scope.end_ns},
                          {"ended", scope.ended}});
    }
    ordered_json& ooms = root["ooms"] = ordered_json::array();
    for (const TimelineOom& oom : view.ooms) {
        ooms.push_back({{"time_ns", oom.time_ns},
                        {"device", oom.device},
                        {"requested_bytes", oom.requested_bytes},
                        {"api", text_or_null(oom.api)}});
    }
    root["left_out"] = view.left_out;
    if (!view.stretch.empty()) {
        root["stretch"] = view.stretch;
    }
    root["at"] = moment == nullptr ? ordered_json() : moment_json(*moment, options);
    return json_text(root);
}

std::string render_categories_csv(const TimelineView& view) {
    std::string text = "device,begin_ns,end_ns,at_ns,allocated";
    for (std::size_t i = 0; i < category_count; ++i) {
        text += ',' + column_name(i);
    }
    text += ",allocated_last";
    for (std::size_t i = 0; i < category_count; ++i) {
        text += ',' + column_name(i) + "_last";
    }
    text += '\n';
    for (const DeviceTimeline& device : view.devices) {
        if (!device.categories) {
            continue;
        }
        for (const CategoryRow& row : device.categories->rows) {
            const std::uint64_t end = std::min(
                model::saturating_add(row.begin_ns, device.categories->bucket_ns), view.to_ns);
            text += std::to_string(device.device->index) + ',' + std::to_string(row.begin_ns) +
                    ',' + std::to_string(end) + ',' + std::to_string(row.at_ns);
            for (const CategoryBytes* const bytes : {&row.bytes, &row.last}) {
                text += ',' + std::to_string(sum(*bytes));
                for (const std::uint64_t each : *bytes) {
                    text += ',' + std::to_string(each);
                }
            }
            text += '\n';
        }
    }
    return text;
}

std::string render_timeline_csv(const TimelineView& view) {
    std::string text = "device,begin_ns,end_ns";
    for (const char* name : model::curve_names) {
        for (const char* value : {"_min", "_max", "_last"}) {
            text.append(",").append(name).append(value);
        }
    }
    text += ",memory\n";
    for (const DeviceTimeline& device : view.devices) {
        for (const model::TimelineRow& row : device.rows) {
            std::uint64_t end = 0;
            if (__builtin_add_overflow(row.begin_ns, device.bucket_ns, &end) || end > view.to_ns) {
                end = view.to_ns;
            }
            text += std::to_string(device.device->index) + ',' + std::to_string(row.begin_ns) +
                    ',' + std::to_string(end);
            for (const auto& values : row.curves) {
                if (values) {
                    text += ',' + std::to_string(values->min) + ',' + std::to_string(values->max) +
                            ',' + std::to_string(values->last);
                } else {
                    text += ",,,";
                }
            }
            text += ",\n";
        }
        for (const KindTimeline& kind : device.kinds) {
            for (const model::KindCurve::Row& row : kind.rows) {
                const std::uint64_t end =
                    std::min(model::saturating_add(row.begin_ns, kind.bucket_ns), view.to_ns);
                text += std::to_string(device.device->index) + ',' + std::to_string(row.begin_ns) +
                        ',' + std::to_string(end);
                for (std::size_t curve = 0; curve < model::curve_count; ++curve) {
                    text += curve == static_cast<std::size_t>(model::Curve::allocated)
                                ? ',' + std::to_string(row.min) + ',' + std::to_string(row.max) +
                                      ',' + std::to_string(row.last)
                                : ",,,";
                }
                text += ',' + kind.kind + '\n';
            }
        }
    }
    return text;
}

}  // namespace memlab::report
