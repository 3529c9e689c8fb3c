// The name of a device in all outputs, and the GPU that it belongs to.
#pragma once

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
