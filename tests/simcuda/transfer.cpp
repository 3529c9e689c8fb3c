// Copies and fills. Each is work on a stream whose contents move when it completes; the synchronous
// ones are work on the default stream that the host waits for where the driver's do.
#include "tests/simcuda/transfer.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "tests/simcuda/array.hpp"
#include "tests/simcuda/call.hpp"
#include "tests/simcuda/capture.hpp"
#include "tests/simcuda/graph.hpp"
#include "tests/simcuda/memory.hpp"
#include "tests/simcuda/state.hpp"

namespace memlab::simcuda {
namespace {

uint64_t address(const void* pointer) {
    return reinterpret_cast<uint64_t>(pointer);
}

Access access(uint64_t at, uint64_t bytes, bool write) {
    return {at, bytes, write, 0};
}

// A copy of rows: bytes each, so many rows, and steps from row to row on both sides.
struct Rows {
    uint64_t to = 0;
    uint64_t from = 0;
    uint64_t bytes = 0;
    uint64_t count = 1;
    uint64_t to_step = 0;
    uint64_t from_step = 0;
};

// What becomes work of a stream at once, or a node of a graph.
enum class As { work, node };

As as(const Stream& stream) {
    return stream.capture ? As::node : As::work;
}

// May the work name the range? When it runs it is looked at again.
bool nameable(As as, uint64_t address, uint64_t bytes) {
    return simcuda::usable(address, bytes) || (as == As::node && is_graph_memory(address, bytes));
}

// The driver looks at all from the first byte of the first row to the last of the last.
bool nameable(As as, const Rows& rows) {
    const auto whole = [&](uint64_t begin, uint64_t step) {
        return rows.count == 0 || !is_device_address(begin) ||
               nameable(as, begin, (rows.count - 1) * step + rows.bytes);
    };
    if (!whole(rows.to, rows.to_step) || !whole(rows.from, rows.from_step)) {
        return false;
    }
    for (uint64_t i = 0; i < rows.count; ++i) {
        if (!nameable(as, rows.to + i * rows.to_step, rows.bytes) ||
            !nameable(as, rows.from + i * rows.from_step, rows.bytes)) {
            return false;
        }
    }
    return true;
}

// The same of all planes of a volume.
bool nameable(As as, const std::vector<Rows>& planes) {
    const auto whole = [&](uint64_t begin, uint64_t last, uint64_t step) {
        const uint64_t end = last + (planes.back().count - 1) * step + planes.back().bytes;
        return !is_device_address(begin) || end <= begin || nameable(as, begin, end - begin);
    };
    return std::all_of(planes.begin(), planes.end(),
                       [&](const Rows& rows) { return rows.bytes == 0 || nameable(as, rows); }) &&
           (planes.empty() || planes.back().count == 0 || planes.back().bytes == 0 ||
            (whole(planes.front().to, planes.back().to, planes.back().to_step) &&
             whole(planes.front().from, planes.back().from, planes.back().from_step)));
}

// Virtual memory can be named by a copy only where the current context's device may access it,
// whatever the stream; copies that name the contexts go everywhere (measured on two H100).
bool reachable(uint64_t begin, uint64_t bytes) {
    Context* context = nullptr;
    if (current_context(context) != CUDA_SUCCESS) {
        return true;
    }
    const Allocation* first = find_allocation(begin);
    auto it = first != nullptr ? allocations().find(first->base) : allocations().lower_bound(begin);
    for (; it != allocations().end() && it->first < begin + bytes; ++it) {
        if (it->second.kind == Kind::vmm &&
            (it->second.accessors & (uint64_t{1} << context->device)) == 0) {
            return false;
        }
    }
    return true;
}

bool reachable(const std::vector<Rows>& parts) {
    return std::all_of(parts.begin(), parts.end(), [](const Rows& rows) {
        return rows.bytes == 0 ||
               (reachable(rows.to, (rows.count - 1) * rows.to_step + rows.bytes) &&
                reachable(rows.from, (rows.count - 1) * rows.from_step + rows.bytes));
    });
}

// Pageable host memory is read at once where `staged`.
Work copy_work(const std::vector<Rows>& parts, bool staged) {
    Work work;
    work.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    work.takes_time = true;
    struct Part {
        Rows rows;
        std::vector<char> staged;  // of pageable host memory
    };
    auto held = std::make_shared<std::vector<Part>>();
    for (const Rows& rows : parts) {
        Part part{rows, {}};
        if (staged && is_pageable(rows.from)) {
            part.staged.resize(rows.bytes * rows.count);
            for (uint64_t i = 0; i < rows.count; ++i) {
                copy_bytes(address(part.staged.data()) + i * rows.bytes,
                           rows.from + i * rows.from_step, rows.bytes);
            }
        }
        for (uint64_t i = 0; i < rows.count; ++i) {
            if (!is_pageable(rows.from)) {
                work.accesses.push_back(access(rows.from + i * rows.from_step, rows.bytes, false));
            }
            if (!is_pageable(rows.to)) {
                work.accesses.push_back(access(rows.to + i * rows.to_step, rows.bytes, true));
            }
        }
        held->push_back(std::move(part));
    }
    work.action = [held] {
        for (const Part& part : *held) {
            for (uint64_t i = 0; i < part.rows.count; ++i) {
                const uint64_t from = part.staged.empty()
                                          ? part.rows.from + i * part.rows.from_step
                                          : address(part.staged.data()) + i * part.rows.bytes;
                const uint64_t to = part.rows.to + i * part.rows.to_step;
                // The program may have freed it meanwhile: the GPU would fault.
                if (simcuda::usable(from, part.rows.bytes) &&
                    simcuda::usable(to, part.rows.bytes)) {
                    copy_bytes(to, from, part.rows.bytes);
                }
            }
        }
    };
    return work;
}

// How a copy says where the memory is.
enum class By { address, context };

CUresult copy(const std::vector<Rows>& parts, CUstream hStream, bool wait, By by = By::address) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    if (!nameable(as(*stream), parts) || (by == By::address && !reachable(parts))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t bytes = 0;
    for (const Rows& rows : parts) {
        bytes += rows.bytes * rows.count;
    }
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    // The host waits for every synchronous copy that has a host side; from device to device it does
    // not, as in the driver.
    const bool host_side = std::any_of(parts.begin(), parts.end(), [](const Rows& rows) {
        return !is_reserved_address(rows.to) || !is_reserved_address(rows.from);
    });
    // An asynchronous copy into pageable memory returns when it is done.
    const bool to_pageable = !wait && !stream->capture && is_pageable(parts.front().to);
    Work work = copy_work(parts, true);
    return (wait && host_side) || to_pageable ? enqueue_and_wait(*stream, std::move(work))
                                              : enqueue(*stream, std::move(work));
}

CUresult copy(uint64_t to, uint64_t from, uint64_t bytes) {
    return copy({Rows{to, from, bytes}}, nullptr, true);
}

CUresult copy(uint64_t to, uint64_t from, uint64_t bytes, CUstream stream) {
    return copy({Rows{to, from, bytes}}, stream, false);
}

// Host memory given where device memory is required.
CUresult copy_device(uint64_t device, uint64_t bytes) {
    return bytes != 0 && !is_device_address(device) && is_pageable(device)
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

Work fill_work(const CUDA_MEMSET_NODE_PARAMS& p) {
    Work work;
    work.type = CU_GRAPH_NODE_TYPE_MEMSET;
    work.takes_time = true;
    work.fill = p;
    const uint64_t row = p.width * p.elementSize;
    for (uint64_t i = 0; i < p.height; ++i) {
        work.accesses.push_back(access(p.dst + i * p.pitch, row, true));
    }
    work.action = [p, row] {
        for (uint64_t i = 0; i < p.height; ++i) {
            if (simcuda::usable(p.dst + i * p.pitch, row)) {
                fill_bytes(p.dst + i * p.pitch, row, &p.value, p.elementSize);
            }
        }
    };
    return work;
}

bool can_fill(As as, const CUDA_MEMSET_NODE_PARAMS& p) {
    const uint64_t row = p.width * p.elementSize;
    return !is_pageable(p.dst) && nameable(as, Rows{p.dst, p.dst, row, p.height, p.pitch, p.pitch});
}

CUresult fill(uint64_t to, uint64_t step, const void* pattern, uint64_t pattern_bytes,
              uint64_t width, uint64_t height, CUstream hStream, bool wait) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    if (width == 0 || height == 0) {
        return CUDA_SUCCESS;
    }
    if (to % pattern_bytes != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint32_t value = 0;
    std::memcpy(&value, pattern, pattern_bytes);
    const CUDA_MEMSET_NODE_PARAMS parameters{
        to, step, value, static_cast<unsigned>(pattern_bytes), width, height};
    // Of what is captured the driver notices it later.
    if (!can_fill(as(*stream), parameters) && (!stream->capture || !is_device_address(to))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Work work = fill_work(parameters);
    // Filling host memory is done when the call returns; device memory is filled behind it.
    return wait && !is_device_address(to) ? enqueue_and_wait(*stream, std::move(work))
                                          : enqueue(*stream, std::move(work));
}

// Where a side of a 2D or 3D copy begins, and its steps.
struct Side {
    uint64_t address = 0;
    uint64_t row = 0;
    uint64_t slice = 0;
};

bool side_of(CUmemorytype type, const void* host, CUdeviceptr device, CUarray array, size_t x,
             size_t y, size_t z, size_t pitch, size_t height, Side& side) {
    switch (type) {
        case CU_MEMORYTYPE_HOST:
            side = {address(host), pitch, pitch * height};
            break;
        case CU_MEMORYTYPE_DEVICE:
        case CU_MEMORYTYPE_UNIFIED:
            side = {device, pitch, pitch * height};
            break;
        case CU_MEMORYTYPE_ARRAY:
            if (!array_layout(array, side.address, side.row, side.slice)) {
                return false;
            }
            break;
        default:
            return false;
    }
    side.address += z * side.slice + y * side.row + x;
    return true;
}

std::vector<Rows> box(const Side& to, const Side& from, size_t width, size_t height, size_t depth) {
    std::vector<Rows> parts;
    for (size_t z = 0; z < depth; ++z) {
        parts.push_back({to.address + z * to.slice, from.address + z * from.slice, width, height,
                         to.row, from.row});
    }
    return parts;
}

CUresult copy_parts(const std::vector<Rows>& parts, CUstream stream, bool wait,
                    By by = By::address) {
    return parts.empty() ? CUDA_SUCCESS : copy(parts, stream, wait, by);
}

CUresult copy_2d(const CUDA_MEMCPY2D* p, CUstream stream, bool wait) {
    Side to;
    Side from;
    if (p == nullptr ||
        !side_of(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, p->srcXInBytes, p->srcY,
                 0, p->srcPitch != 0 ? p->srcPitch : p->WidthInBytes, 0, from) ||
        !side_of(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstXInBytes, p->dstY,
                 0, p->dstPitch != 0 ? p->dstPitch : p->WidthInBytes, 0, to)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return copy_parts(box(to, from, p->WidthInBytes, p->Height, 1), stream, wait);
}

template <typename Parameters>
bool sides_of(const Parameters* p, Side& to, Side& from) {
    return p != nullptr &&
           side_of(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, p->srcXInBytes, p->srcY,
                   p->srcZ, p->srcPitch != 0 ? p->srcPitch : p->WidthInBytes,
                   p->srcHeight != 0 ? p->srcHeight : p->Height, from) &&
           side_of(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstXInBytes, p->dstY,
                   p->dstZ, p->dstPitch != 0 ? p->dstPitch : p->WidthInBytes,
                   p->dstHeight != 0 ? p->dstHeight : p->Height, to);
}

template <typename Parameters>
CUresult copy_3d(const Parameters* p, CUstream stream, bool wait, By by = By::address) {
    Side to;
    Side from;
    return sides_of(p, to, from)
               ? copy_parts(box(to, from, p->WidthInBytes, p->Height, p->Depth), stream, wait, by)
               : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult copy_node(const CUDA_MEMCPY3D* parameters, Work& work) {
    Side to;
    Side from;
    if (!sides_of(parameters, to, from)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const std::vector<Rows> parts =
        box(to, from, parameters->WidthInBytes, parameters->Height, parameters->Depth);
    if (!nameable(As::node, parts) || !reachable(parts)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    work = copy_work(parts, false);
    return CUDA_SUCCESS;
}

CUresult fill_node(const CUDA_MEMSET_NODE_PARAMS* parameters, Work& work) {
    if (parameters == nullptr ||
        (parameters->elementSize != 1 && parameters->elementSize != 2 &&
         parameters->elementSize != 4) ||
        !can_fill(*parameters)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    work = fill_work(*parameters);
    return CUDA_SUCCESS;
}

bool can_fill(const CUDA_MEMSET_NODE_PARAMS& parameters) {
    return can_fill(As::node, parameters);
}

}  // namespace memlab::simcuda

using namespace memlab::simcuda;

CUresult sim_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
    return copy(dst, src, ByteCount);
}

CUresult sim_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
    return copy(dst, src, ByteCount, hStream);
}

CUresult sim_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
    const CUresult wrong = copy_device(dstDevice, ByteCount);
    return wrong != CUDA_SUCCESS ? wrong : copy(dstDevice, address(srcHost), ByteCount);
}

CUresult sim_cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
    const CUresult wrong = copy_device(srcDevice, ByteCount);
    return wrong != CUDA_SUCCESS ? wrong : copy(address(dstHost), srcDevice, ByteCount);
}

CUresult sim_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
    return copy(dstDevice, srcDevice, ByteCount);
}

CUresult sim_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                                  CUstream hStream) {
    const CUresult wrong = copy_device(dstDevice, ByteCount);
    return wrong != CUDA_SUCCESS ? wrong : copy(dstDevice, address(srcHost), ByteCount, hStream);
}

CUresult sim_cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                  CUstream hStream) {
    const CUresult wrong = copy_device(srcDevice, ByteCount);
    return wrong != CUDA_SUCCESS ? wrong : copy(address(dstHost), srcDevice, ByteCount, hStream);
}

CUresult sim_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                  CUstream hStream) {
    return copy(dstDevice, srcDevice, ByteCount, hStream);
}

