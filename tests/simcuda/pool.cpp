// Stream-ordered allocation: cuMemAllocAsync, cuMemFreeAsync and memory pools.
//
// A pool takes its memory from its location, a device, the host, or wherever managed memory is at
// the time (of CUDA 13; none of the simulation's is on a device then), and keeps what is freed
// until it is trimmed, destroyed, or more is cached than its release threshold when the host waits
// for the device. A freed block is reused by its own stream at once, by another stream only after
// the free has completed; the order between them is then the driver's business, and the race
// detector is told of it.
#include "tests/simcuda/pool.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/capture.hpp"
#include "tests/simcuda/graph.hpp"
#include "tests/simcuda/memory.hpp"
#include "tests/simcuda/options.hpp"
#include "tests/simcuda/race.hpp"
#include "tests/simcuda/state.hpp"
#include "tests/simcuda/statistics.hpp"
#include "tests/simcuda/tool.hpp"

namespace memlab::simcuda {

struct FreeBlock {
    uint64_t address;
    uint64_t bytes;  // of address space, a multiple of pages
    std::shared_ptr<Physical> physical;
    uint64_t stream;  // its id
    OpPtr freed;
};

// What a pool caches. A stream's frees complete in the order in which they were made, so that of
// each stream only the first has to be looked at, however many there are.
class FreeBlocks {
  public:
    using Number = uint64_t;  // of a free: a later one has a larger

    void add(FreeBlock block) {
        const Number number = ++last_;
        by_stream_[block.stream].insert(number);
        by_size_[block.bytes][block.stream].insert(number);
        blocks_.emplace(number, std::move(block));
    }
    FreeBlock take(Number number) {
        const auto found = blocks_.find(number);
        FreeBlock block = std::move(found->second);
        blocks_.erase(found);
        forget(by_stream_, block.stream, number);
        auto& streams = by_size_.at(block.bytes);
        forget(streams, block.stream, number);
        if (streams.empty()) {
            by_size_.erase(block.bytes);
        }
        return block;
    }
    // The least recently freed block whose free has completed; 0: none.
    Number completed() const { return completed(by_stream_); }
    // Of that size: the stream's own newest, else the least recently freed that has completed.
    Number usable(uint64_t bytes, uint64_t stream) const {
        const auto streams = by_size_.find(bytes);
        if (streams == by_size_.end()) {
            return 0;
        }
        const auto own = streams->second.find(stream);
        return own != streams->second.end() ? *own->second.rbegin() : completed(streams->second);
    }
    std::vector<OpPtr> frees() const {
        std::vector<OpPtr> all;
        for (const auto& [number, block] : blocks_) {
            all.push_back(block.freed);
        }
        return all;
    }

  private:
    using Streams = std::map<uint64_t, std::set<Number>>;

    static void forget(Streams& streams, uint64_t stream, Number number) {
        const auto found = streams.find(stream);
        found->second.erase(number);
        if (found->second.empty()) {
            streams.erase(found);
        }
    }
    Number completed(const Streams& streams) const {
        Number best = 0;
        for (const auto& [stream, numbers] : streams) {
            const Number first = *numbers.begin();
            if ((best == 0 || first < best) && is_done(blocks_.at(first).freed)) {
                best = first;
            }
        }
        return best;
    }

