#include "interpose/memory/pitch.hpp"

#include <atomic>
#include <limits>

#include "interpose/driver/driver.hpp"
#include "interpose/memory/memory.hpp"
#include "trace/record.hpp"

namespace memlab::interpose {
namespace {

constexpr int max_devices = trace::DeviceInfo::max_gpus;
constexpr std::size_t max_width = std::size_t{1} << 31;

// The driver rounds the width up to the device's texture alignment, whatever the element size.
// Undocumented, but true on every device measured; the conformance programs compare pitches with
// and without memlab on each GPU.
std::size_t pitch_quantum(CUdevice device) {
    static std::atomic<int> quanta[max_devices];
    if (device < 0 || device >= max_devices) {
        return 0;
    }
    int quantum = quanta[device].load(std::memory_order_relaxed);
    if (quantum == 0) {
        if (call_real(&Driver::cuDeviceGetAttribute, &quantum,
                      CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device) != CUDA_SUCCESS ||
            quantum <= 0) {
            return 0;
        }
        quanta[device].store(quantum, std::memory_order_relaxed);
    }
    return static_cast<std::size_t>(quantum);
}

}  // namespace

bool pitched_size(Memory& memory, std::size_t width, std::size_t height, unsigned element_size,
                  std::size_t* pitch, std::size_t* bytes) {
    const bool sound = element_size == 4 || element_size == 8 || element_size == 16;
    if (width == 0 || height == 0 || width > max_width || !sound) {
        return false;
    }
    const Context* context = memory.contexts().current();
    const std::size_t quantum = context == nullptr ? 0 : pitch_quantum(context->device());
    if (quantum == 0) {
        return false;
    }
    *pitch = (width + quantum - 1) / quantum * quantum;
    if (height > std::numeric_limits<std::size_t>::max() / *pitch) {
        return false;
    }
    *bytes = *pitch * height;
    return true;
}

}  // namespace memlab::interpose
