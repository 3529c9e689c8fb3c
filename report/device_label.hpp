// The name of a device in all outputs, and the GPU that it belongs to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "model/report.hpp"
#include "trace/record.hpp"

namespace memlab::report {

/// Whether the device of this index is the wanted one, or an allocator's on the wanted GPU.
inline bool is_on(std::uint64_t index, std::uint64_t wanted) {
    return index == wanted || index % trace::DeviceInfo::max_gpus == wanted;
}

/// "GPU 0"; "PyTorch on GPU 0"
inline std::string device_label(const model::Device& device) {
    return (device.is_gpu() ? "GPU " : device.allocator + " on GPU ") +
           std::to_string(device.gpu());
}

/// "PyTorch's cache"; of an allocator of the program's own its name.
inline std::string cache_name(const model::Device& device) {
    return device.allocator + (device.is_pytorchs() ? "'s cache" : "");
}

/// What the program gets from such a cache.
inline std::string block_name(const model::Report& report, std::uint64_t index) {
    for (const model::Device& device : report.devices) {
        if (device.index == index && device.is_pytorchs()) {
            return "tensor";
        }
    }
    return "block";
}

/// "managed memory", "pinned host memory": a kind that a device's curves do not include.
inline std::string kind_label(const std::string& kind) {
    return kind == "pinned"       ? "pinned host memory"
           : kind == "ipc_import" ? "memory of other processes"
                                  : kind + " memory";
}

/// "GPU 0: managed memory"
inline std::string kind_label(const model::Device& device, const std::string& kind) {
    return device_label(device) + ": " + kind_label(kind);
}

/// True where a program has nothing on the device but memory that its curves do not include.
inline bool is_outside_curves_only(const model::Device& device) {
    return device.kind_curves && device.curve(model::Curve::allocated).peak_bytes == 0 &&
           device.curve(model::Curve::reserved).peak_bytes == 0;
}

/// False for a kind outside the curves whose peak is below a hundredth of the device's allocated
/// peak: a few bytes that a library pins are no news.
inline bool is_worth_telling(const model::Device& device, std::uint64_t peak_bytes) {
    return peak_bytes >= device.curve(model::Curve::allocated).peak_bytes / 100;
}

/// Whether memory of a framework's cache was recorded, at whatever level the report is shown.
inline bool has_framework_memory(const model::Report& report) {
    return std::any_of(report.sites.begin(), report.sites.end(), [](const model::Site& site) {
        return site.device >= trace::DeviceInfo::max_gpus;
    });
}

/// device_label() of the device of this index.
inline std::string label_of(const model::Report& report, std::uint64_t index) {
    for (const model::Device& device : report.devices) {
        if (device.index == index) {
            return device_label(device);
        }
    }
    return "GPU " + std::to_string(index);
}

}  // namespace memlab::report