    Number last_ = 0;
    std::map<Number, FreeBlock> blocks_;
    Streams by_stream_;
    std::map<uint64_t, Streams> by_size_;
};

struct Pool {
    int device = 0;  // of the others: 0
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    CUmemAllocationType type = CU_MEM_ALLOCATION_TYPE_PINNED;
    bool is_default = false;
    bool destroyed = false;  // lives on until its allocations are freed
    uint64_t threshold = 0;
    uint64_t used = 0;
    uint64_t used_high = 0;
    uint64_t reserved = 0;
    uint64_t reserved_high = 0;
    int reuse[3] = {1, 1, 1};
    FreeBlocks free;
    unsigned live = 0;
};

namespace {

std::set<Pool*>& pools() {
    static std::set<Pool*>& all = *new std::set<Pool*>;
    return all;
}

Pool* find_pool(CUmemoryPool pool) {
    auto* pointer = reinterpret_cast<Pool*>(pool);
    return pools().contains(pointer) && !pointer->destroyed ? pointer : nullptr;
}

CUmemoryPool handle(Pool* pool) {
    return reinterpret_cast<CUmemoryPool>(pool);
}

bool is_elsewhere(const Pool& pool) {
    return is_managed(pool) || is_on_host(pool);
}

std::shared_ptr<Physical> take_memory(const Pool& pool, uint64_t bytes) {
    return is_elsewhere(pool) ? Physical::create_managed(pool.device, bytes)
                              : Physical::create(pool.device, bytes);
}

// The host uses such memory at the same address.
bool map_for_host(const Pool& pool, const Allocation& allocation) {
    return !is_elsewhere(pool) ||
           mmap(reinterpret_cast<void*>(allocation.base), allocation.reserved,
                PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, allocation.physical->file(),
                static_cast<off_t>(allocation.physical->offset())) != MAP_FAILED;
}

void unmap_for_host(const Pool& pool, uint64_t address, uint64_t bytes) {
    if (is_elsewhere(pool)) {
        static_cast<void>(mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0));
    }
}

// Pools of a location and a type; a device's own is default_pool().
using Place = std::pair<int, std::pair<int, int>>;  // type; the location's type and id

Place place_of(const CUmemLocation& location, CUmemAllocationType type) {
    const bool has_id = location.type == CU_MEM_LOCATION_TYPE_DEVICE ||
                        location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    return {static_cast<int>(type), {static_cast<int>(location.type), has_id ? location.id : 0}};
}

std::map<Place, Pool*>& pools_of_places(bool current) {
    static std::map<Place, Pool*>& defaults = *new std::map<Place, Pool*>;
    static std::map<Place, Pool*>& chosen = *new std::map<Place, Pool*>;
    return current ? chosen : defaults;
}

bool is_place(const CUmemLocation& location, CUmemAllocationType type) {
    const bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    switch (location.type) {
        case CU_MEM_LOCATION_TYPE_NONE:
            return managed;
        case CU_MEM_LOCATION_TYPE_DEVICE:
            return (managed || type == CU_MEM_ALLOCATION_TYPE_PINNED) &&
                   find_device(location.id) != nullptr;
        case CU_MEM_LOCATION_TYPE_HOST:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
            return managed || type == CU_MEM_ALLOCATION_TYPE_PINNED;
        default:
            return false;
    }
}

Pool* make_pool(const CUmemLocation& location, CUmemAllocationType type) {
    auto* made = new Pool;
    made->location = location;
    made->type = type;
    made->device = location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : 0;
    pools().insert(made);
    return made;
}

Pool& default_pool_of(const CUmemLocation& location, CUmemAllocationType type) {
    if (type == CU_MEM_ALLOCATION_TYPE_PINNED && location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        return default_pool(location.id);
    }
    Pool*& known = pools_of_places(false)[place_of(location, type)];
    if (known == nullptr) {
        known = make_pool(location, type);
        known->is_default = true;
    }
    return *known;
}

// Bytes are given back to the device, the least recently freed first, until the pool reserves no
// more than `keep`.
void trim_completed(Pool& pool, uint64_t keep) {
    while (pool.reserved > keep) {
        const FreeBlocks::Number number = pool.free.completed();
        if (number == 0) {
            return;
        }
        const FreeBlock block = pool.free.take(number);
        forget_accesses(block.address, block.bytes);
        unmap_pages(block.address, block.bytes);
        unmap_for_host(pool, block.address, block.bytes);
        return_addresses(block.address, block.bytes);
        pool.reserved -= block.bytes;
    }
}

void trim(Pool& pool, uint64_t keep) {
    settle();
    trim_completed(pool, keep);
}

void end_pool_if_unused(Pool& pool) {
    if (pool.destroyed && pool.live == 0) {
        pools().erase(&pool);
        delete &pool;
    }
}

bool take_free_block(Pool& pool, uint64_t bytes, Stream& stream, Allocation& allocation,
                     Clock& after) {
    settle();
    const FreeBlocks::Number number = pool.free.usable(bytes, stream.id);
    if (number == 0) {
        return false;
    }
    const FreeBlock block = pool.free.take(number);
    allocation.base = block.address;
    allocation.physical = block.physical;
    after = block.freed->clock;
    return true;
}

CUresult allocate(CUdeviceptr* dptr, size_t bytes, Pool& pool, Stream& stream) {
    if (bytes == 0) {
        *dptr = 0;
        return CUDA_SUCCESS;
    }
    if (stream.capture) {
        const uint64_t before = allocated_before(stream, bytes);
        const uint64_t address =
            before != 0 ? before : reserve_graph_memory(*stream.context, bytes);
        if (address == 0) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        Work work;
        work.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        work.memory = address;
        work.memory_bytes = bytes;
        Node* node = nullptr;
        const CUresult result = capture_work(stream, std::move(work), &node);
        if (result == CUDA_SUCCESS) {
            node->allocation.bytesize = bytes;
            node->allocation.dptr = address;
            node->allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
            node->allocation.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {pool.device}};
            *dptr = address;
        }
        return result;
    }
    if (CUresult refused = refuse_while_capturing(stream)) {
        return refused;
    }
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    if (CUresult fault = check_allocation_faults(bytes)) {
        return fault;
    }
    if (bytes > options().memory) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    Allocation allocation;
    allocation.bytes = bytes;
    allocation.reserved = round_up(bytes, page_bytes);
    allocation.kind = Kind::async;
    allocation.context = &root(*stream.context);
    allocation.device = pool.device;
    allocation.pool = &pool;
    Clock after;
    if (!take_free_block(pool, allocation.reserved, stream, allocation, after)) {
        allocation.physical = take_memory(pool, allocation.reserved);
        if (!allocation.physical && pool.reserved != pool.used) {
            wait_for_context(*allocation.context);
            trim(pool, 0);
            allocation.physical = take_memory(pool, allocation.reserved);
        }
        allocation.base = allocation.physical ? reserve_addresses(allocation.reserved) : 0;
        if (allocation.base == 0) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        pool.reserved += allocation.reserved;
        pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
        map_pages(allocation.base, allocation.reserved, *allocation.physical, 0, true);
        if (!map_for_host(pool, allocation)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    allocation.buffer_id = next_buffer_id();
    pool.used += allocation.reserved;
    pool.used_high = std::max(pool.used_high, pool.used);
    ++pool.live;
    count_live(static_cast<int64_t>(bytes));
    *dptr = allocation.base;
    tell_memory(is_managed(pool)   ? simcuda_managed
                : is_on_host(pool) ? simcuda_pinned
                                   : simcuda_async,
                allocation.base, bytes, pool.device);
    allocations().emplace(allocation.base, std::move(allocation));
    submit(stream, Work{}, {}, after);
    return CUDA_SUCCESS;
}

CUresult allocate_from(CUdeviceptr* dptr, size_t bytes, CUmemoryPool handle, bool given,
                       CUstream hStream) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    Device& device = *find_device(stream->context->device);
    Pool* pool = given                            ? find_pool(handle)
                 : device.current_pool != nullptr ? device.current_pool
                                                  : &default_pool(device.ordinal);
    if (dptr == nullptr || pool == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return allocate(dptr, bytes, *pool, *stream);
}

CUresult free_async(CUdeviceptr dptr, CUstream hStream) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    if (dptr == 0) {
        return CUDA_SUCCESS;
    }
    if (stream->capture) {
        if (!stream->capture->again && !may_free_in(*stream->capture->graph, dptr)) {
            return CUDA_ERROR_INVALID_VALUE;  // the capture goes on
        }
        Work work;
        work.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
        work.memory = dptr;
        return capture_work(*stream, std::move(work));
    }
    if (CUresult refused = refuse_while_capturing(*stream)) {
        return refused;
    }
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    auto it = allocations().find(dptr);
    if (it == allocations().end() || it->second.free_pending) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (it->second.kind) {
        case Kind::async:
        case Kind::graph:
            return free_to_pool(dptr, *stream);
        case Kind::device:
        case Kind::managed: {
            if (is_free_async_broken()) {
                std::fputs("simcuda: CUPTI crashes in this cuMemFreeAsync\n", stderr);
                _exit(89);
            }
            it->second.free_pending = true;
            // What is allocated there next is ordered behind it, by the driver.
            Work work;
            work.action = [dptr, bytes = it->second.bytes] {
                forget_accesses(dptr, bytes);
                release_allocation(dptr);
            };
            // Whoever used it must be ordered before.
            work.accesses.push_back({dptr, it->second.bytes, true, owner_driver});
            submit(*stream, std::move(work));
            return CUDA_SUCCESS;
        }
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult pool_attribute(Pool& pool, CUmemPool_attribute attribute, void* value, bool set) {
    const auto wide = [&](uint64_t& field, bool writable) {
        auto& outside = *static_cast<cuuint64_t*>(value);
        if (!set) {
            outside = field;
            return CUDA_SUCCESS;
        }
        if (!writable) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        field = outside;
        return CUDA_SUCCESS;
    };
    const auto flag = [&](int& field) {
        auto& outside = *static_cast<int*>(value);
        (set ? field : outside) = set ? outside : field;
        return CUDA_SUCCESS;
    };
    // A high-water mark can only be set to zero: it then restarts at the present value.
    const auto mark = [&](uint64_t& field, uint64_t now) {
        if (set && *static_cast<cuuint64_t*>(value) != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const CUresult result = wide(field, true);
        field = std::max(field, now);
        return result;
    };
    switch (attribute) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
            return flag(pool.reuse[0]);
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
            return flag(pool.reuse[1]);
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
            return flag(pool.reuse[2]);
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
            return wide(pool.threshold, true);
        case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
            return wide(pool.reserved, false);
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
            return mark(pool.reserved_high, pool.reserved);
        case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
            return wide(pool.used, false);
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
            return mark(pool.used_high, pool.used);
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

}  // namespace

bool is_managed(const Pool& pool) {
    return pool.type == CU_MEM_ALLOCATION_TYPE_MANAGED;
}

bool is_on_host(const Pool& pool) {
    return !is_managed(pool) && pool.location.type != CU_MEM_LOCATION_TYPE_DEVICE;
}

Pool& default_pool(int ordinal) {
    Device& device = *find_device(ordinal);
    if (device.default_pool == nullptr) {
        device.default_pool = new Pool;
        device.default_pool->device = device.default_pool->location.id = ordinal;
        device.default_pool->is_default = true;
        pools().insert(device.default_pool);
    }
    return *device.default_pool;
}

void release_idle_pool_memory() {
    for (Pool* pool : pools()) {
        trim(*pool, std::max(pool->threshold, pool->used));
    }
}

void release_cached_memory(int device) {
    for (Pool* pool : pools()) {
        if (pool->device == device) {
            trim_completed(*pool, pool->used);
        }
    }
}

void reset_pools(int device) {
    std::vector<uint64_t> live;
    for (const auto& [base, allocation] : allocations()) {
        if (allocation.pool != nullptr && allocation.device == device) {
            live.push_back(base);
        }
    }
    for (const uint64_t base : live) {
        Pool& pool = *allocations().at(base).pool;
        pool.used -= allocations().at(base).reserved;
        pool.reserved -= allocations().at(base).reserved;
        --pool.live;
        release_allocation(base);
    }
    for (Pool* pool : pools()) {
        if (pool->device == device) {
            trim(*pool, 0);
        }
    }
}

// The address is free for the stream's own later allocations at once, for the others when the
// stream has come to this point.
CUresult free_to_pool(uint64_t address, Stream& stream) {
    Allocation& allocation = allocations().at(address);
    if (allocation.kind == Kind::graph) {
        allocation.free_pending = true;
        Work work;
        work.action = [address] { release_allocation(address); };
        submit(stream, std::move(work));
        return CUDA_SUCCESS;
    }
    Pool& pool = *allocation.pool;
    const OpPtr op = submit(stream, Work{});
    pool.used -= allocation.reserved;
    --pool.live;
    pool.free.add({allocation.base, allocation.reserved, allocation.physical, stream.id, op});
    count_live(-static_cast<int64_t>(allocation.bytes));
    set_owner(allocation.base, allocation.bytes, 0);
    allocations().erase(address);
    if (pool.destroyed) {
        wait_for(op);
        trim(pool, pool.used);
    }
    end_pool_if_unused(pool);
    return CUDA_SUCCESS;
}

}  // namespace memlab::simcuda

using namespace memlab::simcuda;

CUresult sim_cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
    return allocate_from(dptr, bytesize, nullptr, false, hStream);
}

CUresult sim_cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                     CUstream hStream) {
    return allocate_from(dptr, bytesize, pool, true, hStream);
}

CUresult sim_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    return free_async(dptr, hStream);
}

