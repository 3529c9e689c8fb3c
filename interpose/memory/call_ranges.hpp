// The ranges of device memory that a copy or fill names, derived from the types of its arguments.
//
// A range is [address, address + bytes) with bytes > 0. For rows it extends from the first byte of
// the first row to the last byte of the last row, as the driver checks it. Arrays, host pointers
// and signatures that are not listed here are ignored.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "interpose/driver/cuda_abi.hpp"

namespace memlab::interpose::ranges {

/// Calls `visit(CUdeviceptr, std::size_t)`. A size that overflows becomes the maximum, which no
/// allocation contains.
template <class Visit>
void rows(Visit& visit, CUdeviceptr begin, std::size_t width, std::size_t height,
          std::size_t pitch) {
    if (width == 0 || height == 0) {
        return;
    }
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(height - 1, pitch, &bytes) ||
        __builtin_add_overflow(bytes, width, &bytes)) {
        bytes = static_cast<std::size_t>(-1);
    }
    visit(begin, bytes);
}

template <class Visit>
void bytes(Visit& visit, CUdeviceptr begin, std::size_t count) {
    rows(visit, begin, count, 1, 0);
}

/// An argument of exactly this type: no conversions.
template <class Type>
struct Is {
    Type value;
};

inline bool may_be_device(CUmemorytype type) {
    return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
}

template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<const CUDA_MEMCPY2D*> copy, Rest... /*rest*/) {
    if (copy.value == nullptr) {
        return;
    }
    const auto side = [&](CUmemorytype type, CUdeviceptr base, std::size_t x, std::size_t y,
                          std::size_t pitch) {
        if (may_be_device(type)) {
            const std::size_t row = pitch != 0 ? pitch : copy.value->WidthInBytes;
            rows(visit, base + y * row + x, copy.value->WidthInBytes, copy.value->Height, row);
        }
    };
    side(copy.value->srcMemoryType, copy.value->srcDevice, copy.value->srcXInBytes,
         copy.value->srcY, copy.value->srcPitch);
    side(copy.value->dstMemoryType, copy.value->dstDevice, copy.value->dstXInBytes,
         copy.value->dstY, copy.value->dstPitch);
}

// CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER share these member names.
template <class Visit, class Copy>
void volumes(Visit& visit, const Copy* copy) {
    if (copy == nullptr || copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0) {
        return;
    }
    const auto side = [&](CUmemorytype type, CUdeviceptr base, std::size_t x, std::size_t y,
                          std::size_t z, std::size_t pitch, std::size_t height) {
        if (!may_be_device(type)) {
            return;
        }
        const std::size_t row = pitch != 0 ? pitch : copy->WidthInBytes;
        const std::size_t slice = height != 0 ? height : copy->Height;
        rows(visit, base + (z * slice + y) * row + x, copy->WidthInBytes,
             (copy->Depth - 1) * slice + copy->Height, row);
    };
    side(copy->srcMemoryType, copy->srcDevice, copy->srcXInBytes, copy->srcY, copy->srcZ,
         copy->srcPitch, copy->srcHeight);
    side(copy->dstMemoryType, copy->dstDevice, copy->dstXInBytes, copy->dstY, copy->dstZ,
         copy->dstPitch, copy->dstHeight);
}
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<const CUDA_MEMCPY3D*> copy, Rest... /*rest*/) {
    volumes(visit, copy.value);
}
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<const CUDA_MEMCPY3D_PEER*> copy, Rest... /*rest*/) {
    volumes(visit, copy.value);
}

template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<const CUDA_MEMSET_NODE_PARAMS*> fill, Rest... /*rest*/) {
    if (fill.value != nullptr) {
        rows(visit, fill.value->dst, fill.value->width * fill.value->elementSize,
             fill.value->height, fill.value->pitch);
    }
}

// To the device, from the device, within it, and between contexts.
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<CUdeviceptr> to, Is<const void*> /*from*/, Is<std::size_t> count,
                  Rest... /*rest*/) {
    bytes(visit, to.value, count.value);
}
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<void*> /*to*/, Is<CUdeviceptr> from, Is<std::size_t> count,
                  Rest... /*rest*/) {
    bytes(visit, from.value, count.value);
}
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<CUdeviceptr> to, Is<CUdeviceptr> from, Is<std::size_t> count,
                  Rest... /*rest*/) {
    bytes(visit, to.value, count.value);
    bytes(visit, from.value, count.value);
}
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<CUdeviceptr> to, Is<CUcontext> /*to*/, Is<CUdeviceptr> from,
                  Is<CUcontext> /*from*/, Is<std::size_t> count, Rest... /*rest*/) {
    bytes(visit, to.value, count.value);
    bytes(visit, from.value, count.value);
}

// Between arrays and linear memory.
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<CUarray> /*to*/, Is<std::size_t> /*offset*/,
                  Is<CUdeviceptr> from, Is<std::size_t> count, Rest... /*rest*/) {
    bytes(visit, from.value, count.value);
}
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<CUdeviceptr> to, Is<CUarray> /*from*/,
                  Is<std::size_t> /*offset*/, Is<std::size_t> count, Rest... /*rest*/) {
    bytes(visit, to.value, count.value);
}

