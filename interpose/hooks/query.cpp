// Memory queries: a pooled pointer must look like an allocation of its own.
#include <algorithm>
#include <set>

#include "interpose/driver/current_context.hpp"
#include "interpose/hooks/away_attributes.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/sharing/exporter.hpp"
#include "interpose/sharing/importer.hpp"
#include "threads/mutex.hpp"

namespace mi = memlab::interpose;
using memlab::allocator::BlockInfo;
using mi::Driver;
using mi::Session;

namespace {

// Far above the driver's own buffer ids.
constexpr unsigned long long pooled_buffer_ids = 1ULL << 62;

// The driver's answer for an unallocated address. For an address in a segment it would describe the
// segment, so another address is queried and the one attribute that depends on it corrected.
CUresult attributes_of_unallocated(unsigned count, CUpointer_attribute* attributes, void** values,
                                   CUdeviceptr address) {
    static const char nothing = 0;
    const CUresult result = mi::call_real(&Driver::cuPointerGetAttributes, count, attributes,
                                          values, reinterpret_cast<CUdeviceptr>(&nothing));
    for (unsigned i = 0; result == CUDA_SUCCESS && i < count; ++i) {
        if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
            *static_cast<CUdeviceptr*>(values[i]) = address;
        }
    }
    return result;
}

CUresult attributes_while_away(unsigned count, CUpointer_attribute* attributes, void** values,
                               const mi::PooledBlock& pooled, CUdeviceptr address) {
    for (unsigned i = 0; i < count; ++i) {
        mi::answer_while_away(attributes[i], pooled, address, true, values[i]);
    }
    return CUDA_SUCCESS;
}

// Blocks with synchronous memory operations. The driver can set the attribute only on whole
// segments, and it stays set there: slower for neighbouring blocks, but correct.
class SynchronousBlocks {
  public:
    bool contains(const BlockInfo& block) {
        const memlab::threads::LockGuard lock(mutex_);
        return ids_.contains(block.id);
    }
    void set(const BlockInfo& block, bool on) {
        const memlab::threads::LockGuard lock(mutex_);
        if (on) {
            ids_.insert(block.id);
        } else {
            ids_.erase(block.id);
        }
    }

  private:
    memlab::threads::Mutex mutex_;
    std::set<std::uint64_t> ids_ MEMLAB_GUARDED_BY(mutex_);
};

SynchronousBlocks& synchronous_blocks() {
    static auto& once = *new SynchronousBlocks;
    return once;
}

// The driver refuses the attribute for mapped memory. The context's flag means more: all of its
// memory operations are synchronous.
CUresult make_synchronous(mi::Context& context) {
    const mi::CurrentContext current(context.handle());
    unsigned flags = 0;
    const CUresult result = mi::call_real(&Driver::cuCtxGetFlags, &flags);
    constexpr unsigned settable =
        CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE | CU_CTX_SYNC_MEMOPS;
    return result != CUDA_SUCCESS
               ? result
               : mi::call_real(&Driver::cuCtxSetFlags, (flags & settable) | CU_CTX_SYNC_MEMOPS);
}

// Plain CUDA maps each allocation of more than 1 MiB separately, in units of 2 MiB; smaller ones
// share a unit, as they do in the pool's segments.
bool has_own_mapping(const BlockInfo& block) {
    return block.requested > memlab::allocator::page_bytes / 2;
}

std::size_t own_mapping_size(const BlockInfo& block) {
    constexpr std::uint64_t unit = memlab::allocator::page_bytes;
    return std::min((block.requested + unit - 1) / unit * unit,
                    block.segment + block.segment_size - block.address);
}