CUresult sim_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext, CUdeviceptr srcDevice, CUcontext,
                          size_t ByteCount) {
    return copy({Rows{dstDevice, srcDevice, ByteCount}}, nullptr, true, By::context);
}

CUresult sim_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext, CUdeviceptr srcDevice, CUcontext,
                               size_t ByteCount, CUstream hStream) {
    return copy({Rows{dstDevice, srcDevice, ByteCount}}, hStream, false, By::context);
}

CUresult sim_cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) {
    return copy_2d(pCopy, nullptr, true);
}

CUresult sim_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) {
    return copy_2d(pCopy, nullptr, true);
}

CUresult sim_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
    return copy_2d(pCopy, hStream, false);
}

CUresult sim_cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) {
    return copy_3d(pCopy, nullptr, true);
}

CUresult sim_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
    return copy_3d(pCopy, hStream, false);
}

CUresult sim_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
    return copy_3d(pCopy, nullptr, true, By::context);
}

CUresult sim_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
    return copy_3d(pCopy, hStream, false, By::context);
}

CUresult sim_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
    return fill(dstDevice, 0, &uc, 1, N, 1, nullptr, true);
}

CUresult sim_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
    return fill(dstDevice, 0, &us, 2, N, 1, nullptr, true);
}

CUresult sim_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
    return fill(dstDevice, 0, &ui, 4, N, 1, nullptr, true);
}

