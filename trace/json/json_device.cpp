// The JSON of one device of a report.
#include "trace/json/json_members.hpp"

#include <algorithm>

#include "trace/aggregate/memory_stat_keys.hpp"

namespace memlab::report {
namespace {

using trace::Aggregator;
using trace::CurveName;
using trace::DeviceTotals;
using trace::MemoryStats;
using trace::Timeline;

constexpr CurveName curve_names[] = {CurveName::requested, CurveName::allocated, CurveName::active,
                                     CurveName::reserved, CurveName::device_used};
constexpr std::size_t max_holders = 256;
constexpr std::size_t max_kernels = 64;

/// A short string without heap allocation.
class ShortName {
  public:
    ShortName& operator<<(std::string_view text) {
        for (const char c : text) {
            if (size_ < sizeof text_) {
                text_[size_++] = c;
            }
        }
        return *this;
    }
    explicit operator std::string_view() const { return {text_, size_}; }

  private:
    char text_[64];
    std::size_t size_ = 0;
};

std::string_view view(const ShortName& name) {
    return static_cast<std::string_view>(name);
}

void curves(JsonOutput& json, const DeviceTotals& device) {
    json.key("curves");
    json.begin_object();
    for (const CurveName name : curve_names) {
        const trace::Curve& curve = device.curve(name);
        json.key(trace::name_of(name));
        json.begin_object();
        if (name == CurveName::device_used && !device.sampled) {
            for (const char* member : {"peak_bytes", "peak_time_ns", "at_end_bytes"}) {
                json.key(member);
                json.null();
            }
        } else {
            json.member("peak_bytes", curve.peak);
            json.member("peak_time_ns", curve.peak_time_ns);
            json.member("at_end_bytes", curve.current);
        }
        json.end_object();
    }
    json.end_object();
}

void kinds(JsonOutput& json, const DeviceTotals& device) {
    json.key("kinds");
    json.begin_object();
    for (std::size_t i = 0; i < device.kinds.size(); ++i) {
        const trace::KindTotals& kind = device.kinds[i];
        if (kind.count == 0) {
            continue;
        }
        json.key(trace::name_of(static_cast<trace::MemoryKind>(i)));
        json.begin_object();
        json.member("count", kind.count);
        json.member("bytes", kind.bytes);
        json.member("peak_bytes", kind.peak_bytes);
        json.member("live_count", kind.live_count);
        json.member("live_bytes", kind.live_bytes);
        json.end_object();
    }
    json.end_object();
}

/// Of an allocator of the program's only what it told.
bool is_told(std::string_view name, std::string_view pool) {
    return pool == ".all"
               ? name == "allocation" || name == "allocated_bytes" || name == "reserved_bytes"
               : name == "num_ooms";
}

void memory_stats(JsonOutput& json, const DeviceTotals& device) {
    const MemoryStats& stats = device.pool.stats;
    json.key("memory_stats");
    json.begin_object();
    const bool all = device.info.is_gpu();
    bool split_size_written = !all;
    trace::visit_memory_stats(stats, [&](std::string_view name, std::string_view pool,
                                         std::string_view figure, std::uint64_t value) {
        if (!all && !is_told(name, pool)) {
            return;
        }
        if (!split_size_written && name > "max_split_size") {
            json.member("max_split_size", stats.max_split_size);
            split_size_written = true;
        }
        json.member(view(ShortName() << name << pool << figure), value);
    });
    json.end_object();
}

/// 1 - part / whole.
void ratio(JsonOutput& json, std::string_view name, std::uint64_t part, std::uint64_t whole) {
    json.key(name);
    if (whole == 0) {
        json.null();
        return;
    }
    const std::uint64_t missing = whole - std::min(part, whole);
    json.number(static_cast<double>(missing) / static_cast<double>(whole));
}

void fragmentation(JsonOutput& json, const DeviceTotals& device) {
    const trace::Fragmentation& figures = device.fragmentation;
    json.key("fragmentation");
    json.begin_object();
    ratio(json, "at_peak", figures.peak_active, figures.peak_reserved);
    ratio(json, "external", figures.largest_free, figures.total_free);
    // An allocator of the program's does not tell what was asked for.
    ratio(json, "internal", figures.requested_at_peak,
          device.info.is_gpu() ? figures.allocated_at_peak : 0);
    json.member("largest_free_bytes", figures.largest_free);
    json.member("total_free_bytes", figures.total_free);
    json.end_object();
}

void timeline(JsonOutput& json, const Timeline& timeline) {
    json.key("timeline");
    json.begin_object();
    json.member("start_ns", timeline.start_ns());
    json.member("bucket_ns", timeline.bucket_ns());
    json.key("columns");
    json.begin_array();
    json.string("bucket");
    for (const CurveName name : curve_names) {
        for (const char* suffix : {"_min", "_max", "_last"}) {
            json.string(view(ShortName() << trace::name_of(name) << suffix));
        }
    }
    json.end_array();
    json.key("rows");
    json.begin_array();
    std::uint64_t index = 0;
    for (const Timeline::Bucket& bucket : timeline.buckets()) {
        if (bucket.used) {
            json.new_line();
            json.begin_array();
            json.number(index);
            for (std::size_t curve = 0; curve < trace::curve_count; ++curve) {
                for (const std::uint64_t value :
                     {bucket.min[curve], bucket.max[curve], bucket.last[curve]}) {
                    if (value == Timeline::unknown) {
                        json.null();
                    } else {
                        json.number(value);
                    }
                }
            }
            json.end_array();
        }
        ++index;
    }
    json.end_array();
    json.end_object();
}

/// If there are records of work: `work`, and the kernels at the allocated peak.
void work(JsonOutput& json, const Aggregator& from, const DeviceTotals& device) {
    const auto has_work = [](const trace::WorkTotals& totals) { return totals.count != 0; };
    if (std::none_of(device.work.begin(), device.work.end(), has_work)) {
        return;
    }
    json.new_line();
    json.key("work");
    json.begin_object();
    for (int kind = 0; kind < trace::work_kind_count; ++kind) {
        const trace::WorkTotals& totals = device.work[static_cast<std::size_t>(kind)];
        json.key(trace::name_of(static_cast<trace::WorkKind>(kind)));
        json.begin_object();
        json.member("count", totals.count);
        json.member("busy_ns", totals.busy_ns);
        json.member("bytes", totals.bytes);
        json.end_object();
    }
    json.end_object();
    const std::uint64_t begin = device.curve(CurveName::allocated).peak_time_ns;
    const std::vector<trace::KernelAtPeak> kernels = from.kernels_at_peak(device.info.index);
    json.new_line();
    json.key("kernels_at_peak");
    json.begin_object();
    json.member("from_ns", begin);
    json.member("to_ns", std::min(device.peak_moment.end_ns(begin), from.duration_ns()));
    json.key("kernels");
    json.begin_array();
    std::uint64_t other_names = 0;
    std::uint64_t other_count = 0;
    std::uint64_t other_ns = 0;
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        const trace::KernelAtPeak& kernel = kernels[i];
        if (i >= max_kernels) {
            ++other_names;
            other_count += kernel.count;
            other_ns += kernel.busy_ns;
            continue;
        }
        json.begin_object();
        json.member("name", from.string(kernel.name));
        json.member("count", kernel.count);
        json.member("busy_ns", kernel.busy_ns);
        json.end_object();
    }
    json.end_array();
    json.key("other");
    json.begin_object();
    json.member("names", other_names);
    json.member("count", other_count);
    json.member("busy_ns", other_ns);
    json.end_object();
    json.end_object();
}

}  // namespace

void write_device(JsonOutput& json, const Aggregator& from, const DeviceTotals& device) {
    json.begin_object();
    json.member("index", device.info.index);
    json.member("name", device.info.name);
    json.member("uuid", device.info.uuid);
    json.member("total_bytes", device.info.total_bytes);
    write_limit(json, device.info.limit_bytes);
    json.member("driver_version", device.info.driver_version);
    if (!device.info.is_gpu()) {
        json.member("allocator", device.info.allocator);
        json.member("gpu", device.info.gpu);
    }
    json.new_line();
    curves(json, device);
    json.new_line();
    kinds(json, device);
    json.new_line();
    memory_stats(json, device);
    json.new_line();
    fragmentation(json, device);
    json.new_line();
    timeline(json, device.timeline);
    json.new_line();
    json.key("at_peak");
    json.begin_object();
    json.member("time_ns", device.curve(CurveName::allocated).peak_time_ns);
    write_composition(json, from.composition_at_peak(device.info.index, max_holders));
    json.end_object();
    json.new_line();
    json.key("live");
    json.begin_object();
    write_composition(json, from.composition_now(device.info.index, max_holders));
    json.end_object();
    work(json, from, device);
    json.end_object();
}

}  // namespace memlab::report