// Overwrites attributes that describe the segment instead of the block.
void correct_attribute(Session& session, CUpointer_attribute attribute,
                       const mi::PooledBlock& pooled, void* value) {
    const BlockInfo& block = *pooled.block;
    switch (static_cast<int>(attribute)) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:  // pages of expandable segments have no context
            *static_cast<CUcontext*>(value) = pooled.context->handle();
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            *static_cast<CUdeviceptr*>(value) = block.address;
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            *static_cast<std::size_t*>(value) = block.requested;
            break;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
            *static_cast<unsigned long long*>(value) = pooled_buffer_ids + block.id;
            break;
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
            if (has_own_mapping(block)) {
                *static_cast<CUdeviceptr*>(value) = block.address;
            }
            break;
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
            if (has_own_mapping(block)) {
                *static_cast<std::size_t*>(value) = own_mapping_size(block);
            }
            break;
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
            if (has_own_mapping(block)) {
                *static_cast<unsigned long long*>(value) = pooled_buffer_ids + block.id;
            }
            break;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            *static_cast<unsigned*>(value) =
                mi::is_shareable(session, pooled)
                    ? 1
                    : (mi::exports_exactly(pooled) ? *static_cast<unsigned*>(value) : 0);
            break;
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:  // 0 for memory from cuMemAlloc
            *static_cast<unsigned long long*>(value) = 0;
            break;
        case mi::newer_cuda::pointer_is_decompress_capable:  // cuMemAlloc's memory always is
            if (pooled.context->backend().pages().owns(block.address)) {
                *static_cast<unsigned*>(value) = 1;
            }
            break;
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            *static_cast<unsigned*>(value) = synchronous_blocks().contains(block) ? 1 : 0;
            break;
        case CU_POINTER_ATTRIBUTE_P2P_TOKENS: {  // the driver made the segment synchronous, too
            unsigned synchronous = 0;
            if (pooled.context->backend().pages().owns(block.address)) {  // it did not
                synchronous = make_synchronous(*pooled.context) == CUDA_SUCCESS ? 1 : 0;
            } else {
                mi::call_real(&Driver::cuPointerGetAttribute, static_cast<void*>(&synchronous),
                              CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block.address);
            }
            if (synchronous != 0) {
                synchronous_blocks().set(block, true);
            }
            break;
        }
        // The segment's are the block's. Each attribute of <cuda.h> is in one of the two lists
        // (tests/repository/check_pointer_attributes.py).
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        case CU_POINTER_ATTRIBUTE_MAPPED:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        default:  // a later driver's
            break;
    }
}

void set_range(const mi::Importer::Import& import, CUdeviceptr* base, std::size_t* size) {
    if (base != nullptr) {
        *base = import.address;
    }
    if (size != nullptr) {
        *size = import.handle.bytes;
    }
}

// An imported block's range is that of the exporting process, not of the chunks that hold it.
void correct_import(CUpointer_attribute attribute, CUdeviceptr address, void* value) {
    if (attribute != CU_POINTER_ATTRIBUTE_RANGE_START_ADDR &&
        attribute != CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
        return;
    }
    const std::optional<mi::Importer::Import> import = mi::importer().find(address);
    if (import && attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
        set_range(*import, static_cast<CUdeviceptr*>(value), nullptr);
    } else if (import) {
        set_range(*import, nullptr, static_cast<std::size_t*>(value));
    }
}

// Counts cached memory as free and caps the values at the device's limit.
void adjust_memory_info(Session& session, CUdevice device, std::size_t* free, std::size_t* total) {
    std::uint64_t cached = 0;
    std::uint64_t away = mi::program_handles().away_bytes(device);
    std::size_t index = 0;
    while (mi::Context* const context = session.contexts().next(device, &index)) {
        cached += context->pool().reclaimable();
        away += context->backend().pages().away_bytes();
    }
    *free -= std::min<std::uint64_t>(*free, away);  // it has to come back
    const mi::VisibleMemory visible =
        mi::visible_memory(*free, *total, cached, session.limits().limit_for(device));
    *free = visible.free;
    *total = visible.total;
}