CUresult sim_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
    return fill(dstDevice, 0, &uc, 1, N, 1, hStream, false);
}

CUresult sim_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N,
                              CUstream hStream) {
    return fill(dstDevice, 0, &us, 2, N, 1, hStream, false);
}

CUresult sim_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
    return fill(dstDevice, 0, &ui, 4, N, 1, hStream, false);
}

CUresult sim_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                             size_t Height) {
    return fill(dstDevice, dstPitch, &uc, 1, Width, Height, nullptr, true);
}

CUresult sim_cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                              size_t Width, size_t Height) {
    return fill(dstDevice, dstPitch, &us, 2, Width, Height, nullptr, true);
}

CUresult sim_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                              size_t Height) {
    return fill(dstDevice, dstPitch, &ui, 4, Width, Height, nullptr, true);
}

CUresult sim_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                               size_t Width, size_t Height, CUstream hStream) {
    return fill(dstDevice, dstPitch, &uc, 1, Width, Height, hStream, false);
}

CUresult sim_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                                size_t Width, size_t Height, CUstream hStream) {
    return fill(dstDevice, dstPitch, &us, 2, Width, Height, hStream, false);
}

CUresult sim_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
                                size_t Width, size_t Height, CUstream hStream) {
    return fill(dstDevice, dstPitch, &ui, 4, Width, Height, hStream, false);
}