// Fills, of one row and of several.
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<CUdeviceptr> to, Is<unsigned char> /*value*/,
                  Is<std::size_t> count, Rest... /*rest*/) {
    bytes(visit, to.value, count.value);
}
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<CUdeviceptr> to, Is<unsigned short> /*value*/,
                  Is<std::size_t> count, Rest... /*rest*/) {
    bytes(visit, to.value, 2 * count.value);
}
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<CUdeviceptr> to, Is<unsigned int> /*value*/,
                  Is<std::size_t> count, Rest... /*rest*/) {
    bytes(visit, to.value, 4 * count.value);
}
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<CUdeviceptr> to, Is<std::size_t> pitch,
                  Is<unsigned char> /*value*/, Is<std::size_t> width, Is<std::size_t> height,
                  Rest... /*rest*/) {
    rows(visit, to.value, width.value, height.value, pitch.value);
}
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<CUdeviceptr> to, Is<std::size_t> pitch,
                  Is<unsigned short> /*value*/, Is<std::size_t> width, Is<std::size_t> height,
                  Rest... /*rest*/) {
    rows(visit, to.value, 2 * width.value, height.value, pitch.value);
}
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<CUdeviceptr> to, Is<std::size_t> pitch,
                  Is<unsigned int> /*value*/, Is<std::size_t> width, Is<std::size_t> height,
                  Rest... /*rest*/) {
    rows(visit, to.value, 4 * width.value, height.value, pitch.value);
}

// Values that a stream writes or waits for: the driver checks only the first byte.
template <class Visit>
void visit_ranges(Visit& visit, Is<CUstream> /*stream*/, Is<CUdeviceptr> at,
                  Is<cuuint32_t> /*value*/, Is<unsigned> /*flags*/) {
    bytes(visit, at.value, 1);
}
template <class Visit>
void visit_ranges(Visit& visit, Is<CUstream> /*stream*/, Is<CUdeviceptr> at,
                  Is<cuuint64_t> /*value*/, Is<unsigned> /*flags*/) {
    bytes(visit, at.value, 1);
}

template <class Visit>
void visit_ranges(Visit& visit, Is<CUstream> /*stream*/, Is<unsigned> count,
                  Is<CUstreamBatchMemOpParams*> operations, Is<unsigned> /*flags*/) {
    // The driver refuses more, and reads none of them.
    constexpr unsigned max_operations = 256;
    if (operations.value == nullptr || count.value > max_operations) {
        return;
    }
    for (unsigned i = 0; i < count.value; ++i) {
        const CUstreamBatchMemOpParams& each = operations.value[i];
        switch (each.operation) {
            case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            case CU_STREAM_MEM_OP_WAIT_VALUE_64:
                bytes(visit, each.waitValue.address, 1);
                break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            case CU_STREAM_MEM_OP_WRITE_VALUE_64:
                bytes(visit, each.writeValue.address, 1);
                break;
            default:
                break;
        }
    }
}

// cuMemcpyBatchAsync and cuMemcpy3DBatchAsync, in both their versions.
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<CUdeviceptr*> targets, Is<CUdeviceptr*> sources,
                  Is<std::size_t*> sizes, Is<std::size_t> count, Rest... /*rest*/) {
    if (targets.value == nullptr || sources.value == nullptr || sizes.value == nullptr) {
        return;
    }
    for (std::size_t i = 0; i < count.value; ++i) {
        bytes(visit, targets.value[i], sizes.value[i]);
        bytes(visit, sources.value[i], sizes.value[i]);
    }
}
template <class Visit>
void operands(Visit& visit, const CUDA_MEMCPY3D_BATCH_OP& copy) {
    if (copy.extent.depth == 0) {
        return;
    }
    for (const CUmemcpy3DOperand* side : {&copy.src, &copy.dst}) {
        if (static_cast<unsigned>(side->type) == newer_cuda::operand_is_pointer) {
            const auto& operand = side->op.ptr;
            // Lengths are in elements of one byte.
            const std::size_t row = operand.rowLength != 0 ? operand.rowLength : copy.extent.width;
            const std::size_t slice =
                operand.layerHeight != 0 ? operand.layerHeight : copy.extent.height;
            rows(visit, operand.ptr, copy.extent.width,
                 (copy.extent.depth - 1) * slice + copy.extent.height, row);
        }
    }
}
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<std::size_t> count, Is<CUDA_MEMCPY3D_BATCH_OP*> copies,
                  Rest... /*rest*/) {
    for (std::size_t i = 0; copies.value != nullptr && i < count.value; ++i) {
        operands(visit, copies.value[i]);
    }
}
// cuMemcpy3DWithAttributesAsync.
template <class Visit, class... Rest>
void visit_ranges(Visit& visit, Is<CUDA_MEMCPY3D_BATCH_OP*> copy, Rest... /*rest*/) {
    if (copy.value != nullptr) {
        operands(visit, *copy.value);
    }
}

// Any other signature names no range.
struct NoRange {};
template <class Visit, class... Others>
NoRange visit_ranges(Visit& /*visit*/, Others... /*others*/) {
    return {};
}

struct AnyVisit {
    void operator()(CUdeviceptr /*address*/, std::size_t /*bytes*/) {}
};
/// Whether a call with such arguments may name memory: kernel launches, the most frequent, do not.
template <class... Arguments>
inline constexpr bool may_name_memory =
    !std::is_same_v<NoRange, decltype(visit_ranges(std::declval<AnyVisit&>(),
                                                   std::declval<Is<Arguments>>()...))>;

template <class Visit, class... Arguments>
void for_each(Visit& visit, Arguments... arguments) {
    visit_ranges(visit, Is<Arguments>{arguments}...);
}

}  // namespace memlab::interpose::ranges
