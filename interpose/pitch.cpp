#include "interpose/pitch.hpp"

#include <atomic>
#include <limits>

#include "interpose/driver.hpp"
#include "interpose/session.hpp"

namespace memlab::interpose {
namespace {

constexpr int max_devices = 64;
constexpr std::size_t max_width = std::size_t{1} << 31;

// The pitch is the width rounded up to a quantum. The driver's documentation promises an alignment
// but not the rule, so it is asked with two widths: one byte, and one byte more than what that
// gave. A driver that does not simply round up keeps its own pitched allocations.
std::size_t ask_quantum(unsigned element_size) {
    std::size_t pitches[2] = {};
    for (int i = 0; i < 2; ++i) {
        CUdeviceptr probe = 0;
        const std::size_t width = i == 0 ? 1 : pitches[0] + 1;
        if (call_real(&Driver::cuMemAllocPitch_v2, &probe, &pitches[i], width, std::size_t{1},
                      element_size) != CUDA_SUCCESS) {
            return 0;
        }
        call_real(&Driver::cuMemFree_v2, probe);
    }
    const std::size_t quantum = pitches[0];
    return quantum != 0 && pitches[1] == 2 * quantum ? quantum : 0;
}

int index_of(unsigned element_size) {
    return element_size == 4 ? 0 : element_size == 8 ? 1 : element_size == 16 ? 2 : -1;
}

}  // namespace

bool pitched_size(Session& session, std::size_t width, std::size_t height, unsigned element_size,
                  std::size_t* pitch, std::size_t* bytes) {
    static std::atomic<std::size_t> quanta[max_devices][3];
    const int index = index_of(element_size);
    if (width == 0 || height == 0 || width > max_width || index < 0) {
        return false;
    }
    const CaptureGate::Shared gate(session.captures());
    if (gate.capturing()) {
        return false;
    }
    const Context* context = session.contexts().current();
    if (context == nullptr || context->device() < 0 || context->device() >= max_devices) {
        return false;
    }
    std::atomic<std::size_t>& cached = quanta[context->device()][index];
    std::size_t quantum = cached.load(std::memory_order_relaxed);
    if (quantum == 0) {
        quantum = ask_quantum(element_size);
        cached.store(quantum, std::memory_order_relaxed);
    }
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
