// What the driver would say of a pooled pointer whose memory is away (moving/): it knows nothing at
// that address then. What is not answered here has to wait until the memory is back.
#pragma once

#include <algorithm>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/moving/gate.hpp"
#include "interpose/moving/program_handles.hpp"

namespace memlab::interpose {

/// Whether a block's memory is away. Costs a load while nothing is.
inline bool is_away(const PooledBlock& pooled, CUdeviceptr address) {
    return pooled.context->backend().pages().is_away(address);
}

/// Whether answer_while_away() has an answer.
constexpr bool is_answered_while_away(CUpointer_attribute attribute) {
    switch (static_cast<int>(attribute)) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_MAPPED:
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        case CU_POINTER_ATTRIBUTE_CONTEXT:
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            return true;
        default:
            return false;
    }
}

/// Whether these attributes have to be asked at the gate. Call without any of memlab's locks.
inline bool wait_at_gate(unsigned count, const CUpointer_attribute* attributes,
                         CUdeviceptr address) {
    if (gate.phase() != Phase::running && program_handles().is_away(address)) {
        return true;
    }
    if (attributes == nullptr ||
        std::all_of(attributes, attributes + count, is_answered_while_away)) {
        return false;
    }
    return in_session(
        [address](Session& session) { return session.segments().find(address) != nullptr; });
}

/// Asks about an address, at the gate if that is needed, and once more where the program's memory
/// there has left meanwhile: the driver may have been asked too late.
template <class Ask>
CUresult ask_at_gate(unsigned count, const CUpointer_attribute* attributes, CUdeviceptr address,
                     const Ask& ask) {
    if (!gate.on()) [[likely]] {
        return ask();
    }
    for (;;) {
        const std::uint32_t moment = gate.moment();
        const Passage passage(wait_at_gate(count, attributes, address));
        if (passage.refused()) [[unlikely]] {
            return CUDA_ERROR_DEINITIALIZED;
        }
        const CUresult result = ask();
        if (passage.counted() ||
            (moment == gate.moment() &&
             (gate.phase() == Phase::running || !program_handles().is_away(address)))) {
            return result;
        }
    }
}

/// Asks the driver about a live block while its memory is there all the time, or memlab.
template <class Real, class Away>
CUresult ask_where_it_is(const PooledBlock& pooled, CUdeviceptr address, const Real& real,
                         const Away& while_away) {
    if (!gate.on()) [[likely]] {
        return real();
    }
    for (;;) {
        const std::uint32_t moment = gate.moment();
        if (is_away(pooled, address)) {
            return while_away();
        }
        const CUresult result = real();
        if (moment == gate.moment() && !is_away(pooled, address)) {
            return result;
        }
    }
}

/// Writes what the driver says of memory from cuMemAlloc before memlab corrects it. `several`: as
/// cuPointerGetAttributes, which answers with null what has no answer.
inline CUresult answer_while_away(CUpointer_attribute attribute, const PooledBlock& pooled,
                                  CUdeviceptr address, bool several, void* value) {
    switch (static_cast<int>(attribute)) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *static_cast<unsigned*>(value) = CU_MEMORYTYPE_DEVICE;
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            *static_cast<CUdeviceptr*>(value) = address;
            break;
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            *static_cast<void**>(value) = nullptr;
            return several ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            *static_cast<int*>(value) = pooled.context->device();
            break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            *static_cast<unsigned*>(value) = 0;
            break;
        case CU_POINTER_ATTRIBUTE_MAPPED:
            *static_cast<unsigned*>(value) = 1;
            break;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            *static_cast<CUmemoryPool*>(value) = nullptr;
            break;
        default:  // memlab's own answers
            break;
    }
    return CUDA_SUCCESS;
}

}  // namespace memlab::interpose
