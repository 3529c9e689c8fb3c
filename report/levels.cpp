#include "report/levels.hpp"

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

void choose_level(model::Report& report, Level level) {
    choose_ooms(report, level);
    const std::set<std::uint64_t> cut = gpus_with_caches(report);
    std::erase_if(report.devices, [&](const model::Device& device) {
        return level == Level::driver      ? !device.is_gpu()
               : level == Level::framework ? device.is_gpu() && cut.count(device.gpu()) != 0
                                           : false;
    });
}

}  // namespace memlab::report
