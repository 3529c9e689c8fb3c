#include "interpose/memory/memory.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <new>
#include <utility>

#include "interpose/driver/diagnostics.hpp"
#include "interpose/driver/loaded_objects.hpp"
#include "interpose/memory/caller_policy.hpp"
#include "profiler/cupti/current_call.hpp"

namespace memlab::interpose {

Memory::Memory(Settings settings, bool late)
    : settings_(std::move(settings)),
      started_late_(late),
      limits_(settings_.limits),
      contexts_(*this) {}

bool Memory::serves_recorded_cache() {
    if (recorder_ == nullptr || !settings_.pytorch_caches ||
        calling_allocator() != Allocator::pytorch) {
        return false;
    }
    if (!pytorch_tells_of_blocks()) {
        pytorch_not_read(PytorchFeature::tensors, "libc10_cuda.so",
                         "it does not call c10::reportMemoryUsageToProfiler");
        return false;
    }
    return !leaves_out(PytorchFeature::tensors);
}

std::uint32_t Memory::segment_of_pytorch(trace::MemoryKind kind) {
    // Between its segments PyTorch's cache reports at least one block; without it there is none. An
    // expandable segment takes many handles for one block.
    constexpr std::uint32_t segments_without_a_report = 3;
    if (kind != trace::MemoryKind::vmm && !pytorch_reported_.load(std::memory_order_relaxed) &&
        pytorch_segments_.fetch_add(1, std::memory_order_relaxed) >= segments_without_a_report &&
        std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") == nullptr) {
        pytorch_not_read(PytorchFeature::tensors, "libc10_cuda.so", "no block is reported");
    }
    return recorder_->string_id(Suballocators::pytorch);
}

void Memory::pytorch_not_read(PytorchFeature feature, const char* library,
                              const char* why) noexcept {
    const std::uint32_t bit = 1U << static_cast<unsigned>(feature);
    if (leaves_out(feature) ||
        (pytorch_left_out_.fetch_or(bit, std::memory_order_relaxed) & bit) != 0) {
        return;
    }
    try {
        if (recorder_) {
            const std::string version = pytorch_version_of(loaded_object_path(library));
            recorder_->report_limitation(interpose::pytorch_not_read(version, feature, why), 0);
        }
    } catch (const std::bad_alloc&) {  // out of memory: drop the message
    }
}

namespace {

void note_unpooled(profiler::Recorder& recorder, const std::string& why, trace::Figures figures) {
    if (figures == trace::Figures::complete) {
        recorder.report_limitation(why, 0);
    } else {
        recorder.report_missed(why, 0);
    }
}

}  // namespace

void Memory::disable_pooling(const char* why, trace::Figures figures) noexcept {
    if (!pooling_.exchange(false, std::memory_order_relaxed)) {
        return;
    }
    try {
        warn(std::string(why) + "; new memory now comes from the driver");
        if (recorder_) {
            note_unpooled(*recorder_, std::string(why) + "; memory allocated since was not pooled",
                          figures);
        }
    } catch (const std::bad_alloc&) {  // out of memory: drop the message
    }
}

void Memory::disable_pooling_quietly(const char* why, trace::Figures figures) {
    if (pooling_.exchange(false, std::memory_order_relaxed)) {
        debug(why);
        if (recorder_) {
            note_unpooled(*recorder_, why, figures);
        }
    }
}

void Memory::wake_trimmer() noexcept {
    if (trimmer_sleeps_.exchange(0) != 0) {
        const int saved = errno;
        syscall(SYS_futex, &trimmer_sleeps_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
        errno = saved;
    }
}

void Memory::sleep_until_unused(FunctionRef<bool()> awaited) {
    trimmer_sleeps_.store(1);
    while (trimmer_sleeps_.load() != 0 && !awaited()) {
        syscall(SYS_futex, &trimmer_sleeps_, FUTEX_WAIT_PRIVATE, 1, nullptr, nullptr, 0);
    }
    trimmer_sleeps_.store(0);
}

void Memory::report_exporting_code() noexcept {
    if (exporting_code_.load(std::memory_order_relaxed) ||
        exporting_code_.exchange(true, std::memory_order_relaxed)) {
        return;
    }
    try {
        if (recorder_) {
            recorder_->report_limitation(
                "memory of programs and libraries that refer to cudaIpcGetMemHandle was not "
                "pooled, so that its handles are exact (MEMLAB_IPC=off pools it)",
                0);
        }
    } catch (const std::bad_alloc&) {  // out of memory: drop the message
    }
}

[[gnu::hot]] std::uint32_t Memory::api_id(Api api) {
    if (!recorder_ || api == Api::none) {
        return 0;
    }
    if (const std::uint32_t outer = profiler::cupti::current_call().api) {
        return outer;
    }
    std::atomic<std::uint32_t>& cached = api_ids_[static_cast<std::size_t>(api)];
    std::uint32_t id = cached.load(std::memory_order_relaxed);
    if (id == 0) {
        id = recorder_->string_id(function_name(api));
        cached.store(id, std::memory_order_relaxed);
    }
    return id;
}

}  // namespace memlab::interpose