namespace {

Allocation* find_managed(CUdeviceptr address) {
    const Allocation* const found = find_allocation(address);
    return found != nullptr && found->kind == Kind::managed ? &allocations().at(found->base)
                                                            : nullptr;
}

int device_of(const CUmemLocation& location) {
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CU_DEVICE_CPU;
}

}  // namespace

CUresult sim_cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice to, CUstream hStream) {
    Stream* stream = nullptr;
    if (CUresult error = find_stream(hStream, stream)) {
        return error;
    }
    Allocation* const allocation = find_managed(devPtr);
    if (count == 0 || allocation == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    allocation->prefetched = to;
    return enqueue(*stream, Work{});
}

CUresult sim_cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation to, unsigned int,
                                   CUstream hStream) {
    return sim_cuMemPrefetchAsync(devPtr, count, device_of(to), hStream);
}

CUresult sim_cuMemAdvise(CUdeviceptr devPtr, size_t, CUmem_advise advice, CUdevice device) {
    Allocation* const allocation = find_managed(devPtr);
    if (allocation != nullptr && advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION) {
        allocation->preferred = device;
    }
    return allocation != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                            CUmemLocation location) {
    return sim_cuMemAdvise(devPtr, count, advice, device_of(location));
}

CUresult sim_cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute,
                                    CUdeviceptr devPtr, size_t) {
    const Allocation* const allocation = find_managed(devPtr);
    if (data == nullptr || dataSize != sizeof(int) || allocation == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (attribute) {
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
            *static_cast<int*>(data) = allocation->prefetched;
            return CUDA_SUCCESS;
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
            *static_cast<int*>(data) = allocation->preferred;
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
    }
}