CUresult sim_cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    if (pool == nullptr || poolProps == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUmemLocation& location = poolProps->location;
    if (poolProps->allocType != CU_MEM_ALLOCATION_TYPE_INVALID &&
        location.type == CU_MEM_LOCATION_TYPE_DEVICE && find_device(location.id) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!is_place(location, poolProps->allocType)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pool = handle(make_pool(location, poolProps->allocType));
    return CUDA_SUCCESS;
}

CUresult sim_cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                    CUmemAllocationType type) {
    if (pool_out == nullptr || location == nullptr || !is_place(*location, type)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pool_out = handle(&default_pool_of(*location, type));
    return CUDA_SUCCESS;
}

CUresult sim_cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location,
                             CUmemAllocationType type) {
    const CUresult result = sim_cuMemGetDefaultMemPool(pool, location, type);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const auto chosen = pools_of_places(true).find(place_of(*location, type));
    if (chosen != pools_of_places(true).end()) {
        *pool = handle(chosen->second);
    } else if (type == CU_MEM_ALLOCATION_TYPE_PINNED &&
               location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        return sim_cuDeviceGetMemPool(pool, location->id);
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
    Pool* found = find_pool(pool);
    if (found == nullptr || location == nullptr || !is_place(*location, type) ||
        place_of(found->location, found->type) != place_of(*location, type)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (type == CU_MEM_ALLOCATION_TYPE_PINNED && location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        return sim_cuDeviceSetMemPool(location->id, pool);
    }
    pools_of_places(true)[place_of(*location, type)] = found;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolDestroy(CUmemoryPool pool) {
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    Pool* found = find_pool(pool);
    if (found == nullptr || found->is_default) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Device& device = *find_device(found->device);
    if (device.current_pool == found) {
        device.current_pool = nullptr;
    }
    std::erase_if(pools_of_places(true),
                  [found](const auto& chosen) { return chosen.second == found; });
    for (const OpPtr& freed : found->free.frees()) {
        wait_for(freed);
    }
    trim(*found, 0);
    found->destroyed = true;
    end_pool_if_unused(*found);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    Pool* found = find_pool(pool);
    if (found == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    trim(*found, minBytesToKeep);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
    Pool* found = find_pool(pool);
    return found == nullptr || value == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                : pool_attribute(*found, attr, value, false);
}

CUresult sim_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
    Pool* found = find_pool(pool);
    return found == nullptr || value == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                : pool_attribute(*found, attr, value, true);
}

CUresult sim_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t) {
    return find_pool(pool) == nullptr || map == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult sim_cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool,
                                CUmemLocation* location) {
    const Pool* found = find_pool(memPool);
    if (flags == nullptr || found == nullptr || location == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = location->id == found->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                           : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
    if (pool_out == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (find_device(dev) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *pool_out = handle(&default_pool(dev));
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
    const CUresult result = sim_cuDeviceGetDefaultMemPool(pool, dev);
    if (result == CUDA_SUCCESS && find_device(dev)->current_pool != nullptr) {
        *pool = handle(find_device(dev)->current_pool);
    }
    return result;
}

CUresult sim_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
    Pool* found = find_pool(pool);
    if (find_device(dev) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (found == nullptr || found->device != dev || is_elsewhere(*found)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    find_device(dev)->current_pool = found;
    return CUDA_SUCCESS;
}