// While the driver is locked: as it was before.
bool known_memory_info(std::size_t* free, std::size_t* total) {
    return mi::in_session([=](Session& session) {
        CUdevice device = -1;
        if (session.mover() == nullptr || free == nullptr || total == nullptr ||
            !session.mover()->driver_engine().known_memory(&device, free, total)) {
            return false;
        }
        adjust_memory_info(session, device, free, total);
        return true;
    });
}

/// The driver accepts the address of mapped device memory as a host pointer and refuses one of
/// cuMemAlloc's. Pooled memory is refused either way.
constexpr auto device_pointer_of = [](mi::Hooked, const auto& real, auto*, const void* host,
                                      unsigned) {
    return mi::hook_nested(
        [&](Session& session, bool nested) -> CUresult {
            const auto address = reinterpret_cast<CUdeviceptr>(host);
            return mi::find_pooled(session, address, nested) ? CUDA_ERROR_INVALID_VALUE : real();
        },
        real);
};

[[gnu::used]] void export_query_functions() {
    MEMLAB_EXPORT_PASSED(cuMemGetInfo);
    MEMLAB_EXPORT_PASSED(cuDeviceTotalMem);
    MEMLAB_EXPORT_PASSED(cuMemGetAddressRange);
    MEMLAB_EXPORT_HOOK(cuMemHostGetDevicePointer, device_pointer_of);
    MEMLAB_EXPORT_HOOK(cuMemHostGetDevicePointer_v2, device_pointer_of);
}

}  // namespace

