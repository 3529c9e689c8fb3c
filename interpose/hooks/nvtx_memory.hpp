// What NVTX's memory extension hands to a tool: <nvtx3/nvToolsExtMem.h> came with CUDA 12.9, so
// memlab has declarations of its own, which are compared with the header's where it is there.
#pragma once

#ifndef NVTX_NO_IMPL
#define NVTX_NO_IMPL
#endif
#include <nvtx3/nvToolsExt.h>

#include <cstddef>
#include <cstdint>

#if __has_include(<nvtx3/nvToolsExtMem.h>)
#include <nvtx3/nvToolsExtMem.h>
#endif

namespace memlab::interpose::nvtx_memory {

inline constexpr std::uint16_t module_id = 1;
inline constexpr std::uint16_t compat_id = 0x0102;
inline constexpr std::uint32_t virtual_address = 1;
inline constexpr std::uint32_t heap_is_sub_allocator = 1;
inline constexpr std::uint32_t ref_is_pointer = 1;
inline constexpr std::uint32_t ref_is_handle = 2;

/// The slots of the extension's functions.
enum Slot : std::size_t {
    heap_register,
    heap_unregister,
    heap_reset,
    regions_register,
    regions_resize,
    regions_unregister,
    regions_name
};

using Heap = struct HeapTag*;
using Region = struct RegionTag*;

union RegionRef {
    const void* pointer;
    Region handle;
};
struct VirtualRange {
    std::size_t size;
    const void* ptr;
};
struct HeapDescription {
    std::uint16_t extCompatID;
    std::uint16_t structSize;
    std::uint32_t reserved0;
    std::uint32_t usage;
    std::uint32_t type;
    std::size_t typeSpecificDescSize;
    const void* typeSpecificDesc;
    std::uint32_t category;
    std::uint32_t messageType;
    nvtxMessageValue_t message;
};
struct RegisterBatch {
    std::uint16_t extCompatID;
    std::uint16_t structSize;
    std::uint32_t regionType;
    Heap heap;
    std::size_t regionCount;
    std::size_t regionDescElementSize;
    const void* regionDescElements;
    Region* regionHandleElementsOut;
};
struct ResizeBatch {
    std::uint16_t extCompatID;
    std::uint16_t structSize;
    std::uint32_t regionType;
    std::size_t regionDescCount;
    std::size_t regionDescElementSize;
    const void* regionDescElements;
};
struct UnregisterBatch {
    std::uint16_t extCompatID;
    std::uint16_t structSize;
    std::uint32_t refType;
    std::size_t refCount;
    std::size_t refElementSize;
    const RegionRef* refElements;
};
struct RegionName {
    std::uint32_t regionRefType;
    std::uint32_t nameType;
    RegionRef region;
    nvtxMessageValue_t name;
    std::uint32_t category;
    std::uint32_t reserved0;
};
struct NameBatch {
    std::uint16_t extCompatID;
    std::uint16_t structSize;
    std::uint32_t reserved0;
    std::size_t regionCount;
    std::size_t regionElementSize;
    const RegionName* regionElements;
    std::size_t reserved1;
};

/// An extension as NVTX presents it to a tool.
struct Segment {
    std::size_t segmentId;
    std::size_t slotCount;
    std::intptr_t* functionSlots;
};
struct Module {
    std::uint16_t nvtxVer;
    std::uint16_t structSize;
    std::uint16_t moduleId;
    std::uint16_t compatId;
    std::size_t segmentsCount;
    Segment* segments;
    std::intptr_t (*getExportFunction)(std::uint32_t);
    const void* extInfo;
};

#ifdef NVTX_EXT_MODULEID_MEM
static_assert(module_id == NVTX_EXT_MODULEID_MEM && compat_id == NVTX_EXT_COMPATID_MEM &&
              virtual_address == NVTX_MEM_TYPE_VIRTUAL_ADDRESS &&
              heap_is_sub_allocator == NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR &&
              ref_is_pointer == NVTX_MEM_REGION_REF_TYPE_POINTER &&
              ref_is_handle == NVTX_MEM_REGION_REF_TYPE_HANDLE);
static_assert(heap_register == NVTX3EXT_CBID_nvtxMemHeapRegister &&
              heap_unregister == NVTX3EXT_CBID_nvtxMemHeapUnregister &&
              heap_reset == NVTX3EXT_CBID_nvtxMemHeapReset &&
              regions_register == NVTX3EXT_CBID_nvtxMemRegionsRegister &&
              regions_resize == NVTX3EXT_CBID_nvtxMemRegionsResize &&
              regions_unregister == NVTX3EXT_CBID_nvtxMemRegionsUnregister &&
              regions_name == NVTX3EXT_CBID_nvtxMemRegionsName);
#define MEMLAB_SAME_SIZE(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs))
#define MEMLAB_SAME_FIELD(ours, theirs, field) \
    static_assert(offsetof(ours, field) == offsetof(theirs, field))
MEMLAB_SAME_SIZE(RegionRef, nvtxMemRegionRef_t);
MEMLAB_SAME_SIZE(VirtualRange, nvtxMemVirtualRangeDesc_t);
MEMLAB_SAME_FIELD(VirtualRange, nvtxMemVirtualRangeDesc_t, ptr);
MEMLAB_SAME_SIZE(HeapDescription, nvtxMemHeapDesc_t);
MEMLAB_SAME_FIELD(HeapDescription, nvtxMemHeapDesc_t, structSize);
MEMLAB_SAME_FIELD(HeapDescription, nvtxMemHeapDesc_t, usage);
MEMLAB_SAME_FIELD(HeapDescription, nvtxMemHeapDesc_t, type);
MEMLAB_SAME_FIELD(HeapDescription, nvtxMemHeapDesc_t, typeSpecificDescSize);
MEMLAB_SAME_FIELD(HeapDescription, nvtxMemHeapDesc_t, typeSpecificDesc);
MEMLAB_SAME_FIELD(HeapDescription, nvtxMemHeapDesc_t, messageType);
MEMLAB_SAME_FIELD(HeapDescription, nvtxMemHeapDesc_t, message);
MEMLAB_SAME_SIZE(RegisterBatch, nvtxMemRegionsRegisterBatch_t);
MEMLAB_SAME_FIELD(RegisterBatch, nvtxMemRegionsRegisterBatch_t, structSize);
MEMLAB_SAME_FIELD(RegisterBatch, nvtxMemRegionsRegisterBatch_t, regionType);
MEMLAB_SAME_FIELD(RegisterBatch, nvtxMemRegionsRegisterBatch_t, heap);
MEMLAB_SAME_FIELD(RegisterBatch, nvtxMemRegionsRegisterBatch_t, regionCount);
MEMLAB_SAME_FIELD(RegisterBatch, nvtxMemRegionsRegisterBatch_t, regionDescElementSize);
MEMLAB_SAME_FIELD(RegisterBatch, nvtxMemRegionsRegisterBatch_t, regionDescElements);
MEMLAB_SAME_FIELD(RegisterBatch, nvtxMemRegionsRegisterBatch_t, regionHandleElementsOut);
MEMLAB_SAME_SIZE(ResizeBatch, nvtxMemRegionsResizeBatch_t);
MEMLAB_SAME_FIELD(ResizeBatch, nvtxMemRegionsResizeBatch_t, regionType);
MEMLAB_SAME_FIELD(ResizeBatch, nvtxMemRegionsResizeBatch_t, regionDescCount);
MEMLAB_SAME_FIELD(ResizeBatch, nvtxMemRegionsResizeBatch_t, regionDescElementSize);
MEMLAB_SAME_FIELD(ResizeBatch, nvtxMemRegionsResizeBatch_t, regionDescElements);
MEMLAB_SAME_SIZE(UnregisterBatch, nvtxMemRegionsUnregisterBatch_t);
MEMLAB_SAME_FIELD(UnregisterBatch, nvtxMemRegionsUnregisterBatch_t, refType);
MEMLAB_SAME_FIELD(UnregisterBatch, nvtxMemRegionsUnregisterBatch_t, refCount);
MEMLAB_SAME_FIELD(UnregisterBatch, nvtxMemRegionsUnregisterBatch_t, refElementSize);
MEMLAB_SAME_FIELD(UnregisterBatch, nvtxMemRegionsUnregisterBatch_t, refElements);
MEMLAB_SAME_SIZE(RegionName, nvtxMemRegionNameDesc_t);
MEMLAB_SAME_FIELD(RegionName, nvtxMemRegionNameDesc_t, nameType);
MEMLAB_SAME_FIELD(RegionName, nvtxMemRegionNameDesc_t, region);
MEMLAB_SAME_FIELD(RegionName, nvtxMemRegionNameDesc_t, name);
MEMLAB_SAME_SIZE(NameBatch, nvtxMemRegionsNameBatch_t);
MEMLAB_SAME_FIELD(NameBatch, nvtxMemRegionsNameBatch_t, structSize);
MEMLAB_SAME_FIELD(NameBatch, nvtxMemRegionsNameBatch_t, regionCount);
MEMLAB_SAME_FIELD(NameBatch, nvtxMemRegionsNameBatch_t, regionElementSize);
MEMLAB_SAME_FIELD(NameBatch, nvtxMemRegionsNameBatch_t, regionElements);
MEMLAB_SAME_SIZE(Segment, nvtxExtModuleSegment_t);
MEMLAB_SAME_FIELD(Segment, nvtxExtModuleSegment_t, slotCount);
MEMLAB_SAME_FIELD(Segment, nvtxExtModuleSegment_t, functionSlots);
MEMLAB_SAME_SIZE(Module, nvtxExtModuleInfo_t);
MEMLAB_SAME_FIELD(Module, nvtxExtModuleInfo_t, moduleId);
MEMLAB_SAME_FIELD(Module, nvtxExtModuleInfo_t, compatId);
MEMLAB_SAME_FIELD(Module, nvtxExtModuleInfo_t, segmentsCount);
MEMLAB_SAME_FIELD(Module, nvtxExtModuleInfo_t, segments);
#undef MEMLAB_SAME_SIZE
#undef MEMLAB_SAME_FIELD
#endif

}  // namespace memlab::interpose::nvtx_memory
