#include "interpose/free_caller.hpp"

#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>

#include "interpose/object_classes.hpp"
#include "profiler/stack_capture.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint8_t plumbing = 1;     // the CUDA runtime and driver
constexpr std::uint8_t independent = 2;  // does not rely on the wait
constexpr std::uint8_t other = 3;

std::uint8_t classify(std::string_view path) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    if (name.starts_with("libcudart.so") || name.starts_with("libcuda.so")) {
        return plumbing;
    }
    return name.starts_with("libc10_cuda.so") ? independent : other;
}

// cudaFree is a few frames inside the runtime before it reaches the driver.
constexpr std::size_t looked_at = 16;

constinit ObjectClasses classes;

}  // namespace

bool caller_relies_on_host_wait() {
    profiler::CapturedStack stack;
    profiler::capture_stack(stack, looked_at);
    try {
        for (std::size_t i = 0; i < stack.depth; ++i) {
            const std::uint8_t kind = classes.of(stack.addresses[i], classify);
            if (kind != plumbing) {
                return kind != independent;
            }
        }
    } catch (const std::bad_alloc&) {  // the careful answer
    }
    return true;
}

}  // namespace memlab::interpose