MEMLAB_EXPORT CUresult CUDAAPI cuMemGetInfo_v2(size_t* free, size_t* total) {
    if (mi::gate.on() && mi::gate.is_shut() && known_memory_info(free, total)) [[unlikely]] {
        return CUDA_SUCCESS;
    }
    const auto real = mi::real_call(&Driver::cuMemGetInfo_v2, free, total);
    return mi::hook(
        [&](Session& session) {
            const CUresult result = real();
            const mi::Context* const current =
                result == CUDA_SUCCESS && free != nullptr && total != nullptr
                    ? session.contexts().current()
                    : nullptr;
            if (current != nullptr) {
                adjust_memory_info(session, current->device(), free, total);
            }
            return result;
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    const auto real = mi::real_call(&Driver::cuDeviceTotalMem_v2, bytes, device);
    return mi::hook(
        [&](Session& session) {
            const CUresult result = real();
            const std::uint64_t limit = session.limits().limit_for(device);
            if (result == CUDA_SUCCESS && limit != 0) {
                *bytes = limit;
            }
            return result;
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size,
                                                       CUdeviceptr address) {
    const auto real = mi::real_call(&Driver::cuMemGetAddressRange_v2, base, size, address);
    const auto ours = [&](Session& session, bool nested) -> CUresult {
        const std::optional<mi::PooledBlock> pooled = mi::find_pooled(session, address, nested);
        if (base == nullptr && size == nullptr) {
            return real();
        }
        if (!pooled) {
            const CUresult result = real();
            const std::optional<mi::Importer::Import> import =
                result == CUDA_SUCCESS && !nested ? mi::importer().find(address) : std::nullopt;
            if (import) {
                set_range(*import, base, size);
            }
            return result;
        }
        // The driver is called for its errors (no context, a sticky error).
        CUdeviceptr segment = 0;
        const CUresult result = mi::ask_where_it_is(
            *pooled, address,
            [&] {
                return mi::call_real(&Driver::cuMemGetAddressRange_v2, &segment,
                                     static_cast<std::size_t*>(nullptr), address);
            },
            [] { return CUDA_SUCCESS; });
        if (result == CUDA_SUCCESS && !pooled->block) {
            return CUDA_ERROR_NOT_FOUND;
        }
        if (result == CUDA_SUCCESS) {
            if (base != nullptr) {
                *base = pooled->block->address;
            }
            if (size != nullptr) {
                *size = pooled->block->requested;
            }
        }
        return result;
    };
    return mi::ask_at_gate(0, nullptr, address, [&] { return mi::hook_nested(ours, real); });
}

MEMLAB_EXPORT CUresult CUDAAPI cuPointerGetAttribute(void* value, CUpointer_attribute attribute,
                                                     CUdeviceptr address) {
    const auto real = mi::real_call(&Driver::cuPointerGetAttribute, value, attribute, address);
    const auto ours = [&](Session& session, bool nested) -> CUresult {
        const std::optional<mi::PooledBlock> pooled = mi::find_pooled(session, address, nested);
        if (pooled && !pooled->block) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const CUresult result =
            pooled ? mi::ask_where_it_is(*pooled, address, real,
                                         [&] {
                                             return mi::answer_while_away(attribute, *pooled,
                                                                          address, false, value);
                                         })
                   : real();
        if (result == CUDA_SUCCESS && !pooled && !nested) {
            correct_import(attribute, address, value);
        }
        if (result == CUDA_SUCCESS && pooled) {
            correct_attribute(session, attribute, *pooled, value);
        }
        return result;
    };
    return mi::ask_at_gate(1, &attribute, address, [&] { return mi::hook_nested(ours, real); });
}

MEMLAB_EXPORT CUresult CUDAAPI cuPointerGetAttributes(unsigned int count,
                                                      CUpointer_attribute* attributes,
                                                      void** values, CUdeviceptr address) {
    const auto real =
        mi::real_call(&Driver::cuPointerGetAttributes, count, attributes, values, address);
    const auto ours = [&](Session& session, bool nested) {
        const std::optional<mi::PooledBlock> pooled = mi::find_pooled(session, address, nested);
        if (pooled && !pooled->block) {
            return attributes_of_unallocated(count, attributes, values, address);
        }
        const CUresult result =
            pooled ? mi::ask_where_it_is(*pooled, address, real,
                                         [&] {
                                             return attributes_while_away(count, attributes, values,
                                                                          *pooled, address);
                                         })
                   : real();
        for (unsigned i = 0; result == CUDA_SUCCESS && !pooled && !nested && i < count; ++i) {
            correct_import(attributes[i], address, values[i]);
        }
        if (result == CUDA_SUCCESS && pooled) {
            for (unsigned i = 0; i < count; ++i) {
                correct_attribute(session, attributes[i], *pooled, values[i]);
            }
        }
        return result;
    };
    return mi::ask_at_gate(count, attributes, address, [&] { return mi::hook_nested(ours, real); });
}

MEMLAB_EXPORT CUresult CUDAAPI cuPointerSetAttribute(const void* value,
                                                     CUpointer_attribute attribute,
                                                     CUdeviceptr address) {
    const mi::Passage passage;
    if (passage.refused()) [[unlikely]] {
        return CUDA_ERROR_DEINITIALIZED;
    }
    const auto real = mi::real_call(&Driver::cuPointerSetAttribute, value, attribute, address);
    return mi::hook(
        [&](Session& session) -> CUresult {
            const std::optional<mi::PooledBlock> pooled = mi::find_pooled(session, address);
            if (!pooled) {
                return real();
            }
            if (!pooled->block) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            const bool page = pooled->context->backend().pages().owns(address);
            if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || value == nullptr) {
                // The driver treats VMM pages differently from cuMemAlloc's memory.
                return page ? CUDA_ERROR_INVALID_VALUE : real();
            }
            // Programs that set it (RDMA) set it again for later memory.
            session.disable_pooling_quietly(
                "synchronous memory operations were requested (GPUDirect RDMA): device "
                "memory allocated since was not pooled, so that the attribute affects only "
                "the allocation it names");
            const unsigned mark = 1;
            const CUresult result =
                page ? make_synchronous(*pooled->context)
                     : mi::call_real(&Driver::cuPointerSetAttribute,
                                     static_cast<const void*>(&mark), attribute, address);
            if (result == CUDA_SUCCESS) {
                synchronous_blocks().set(*pooled->block, *static_cast<const unsigned*>(value) != 0);
            }
            return result;
        },
        real);
}
