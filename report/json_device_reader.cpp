#include "report/json_device_reader.hpp"

#include <array>
#include <string>
#include <utility>

namespace memlab::report {

namespace {

constexpr std::array<const char*, curve_count> curve_names = {"requested", "allocated", "active",
                                                              "reserved", "device_used"};

/// The positions of a curve's three columns.
std::array<std::size_t, 3> find_columns(const Node& columns, const char* curve) {
    std::array<std::size_t, 3> positions{};
    static constexpr std::array<const char*, 3> suffixes = {"_min", "_max", "_last"};
    for (std::size_t k = 0; k < suffixes.size(); ++k) {
        const std::string wanted = std::string(curve) + suffixes.at(k);
        std::size_t position = columns.size();
        for (std::size_t i = 0; i < columns.size(); ++i) {
            if (columns.at(i).text() == wanted) {
                position = i;
            }
        }
        if (position == columns.size()) {
            columns.fail("has no \"" + wanted + "\"");
        }
        positions.at(k) = position;
    }
    return positions;
}

Timeline read_timeline(const Node& node) {
    Timeline timeline;
    const std::uint64_t start = node.member("start_ns").number();
    timeline.bucket_ns = node.member("bucket_ns").number();
    const Node columns = node.member("columns");
    if (columns.size() == 0 || columns.at(0).text() != "bucket") {
        columns.fail("does not begin with \"bucket\"");
    }
    std::array<std::array<std::size_t, 3>, curve_count> positions{};
    for (std::size_t c = 0; c < curve_count; ++c) {
        positions.at(c) = find_columns(columns, curve_names.at(c));
    }
    node.member("rows").each([&](const Node& cells) {
        if (cells.size() != columns.size()) {
            cells.fail("does not have one number for each column");
        }
        TimelineRow row;
        std::uint64_t offset = 0;
        if (__builtin_mul_overflow(cells.at(0).number(), timeline.bucket_ns, &offset) ||
            __builtin_add_overflow(start, offset, &row.begin_ns)) {
            cells.fail("does not fit into 64 bits of nanoseconds");
        }
        if (!timeline.rows.empty() && row.begin_ns <= timeline.rows.back().begin_ns) {
            cells.fail("is not in order of time");
        }
        for (std::size_t c = 0; c < curve_count; ++c) {
            const auto& [min, max, last] = positions.at(c);
            const bool optional = c == static_cast<std::size_t>(Curve::device_used);
            if (optional && cells.at(max).is_null()) {
                continue;
            }
            row.curves.at(c) = TimelineRow::Values{cells.at(min).number(), cells.at(max).number(),
                                                   cells.at(last).number()};
        }
        timeline.rows.push_back(row);
    });
    return timeline;
}

std::optional<Work> read_work(const Node& node) {
    if (node.optional_member("work") == nullptr) {
        return std::nullopt;
    }
    Work work;
    node.member("work").each_member([&](const std::string& kind, const Node& totals) {
        work.kinds[kind] = {totals.member("count").number(), totals.member("busy_ns").number(),
                            totals.member("bytes").number()};
    });
    return work;
}

std::optional<KernelsAtPeak> read_kernels_at_peak(const Node& node) {
    if (node.optional_member("kernels_at_peak") == nullptr) {
        return std::nullopt;
    }
    const Node moment = node.member("kernels_at_peak");
    KernelsAtPeak kernels;
    kernels.from_ns = moment.member("from_ns").number();
    kernels.to_ns = moment.member("to_ns").number();
    moment.member("kernels").each([&](const Node& kernel) {
        kernels.kernels.push_back({kernel.member("name").text(), kernel.member("count").number(),
                                   kernel.member("busy_ns").number()});
    });
    const Node other = moment.member("other");
    kernels.other_names = other.member("names").number();
    kernels.other_count = other.member("count").number();
    kernels.other_ns = other.member("busy_ns").number();
    return kernels;
}

}  // namespace

Holders read_holders(const Node& node, std::size_t site_count, bool has_time) {
    Holders holders;
    holders.time_ns = has_time ? node.member("time_ns").number() : 0;
    holders.count = node.member("count").number();
    holders.bytes = node.member("bytes").number();
    node.member("sites").each([&](const Node& item) {
        Holders::Share share;
        share.site = item.member("site").index(site_count, "sites");
        share.count = item.member("count").number();
        share.bytes = item.member("bytes").number();
        if (item.optional_member("labels") != nullptr) {
            item.member("labels").each([&](const Node& label) {
                share.labels.push_back({.name = label.member("name").text(),
                                        .count = label.member("count").number(),
                                        .bytes = label.member("bytes").number()});
            });
        }
        holders.sites.push_back(std::move(share));
    });
    const Node other = node.member("other");
    holders.other_sites = other.member("sites").number();
    holders.other_count = other.member("count").number();
    holders.other_bytes = other.member("bytes").number();
    return holders;
}

CurveValues read_values(const Node& node) {
    CurveValues values;
    values.requested = node.member("requested_bytes").number();
    values.allocated = node.member("allocated_bytes").number();
    values.active = node.member("active_bytes").number();
    values.reserved = node.member("reserved_bytes").number();
    return values;
}

Device read_device(const Node& node, std::size_t site_count) {
    Device device;
    device.index = node.member("index").number();
    device.name = node.member("name").text();
    device.uuid = node.member("uuid").text();
    device.total_bytes = node.member("total_bytes").number();
    if (const JsonValue* limit = node.optional_member("limit_bytes");
        limit != nullptr && !limit->is_null()) {
        device.limit_bytes = node.member("limit_bytes").number();
    }
    device.driver_version = node.member("driver_version").number();
    device.gpu = device.index;
    if (node.optional_member("allocator") != nullptr) {
        device.allocator = node.member("allocator").text();
        device.gpu = node.member("gpu").number();
    }
    const Node curves = node.member("curves");
    for (std::size_t c = 0; c < curve_count; ++c) {
        const Node curve = curves.member(curve_names.at(c));
        const bool optional = c == static_cast<std::size_t>(Curve::device_used);
        const Node peak = curve.member("peak_bytes");
        if (optional && peak.is_null()) {
            continue;
        }
        device.curves.at(c) = CurveSummary{peak.number(), curve.member("peak_time_ns").number(),
                                           curve.member("at_end_bytes").number()};
    }
    node.member("kinds").each_member([&](const std::string& kind, const Node& totals) {
        KindTotals& out = device.kinds[kind];
        out.count = totals.member("count").number();
        out.bytes = totals.member("bytes").number();
        out.peak_bytes = totals.member("peak_bytes").number();
        out.live_count = totals.member("live_count").number();
        out.live_bytes = totals.member("live_bytes").number();
    });
    node.member("memory_stats").each_member([&](const std::string& key, const Node& value) {
        if (key == "max_split_size") {
            value.signed_number();  // PyTorch's -1: no limit
            return;
        }
        device.memory_stats[key] = value.number();
    });
    const Node fragmentation = node.member("fragmentation");
    device.fragmentation.at_peak = fragmentation.member("at_peak").ratio();
    device.fragmentation.external = fragmentation.member("external").ratio();
    device.fragmentation.internal = fragmentation.member("internal").ratio();
    device.fragmentation.largest_free_bytes = fragmentation.member("largest_free_bytes").number();
    device.fragmentation.total_free_bytes = fragmentation.member("total_free_bytes").number();
    device.timeline = read_timeline(node.member("timeline"));
    device.at_peak = read_holders(node.member("at_peak"), site_count, true);
    device.live = read_holders(node.member("live"), site_count, false);
    device.work = read_work(node);
    device.kernels_at_peak = read_kernels_at_peak(node);
    return device;
}

}  // namespace memlab::report
