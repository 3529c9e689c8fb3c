// Interposes the functions by which PyTorch's caching allocator reports each block that it hands
// out or takes back, and each failure. libc10_cuda.so calls these functions of libc10.so whether or
// not a profiler runs (c10/core/Allocator.h), so a preloaded library's are called instead; they
// record the block and call the real ones.
//
// PyTorch calls them under its allocator's lock.
#include <cstddef>
#include <cstdint>

#include "interpose/driver/loaded_objects.hpp"
#include "interpose/hooks/autograd.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/hooks/pytorch_checks.hpp"
#include "interpose/memory/caller_policy.hpp"
#include "interpose/memory/suballocations.hpp"
#include "profiler/unwind/unloads.hpp"

namespace mi = memlab::interpose;

namespace c10 {

/// c10::Device, passed as two bytes in a register.
struct Device {
    std::int8_t type;
    std::int8_t index;
};

}  // namespace c10

namespace {

constexpr std::int8_t cuda_type = 1;  // c10::DeviceType::CUDA

constinit mi::ReportCheck check;

/// A function of libc10.so. Found without the loader's lock, which a thread that waits for this one
/// may hold; again after libraries were unloaded.
template <typename Function>
class RealFunction {
  public:
    constexpr explicit RealFunction(const char* name) : name_(name) {}

    Function* get() {
        return found_.get([this] {
            Function* found = nullptr;
            mi::find_loaded_symbols("libc10.so", [&](const memlab::profiler::ObjectSymbols& in) {
                found = reinterpret_cast<Function*>(in.find(name_));
                return found != nullptr;
            });
            return found;
        });
    }

  private:
    const char* const name_;
    memlab::profiler::unwind::FoundUntilUnload<Function*> found_;
};

/// Runs `work(session)` for a CUDA device. Out of host memory it is skipped; the next block that is
/// recorded makes up for it, by the reserved bytes that PyTorch passes with each.
template <class Work>
void record_on(c10::Device device, const Work& work) noexcept {
    if (device.type == cuda_type) {
        (void)mi::in_session([&](mi::Session& session) {
            work(session);
            return true;
        });
    }
}

/// Checks the first reports; of what is not as expected nothing more is recorded.
[[gnu::always_inline]] inline bool believes(mi::Session& session, const mi::BlockReport& report) {
    const auto is_memory = [&session](int gpu, std::uint64_t address, std::uint64_t bytes) {
        session.pytorch_reported();
        return mi::is_memory_of(session, gpu, address, bytes);
    };
    if (check.believes(report, is_memory)) [[likely]] {
        return true;
    }
    session.pytorch_not_read(mi::PytorchFeature::tensors, "libc10_cuda.so",
                             mi::pytorch_layout_unknown);
    return false;
}

template <typename Size>
void tell_memory(RealFunction<void(void*, std::int64_t, Size, Size, c10::Device)>& real,
                 void* pointer, std::int64_t bytes, Size allocated, Size reserved,
                 c10::Device device) {
    record_on(device, [&](mi::Session& session) {
        const auto address = reinterpret_cast<std::uintptr_t>(pointer);
        const mi::BlockReport report{device.index, address, bytes,
                                     static_cast<std::uint64_t>(allocated),
                                     static_cast<std::uint64_t>(reserved)};
        if (session.recorder() == nullptr || !believes(session, report)) {
            return;
        }
        if (bytes > 0) {
            mi::allocated_by_pytorch(mi::record_suballocation(
                session, device.index, address, static_cast<std::uint64_t>(bytes),
                static_cast<std::uint64_t>(reserved), mi::backwards_origin));
        } else if (bytes < 0) {
            mi::record_suballocation_freed(session, device.index, address,
                                           0 - static_cast<std::uint64_t>(bytes));
        }
    });
    if (auto* const function = real.get()) {
        function(pointer, bytes, allocated, reserved, device);
    }
}

template <typename Size>
void tell_out_of_memory(RealFunction<void(std::int64_t, Size, Size, c10::Device)>& real,
                        std::int64_t bytes, Size allocated, Size reserved, c10::Device device) {
    record_on(device, [&](mi::Session& session) {
        if (!mi::ReportCheck::is_possible_failure(device.index, bytes,
                                                  static_cast<std::uint64_t>(allocated),
                                                  static_cast<std::uint64_t>(reserved))) {
            session.pytorch_not_read(mi::PytorchFeature::out_of_memory, "libc10_cuda.so",
                                     mi::pytorch_layout_unknown);
        }
        if (session.leaves_out(mi::PytorchFeature::out_of_memory) ||
            session.leaves_out(mi::PytorchFeature::tensors)) {
            return;
        }
        mi::record_suballocator_oom(session, device.index, static_cast<std::uint64_t>(bytes),
                                    mi::backwards_origin);
    });
    if (auto* const function = real.get()) {
        function(bytes, allocated, reserved, device);
    }
}

template <typename Size>
using MemoryUsage = RealFunction<void(void*, std::int64_t, Size, Size, c10::Device)>;
template <typename Size>
using OutOfMemory = RealFunction<void(std::int64_t, Size, Size, c10::Device)>;

constinit MemoryUsage<std::size_t> real_memory_usage(mi::pytorch_memory_usage);
constinit MemoryUsage<std::int64_t> real_signed_memory_usage(mi::pytorch_signed_memory_usage);
constinit OutOfMemory<std::size_t> real_out_of_memory(mi::pytorch_out_of_memory);
constinit OutOfMemory<std::int64_t> real_signed_out_of_memory(mi::pytorch_signed_out_of_memory);

}  // namespace

namespace c10 {

#define MEMLAB_C10 __attribute__((visibility("default")))

[[gnu::hot]] MEMLAB_C10 void reportMemoryUsageToProfiler(void* pointer, std::int64_t bytes,
                                                         std::size_t allocated,
                                                         std::size_t reserved, Device device) {
    tell_memory(real_memory_usage, pointer, bytes, allocated, reserved, device);
}

/// As PyTorch has it before 2.3.
[[gnu::hot]] MEMLAB_C10 void reportMemoryUsageToProfiler(void* pointer, std::int64_t bytes,
                                                         std::int64_t allocated,
                                                         std::int64_t reserved, Device device) {
    tell_memory(real_signed_memory_usage, pointer, bytes, allocated, reserved, device);
}

MEMLAB_C10 void reportOutOfMemoryToProfiler(std::int64_t bytes, std::size_t allocated,
                                            std::size_t reserved, Device device) {
    tell_out_of_memory(real_out_of_memory, bytes, allocated, reserved, device);
}

MEMLAB_C10 void reportOutOfMemoryToProfiler(std::int64_t bytes, std::int64_t allocated,
                                            std::int64_t reserved, Device device) {
    tell_out_of_memory(real_signed_out_of_memory, bytes, allocated, reserved, device);
}

}  // namespace c10
