// Pinned host memory: served by the driver, recorded by memlab.
#include "interpose/hooks/hook.hpp"
#include "interpose/memory/device_memory.hpp"

namespace mi = memlab::interpose;
using mi::HandleClass;
using mi::Session;

namespace {

std::uint64_t to_integer(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
}

mi::DriverAllocation pinned(std::size_t bytes) {
    mi::DriverAllocation allocation;
    allocation.kind = memlab::trace::MemoryKind::pinned;
    allocation.requested = bytes;
    return allocation;
}

constexpr auto allocate_pinned = [](mi::Hooked hooked, const auto& real, void** address,
                                    std::size_t bytes, auto...) {
    return mi::hook(
        [&](Session& session) {
            return mi::allocate_from_driver(session, hooked.api, pinned(bytes), real,
                                            [&] { return to_integer(*address); });
        },
        real);
};

constexpr auto register_host = [](mi::Hooked hooked, const auto& real, void* address,
                                  std::size_t bytes, unsigned) {
    return mi::hook(
        [&](Session& session) {
            return mi::allocate_from_driver(session, hooked.api, pinned(bytes), real,
                                            [&] { return to_integer(address); });
        },
        real);
};

constexpr auto free_pinned = [](mi::Hooked hooked, const auto& real, const void* address) {
    return mi::hook(
        [&](Session& session) {
            return mi::free_from_driver(session, hooked.api, HandleClass::memory,
                                        to_integer(address), real);
        },
        real);
};

[[gnu::used]] void export_host_functions() {
    MEMLAB_EXPORT_HOOK(cuMemAllocHost, allocate_pinned);
    MEMLAB_EXPORT_HOOK(cuMemAllocHost_v2, allocate_pinned);
    MEMLAB_EXPORT_HOOK(cuMemHostAlloc, allocate_pinned);
    MEMLAB_EXPORT_HOOK(cuMemFreeHost, free_pinned);
    MEMLAB_EXPORT_HOOK(cuMemHostRegister, register_host);
    MEMLAB_EXPORT_HOOK(cuMemHostRegister_v2, register_host);
    MEMLAB_EXPORT_HOOK(cuMemHostUnregister, free_pinned);
}

}  // namespace
