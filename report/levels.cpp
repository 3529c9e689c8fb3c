#include "report/levels.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "report/device_label.hpp"
#include "trace/record.hpp"

namespace memlab::report {

namespace {

/// The GPUs whose memory a framework's cache was seen to cut.
std::set<std::uint64_t> gpus_with_caches(const model::Report& report) {
    std::set<std::uint64_t> gpus;
    for (const model::Device& device : report.devices) {
        if (!device.is_gpu() && device.used()) {
            gpus.insert(device.gpu());
        }
    }
    return gpus;
}

}  // namespace

// A framework's failure shows once: the attempts of its cache to grow, right before it in the same
// thread, are the driver's.
void choose_ooms(model::Report& report, Level level) {
    const std::set<std::uint64_t> cut = gpus_with_caches(report);
    constexpr std::uint64_t gpus = trace::DeviceInfo::max_gpus;
    const auto is_gpu = [](const model::Oom& oom) { return oom.device < gpus; };
    const auto is_attempt = [&](const model::Oom& oom, const model::Oom& failure) {
        return is_gpu(oom) && oom.thread == failure.thread && is_on(failure.device, oom.device) &&
               oom.requested_bytes >= failure.requested_bytes;
    };
    std::vector<bool> dropped(report.ooms.size());
    for (std::size_t i = 0; i < report.ooms.size(); ++i) {
        const model::Oom& oom = report.ooms[i];
        if (is_gpu(oom)) {
            dropped[i] = level == Level::framework && cut.count(oom.device) != 0;
            continue;
        }
        dropped[i] = level == Level::driver;
        for (std::size_t before = i; level == Level::all && before-- > 0;) {
            if (report.ooms[before].thread != oom.thread) {
                continue;
            }
            if (!is_attempt(report.ooms[before], oom)) {
                break;
            }
            dropped[before] = true;
        }
    }
    std::size_t at = 0;
    report.oom_count -=
        std::erase_if(report.ooms, [&](const model::Oom&) { return dropped[at++]; });
}

ChosenOoms::ChosenOoms(const model::Report& report)
    : listed_until_ns_(report.oom_count > report.ooms.size() && !report.ooms.empty()
                           ? report.ooms.back().time_ns
                           : std::numeric_limits<std::uint64_t>::max()) {
    for (const model::Oom& oom : report.ooms) {
        listed_.insert({oom.time_ns, oom.device, oom.requested_bytes});
    }
}

bool ChosenOoms::has(std::uint64_t time_ns, std::uint64_t device,
                     std::uint64_t requested_bytes) const {
    return time_ns > listed_until_ns_ || listed_.contains({time_ns, device, requested_bytes});
}

DevicesAt::DevicesAt(const model::Report& report, Level level)
    : level_(level), cut_(gpus_with_caches(report)) {
    for (const model::Device& device : report.devices) {
        if (!device.is_gpu()) {
            caches_.insert(device.index);
        }
    }
}

bool DevicesAt::has(const model::Device& device) const {
    return has(device.index);
}

bool DevicesAt::has(std::uint64_t index) const {
    const bool is_cache = caches_.contains(index);
    return level_ == Level::driver      ? !is_cache
           : level_ == Level::framework ? is_cache || !cut_.contains(index)
                                        : true;
}

bool is_seen_inside(const model::Report& report) {
    const std::set<std::uint64_t> cut = gpus_with_caches(report);
    return !cut.empty() &&
           std::all_of(report.devices.begin(), report.devices.end(),
                       [&](const model::Device& device) {
                           return !device.is_gpu() || cut.contains(device.index) ||
                                  device.curve(model::Curve::reserved).peak_bytes == 0;
                       });
}

void choose_level(model::Report& report, Level level) {
    choose_ooms(report, level);
    const DevicesAt chosen(report, level);
    std::erase_if(report.devices, [&](const model::Device& device) { return !chosen.has(device); });
}

}  // namespace memlab::report
