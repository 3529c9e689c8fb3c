// The curves of a page: envelopes, the same at several widths, so that any stretch is drawn at
// once.
#include <algorithm>
#include <string>
#include <vector>

#include "report/device_label.hpp"
#include "report/html/page_output.hpp"

namespace memlab::report {

namespace {

/// Each level has a quarter of the buckets of the one before it.
constexpr std::size_t level_step = 4;
constexpr std::size_t least_buckets = 256;

struct Resolution {
    std::uint64_t bucket_ns = 0;
    std::vector<History::Bucket> buckets;
};

std::vector<History::Bucket> coarser(const std::vector<History::Bucket>& buckets) {
    std::vector<History::Bucket> merged;
    for (std::size_t i = 0; i < buckets.size(); ++i) {
        const History::Bucket& bucket = buckets[i];
        if (i % level_step == 0) {
            merged.push_back(bucket);
            continue;
        }
        History::Bucket& into = merged.back();
        for (std::size_t curve = 0; curve < model::curve_count; ++curve) {
            into.min[curve] = std::min(into.min[curve], bucket.min[curve]);
            into.max[curve] = std::max(into.max[curve] + 1, bucket.max[curve] + 1) - 1;
        }
        into.last = bucket.last;
    }
    return merged;
}

std::vector<Resolution> levels_of(const History::Curves& curves) {
    std::vector<Resolution> levels{{curves.bucket_ns, curves.buckets}};
    while (levels.back().buckets.size() >= level_step * least_buckets) {
        levels.push_back({levels.back().bucket_ns * level_step, coarser(levels.back().buckets)});
    }
    return levels;
}

void write_values(const char* name, const std::vector<History::Bucket>& buckets,
                  History::Bucket::Values History::Bucket::*values, std::size_t curve,
                  PageOutput& json) {
    json.key(name);
    json.begin_array();
    for (const History::Bucket& bucket : buckets) {
        const std::uint64_t value = (bucket.*values)[curve];
        if (value == model::TimelineRow::unknown) {
            json.null();
        } else {
            json.limited(value);
        }
    }
    json.end_array();
}

void write_curve(const model::Device& device, std::size_t curve,
                 const std::vector<Resolution>& levels, bool exact, PageOutput& json) {
    const bool sampled = model::may_be_unknown(curve);
    json.new_line();
    json.begin_object();
    json.member("name", device_label(device) + ": " +
                            (sampled ? std::string("used on the device, sampled")
                                     : std::string(model::curve_names.at(curve))));
    json.limited_member("device", device.index);
    json.member("kind", model::curve_names.at(curve));
    json.member("unit", "bytes");
    json.member("default_on", curve == static_cast<std::size_t>(model::Curve::allocated) ||
                                  curve == static_cast<std::size_t>(model::Curve::reserved));
    json.member("exact", !sampled && exact);
    json.key("levels");
    json.begin_array();
    for (const Resolution& level : levels) {
        json.begin_object();
        json.limited_member("bucket_ns", level.bucket_ns);
        write_values("min", level.buckets, &History::Bucket::min, curve, json);
        write_values("max", level.buckets, &History::Bucket::max, curve, json);
        write_values("last", level.buckets, &History::Bucket::last, curve, json);
        json.end_object();
    }
    json.end_array();
    json.end_object();
}

}  // namespace

void write_page_curves(const History& history, PageOutput& json) {
    json.key("curves");
    json.begin_array();
    for (const History::Curves& curves : history.curves) {
        const std::vector<Resolution> levels = levels_of(curves);
        for (std::size_t curve = 0; curve < model::curve_count; ++curve) {
            if (curves.buckets.back().last[curve] != model::TimelineRow::unknown) {
                write_curve(*curves.device, curve, levels, curves.exact, json);
            }
        }
    }
    json.end_array();
}

}  // namespace memlab::report
