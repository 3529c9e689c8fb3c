#include "interpose/memory/graph_memory.hpp"

#include <vector>

#include "interpose/memory/device_memory.hpp"

namespace memlab::interpose {

void GraphMemory::add(CUgraph graph, std::uint64_t address) {
    const threads::LockGuard lock(mutex_);
    if (owners_[graph].insert(address).second) {
        ++references_[address];
    }
}

void GraphMemory::share(const void* from, const void* made) {
    const threads::LockGuard lock(mutex_);
    const auto it = owners_.find(from);
    if (it == owners_.end() || from == made) {
        return;
    }
    const Addresses addresses = it->second;
    for (const std::uint64_t address : addresses) {
        if (owners_[made].insert(address).second) {
            ++references_[address];
        }
    }
}

void GraphMemory::destroyed(Memory& memory, Api api, const void* graph) {
    std::vector<std::uint64_t> freed;
    {
        const threads::LockGuard lock(mutex_);
        const auto it = owners_.find(graph);
        if (it == owners_.end()) {
            return;
        }
        for (const std::uint64_t address : it->second) {
            const auto count = references_.find(address);
            if (--count->second == 0) {
                references_.erase(count);
                freed.push_back(address);
            }
        }
        owners_.erase(it);
    }
    for (const std::uint64_t address : freed) {
        // The program may have freed it already, or the address may have been reused.
        const auto live = memory.live().find(HandleClass::memory, address);
        if (live && live->kind == trace::MemoryKind::graph) {
            record_driver_free(memory, api, HandleClass::memory, address);
        }
    }
}

GraphMemory& graph_memory() {
    static auto* const instance = new GraphMemory;
    return *instance;
}

[[gnu::hot]] CUgraph capturing_graph(Memory& memory, CUstream stream, bool per_thread) {
    if (!memory.captures().capturing()) {
        return nullptr;
    }
    const Driver* real = driver();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUgraph graph = nullptr;
    const CUstream queried = stream == nullptr && per_thread ? CU_STREAM_PER_THREAD : stream;
    if (real->cuStreamGetCaptureInfo_v2 == nullptr ||
        real->cuStreamGetCaptureInfo_v2(queried, &status, &id, &graph, nullptr, nullptr) !=
            CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return nullptr;
    }
    return graph;
}

}  // namespace memlab::interpose
