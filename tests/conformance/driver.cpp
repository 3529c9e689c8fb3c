// What the driver API answers, call by call. Run on a GPU it shows that these are the real driver's
// answers; on the simulated driver, that simcuda's are the same; under memlab, that memlab's are.
#include <cuda.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/conformance/check.hpp"
#include "tests/programs/resolved_ipc.hpp"

using memlab::conformance::check;
using memlab::conformance::check_true;

namespace {

CUcontext context;

void before_init() {
    CUdevice device;
    int version = 0;
    CUcontext current;
    check("before cuInit: cuDeviceGet", cuDeviceGet(&device, 0), 3);
    check("before cuInit: cuCtxGetCurrent", cuCtxGetCurrent(&current), 3);
    check("before cuInit: cuDriverGetVersion", cuDriverGetVersion(&version), 0);
    check_true("driver is not older than 12.5", version >= 12050);
}

void without_context() {
    CUdeviceptr p = 0;
    size_t bytes = 0;
    CUstream stream;
    CUcontext current;
    check("no context: cuCtxGetCurrent", cuCtxGetCurrent(&current), 0);
    check_true("no context: current is null", current == nullptr);
    check("no context: cuMemAlloc", cuMemAlloc(&p, 16), 201);
    check("no context: cuMemGetInfo", cuMemGetInfo(&bytes, &bytes), 201);
    check("no context: cuStreamCreate", cuStreamCreate(&stream, 0), 201);
}

void* resolve(const char* name, int version, cuuint64_t flags, int* status, int* result) {
    void* address = nullptr;
    CUdriverProcAddressQueryResult found{};
    *result = cuGetProcAddress(name, &address, version, flags, &found);
    *status = found;
    return address;
}

void proc_addresses() {
    struct Case {
        const char* base;
        int version;
        cuuint64_t flags;
        const char* symbol;
    };
    const Case cases[] = {
        {"cuMemAlloc", 13000, 0, "cuMemAlloc_v2"},
        {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
        {"cuMemAlloc", 3000, 0, "cuMemAlloc"},
        {"cuMemFree", 13000, 1, "cuMemFree_v2"},
        {"cuMemAllocAsync", 13000, 0, "cuMemAllocAsync"},
        {"cuMemAllocAsync", 13000, 1, "cuMemAllocAsync"},
        {"cuMemAllocAsync", 13000, 2, "cuMemAllocAsync_ptsz"},
        {"cuStreamBeginCapture", 13000, 2, "cuStreamBeginCapture_v2_ptsz"},
        {"cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture"},
        {"cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds"},
        {"cuMemPrefetchAsync", 13000, 0, "cuMemPrefetchAsync_v2"},
        {"cuMemPrefetchAsync", 12010, 0, "cuMemPrefetchAsync"},
        {"cuCtxDestroy", 13000, 0, "cuCtxDestroy_v2"},
        {"cuCtxCreate", 11040, 0, "cuCtxCreate_v3"},
        {"cuMemFree", 13000, 2, "cuMemFree_v2"},
        {"cuDeviceGetUuid", 13000, 0, "cuDeviceGetUuid_v2"},
        {"cuGetProcAddress", 13000, 0, "cuGetProcAddress_v2"},
        {"cuCtxRecordEvent", 13000, 0, "cuCtxRecordEvent"},
        {"cuStreamGetCaptureInfo", 13000, 2, "cuStreamGetCaptureInfo_v3_ptsz"},
    };
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    for (const Case& one : cases) {
        char name[160];
        std::snprintf(name, sizeof name, "cuGetProcAddress(%s, %d, flags %d) is %s", one.base,
                      one.version, static_cast<int>(one.flags), one.symbol);
        int status = 0;
        int result = 0;
        void* address = resolve(one.base, one.version, one.flags, &status, &result);
        check_true(name, address != nullptr && address == dlsym(library, one.symbol) &&
                             result == 0 && status == 0);
    }
    int status = 0;
    int result = 0;
    check_true("unknown name: no address",
               resolve("cuNoSuchFunction", 13000, 0, &status, &result) == nullptr);
    check("unknown name: result", result, 0);
    check("unknown name: status", status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    check_true("too old a version: no address",
               resolve("cuMemAllocAsync", 10000, 0, &status, &result) == nullptr);
    check("too old a version: result", result, 0);
    check("too old a version: status", status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    check_true("versioned name: no address",
               resolve("cuMemAlloc_v2", 13000, 0, &status, &result) == nullptr);
    check("versioned name: result", result, 0);
    check("versioned name: status", status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    check_true("flags 3 are flag 2", resolve("cuMemAllocAsync", 13000, 3, &status, &result) ==
                                         dlsym(library, "cuMemAllocAsync_ptsz"));
    check("flags 3: result", result, 0);
    check("flags 4: result", (resolve("cuMemAlloc", 13000, 4, &status, &result), result), 1);
    check("a version newer than the driver",
          (resolve("cuMemAlloc", 99990, 0, &status, &result), result), 1);
    using FirstGetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t);
    const auto first = reinterpret_cast<FirstGetProcAddress>(dlsym(library, "cuGetProcAddress"));
    void* address = &status;
    check("the first cuGetProcAddress", first("cuMemAlloc", &address, 13000, 0), 0);
    check_true("finds the same", address == dlsym(library, "cuMemAlloc_v2"));
    check("the first cuGetProcAddress with an unknown name",
          first("cuNoSuchFunction", &address, 13000, 0), 500);
}

void allocation() {
    CUdeviceptr a = 0;
    CUdeviceptr b = 0;
    check("cuMemAlloc of 0 bytes", cuMemAlloc(&a, 0), 1);
    check("cuMemAlloc to null", cuMemAlloc(nullptr, 16), 1);
    check("cuMemAlloc of 2^60 bytes", cuMemAlloc(&a, 1ULL << 60), 2);
    check("cuMemAlloc of SIZE_MAX bytes", cuMemAlloc(&a, SIZE_MAX), 2);
    check("cuMemFree(0)", cuMemFree(0), 0);
    check("cuMemFree of 0x1234", cuMemFree(0x1234), 1);
    int on_stack = 0;
    check("cuMemFree of a stack address", cuMemFree(reinterpret_cast<CUdeviceptr>(&on_stack)), 1);

    check("cuMemAlloc of 100 bytes", cuMemAlloc(&a, 100), 0);
    check("another", cuMemAlloc(&b, 100), 0);
    check("next 100 B allocation is 512 B further", static_cast<long long>(b - a), 512);
    CUdeviceptr base = 0;
    size_t size = 0;
    check("cuMemGetAddressRange of an interior pointer", cuMemGetAddressRange(&base, &size, a + 50),
          0);
    check_true("its base", base == a);
    check("its size is the requested one", static_cast<long long>(size), 100);
    check("cuMemGetAddressRange behind the requested size",
          cuMemGetAddressRange(&base, &size, a + 100), 500);
    check("cuMemGetAddressRange of 0x1234", cuMemGetAddressRange(&base, &size, 0x1234), 500);
    check("cuMemGetAddressRange without outputs", cuMemGetAddressRange(nullptr, nullptr, a), 0);
    size_t range = 0;
    check("RANGE_SIZE", cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, a + 7), 0);
    check("RANGE_SIZE is the requested size", static_cast<long long>(range), 100);
    unsigned long long id_a = 0;
    unsigned long long id_b = 0;
    check("BUFFER_ID", cuPointerGetAttribute(&id_a, CU_POINTER_ATTRIBUTE_BUFFER_ID, a), 0);
    cuPointerGetAttribute(&id_b, CU_POINTER_ATTRIBUTE_BUFFER_ID, b);
    check_true("two allocations have different BUFFER_IDs", id_a != id_b);
    unsigned type = 0;
    cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a);
    check("MEMORY_TYPE is device", type, CU_MEMORYTYPE_DEVICE);
    check("MEMORY_TYPE of a host pointer",
          cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                reinterpret_cast<CUdeviceptr>(&on_stack)),
          1);
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    int ordinal = 7;
    void* values[] = {&type, &ordinal};
    check("cuPointerGetAttributes of a host pointer",
          cuPointerGetAttributes(2, names, values, reinterpret_cast<CUdeviceptr>(&on_stack)), 0);
    check("type of a host pointer", type, 0);
    check("ordinal of a host pointer", ordinal, -2);
    CUcontext owner = nullptr;
    cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, a);
    check_true("CONTEXT of an allocation", owner == context);
    unsigned on = 1;
    check("SYNC_MEMOPS can be set", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a),
          0);

    check("cuMemFree of an interior pointer", cuMemFree(a + 16), 1);
    check("cuMemFree", cuMemFree(a), 0);
    check("cuMemFree a second time", cuMemFree(a), 1);
    check("cuMemFree of the other", cuMemFree(b), 0);
    check("cuMemGetAddressRange after the free", cuMemGetAddressRange(&base, &size, b), 500);

    size_t pitch = 0;
    check("cuMemAllocPitch", cuMemAllocPitch(&a, &pitch, 100, 10, 4), 0);
    check("its pitch", static_cast<long long>(pitch), 512);
    check("element size 3", cuMemAllocPitch(&b, &pitch, 100, 10, 3), 1);
    check("cuMemFree of pitched memory", cuMemFree(a), 0);
    check("cuMemAllocPitch of width 0", cuMemAllocPitch(&b, &pitch, 0, 10, 4), 1);

    check("cuMemAllocManaged", cuMemAllocManaged(&a, 4096, CU_MEM_ATTACH_GLOBAL), 0);
    unsigned managed = 0;
    cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, a);
    check("IS_MANAGED", managed, 1);
    std::memset(reinterpret_cast<void*>(a), 1, 4096);
    check("cuMemFree of managed memory", cuMemFree(a), 0);
    check("cuMemAllocManaged of 0 bytes", cuMemAllocManaged(&a, 0, CU_MEM_ATTACH_GLOBAL), 1);
    check("cuMemAllocManaged with flags 0", cuMemAllocManaged(&a, 16, 0), 1);

    size_t free_bytes = 0;
    size_t total = 0;
    check("cuMemGetInfo", cuMemGetInfo(&free_bytes, &total), 0);
    check_true("free is less than total", free_bytes <= total && total > 0);
    check("cuMemAlloc of more than there is", cuMemAlloc(&a, total + (1 << 21)), 2);
}

void pinned() {
    void* p = nullptr;
    p = &p;
    check("cuMemAllocHost of 0 bytes", cuMemAllocHost(&p, 0), 0);
    check_true("gives null", p == nullptr);
    check("cuMemAllocHost", cuMemAllocHost(&p, 100), 0);
    check("cuMemFree of pinned memory", cuMemFree(reinterpret_cast<CUdeviceptr>(p)), 1);
    unsigned type = 0;
    cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                          reinterpret_cast<CUdeviceptr>(p));
    check("MEMORY_TYPE of pinned memory", type, CU_MEMORYTYPE_HOST);
    check("cuMemFreeHost", cuMemFreeHost(p), 0);
    check("cuMemFreeHost a second time", cuMemFreeHost(p), 1);
    CUdeviceptr d = 0;
    cuMemAlloc(&d, 64);
    check("cuMemFreeHost of device memory", cuMemFreeHost(reinterpret_cast<void*>(d)), 1);
    cuMemFree(d);
    static char buffer[8192] __attribute__((aligned(4096)));
    check("cuMemHostRegister", cuMemHostRegister(buffer, sizeof buffer, 0), 0);
    check("cuMemHostRegister again", cuMemHostRegister(buffer, sizeof buffer, 0), 712);
    check("cuMemHostUnregister", cuMemHostUnregister(buffer), 0);
    check("cuMemHostUnregister again", cuMemHostUnregister(buffer), 713);
}

void async() {
    CUstream stream;
    CUdeviceptr p = 0;
    check("cuStreamCreate", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
    check("cuMemAllocAsync", cuMemAllocAsync(&p, 1000, stream), 0);
    CUdeviceptr base = 0;
    size_t size = 0;
    check("cuMemGetAddressRange of async memory", cuMemGetAddressRange(&base, &size, p + 10), 0);
    check("its size", static_cast<long long>(size), 1000);
    CUcontext owner = context;
    check("CONTEXT of async memory", cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p),
          0);
    check_true("which has none", owner == nullptr);
    check("cuMemFreeAsync", cuMemFreeAsync(p, stream), 0);
    check("cuMemFreeAsync a second time", cuMemFreeAsync(p, stream), 1);
    check("cuMemAllocAsync, to be freed by cuMemFree", cuMemAllocAsync(&p, 1000, stream), 0);
    check("cuMemFree of a cuMemAllocAsync pointer", cuMemFree(p), 0);
    check("cuMemAlloc, to be freed by cuMemFreeAsync", cuMemAlloc(&p, 1000), 0);
    check("cuMemFreeAsync of a cuMemAlloc pointer", cuMemFreeAsync(p, stream), 0);
    check("cuMemAllocAsync of 0 bytes", cuMemAllocAsync(&p, 0, stream), 0);
    check_true("gives 0", p == 0);
    check("cuMemFreeAsync(0)", cuMemFreeAsync(0, stream), 0);
    check("cuMemFreeAsync of 0x1234", cuMemFreeAsync(0x1234, stream), 1);
    CUmemoryPool pool;
    check("cuDeviceGetDefaultMemPool", cuDeviceGetDefaultMemPool(&pool, 0), 0);
    check("cuMemPoolTrimTo", cuMemPoolTrimTo(pool, 0), 0);
    check("cuMemPoolDestroy of the default pool", cuMemPoolDestroy(pool), 1);
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    check("cuMemPoolCreate", cuMemPoolCreate(&pool, &properties), 0);
    check("cuMemAllocFromPoolAsync", cuMemAllocFromPoolAsync(&p, 100, pool, stream), 0);
    check("cuMemFreeAsync of it", cuMemFreeAsync(p, stream), 0);
    check("cuMemPoolDestroy", cuMemPoolDestroy(pool), 0);
    check("cuStreamSynchronize", cuStreamSynchronize(stream), 0);
    check("cuStreamDestroy", cuStreamDestroy(stream), 0);
}

void transfers() {
    CUdeviceptr a = 0;
    CUdeviceptr b = 0;
    cuMemAlloc(&a, 4 << 20);
    cuMemAlloc(&b, 4 << 20);
    std::vector<unsigned char> out(4 << 20, 7);
    std::vector<unsigned char> in(4 << 20, 0);
    check("cuMemcpyHtoD", cuMemcpyHtoD(a, out.data(), out.size()), 0);
    check("cuMemcpyDtoD", cuMemcpyDtoD(b, a, out.size()), 0);
    check("cuMemsetD8", cuMemsetD8(b + 100, 9, 50), 0);
    check("cuMemcpyDtoH", cuMemcpyDtoH(in.data(), b, in.size()), 0);
    check_true("contents",
               in[99] == 7 && in[100] == 9 && in[149] == 9 && in[150] == 7 && in.back() == 7);
    check("cuMemsetD32 of a crooked address", cuMemsetD32(b + 1, 0, 4), 1);
    check("cuMemcpyHtoD of 0 bytes", cuMemcpyHtoD(a, out.data(), 0), 0);
    check("cuMemcpyDtoH from a host address",
          cuMemcpyDtoH(in.data(), reinterpret_cast<CUdeviceptr>(out.data()), 16), 1);
    check("cuMemcpy from host to host",
          cuMemcpy(reinterpret_cast<CUdeviceptr>(in.data()),
                   reinterpret_cast<CUdeviceptr>(out.data()), 16),
          0);
    cuMemFree(a);
    check("cuMemsetD8 of freed memory", cuMemsetD8(a, 0, 16), 1);
    check("cuMemcpyDtoH of freed memory", cuMemcpyDtoH(in.data(), a, 16), 1);
    cuMemFree(b);
}

void ipc() {
    CUdeviceptr p = 0;
    cuMemAlloc(&p, 4 << 20);
    CUipcMemHandle base{};
    CUipcMemHandle interior{};
    CUdeviceptr opened = 0;
    check("cuIpcGetMemHandle", cuIpcGetMemHandle(&base, p), 0);
    check("cuIpcGetMemHandle of an interior pointer", cuIpcGetMemHandle(&interior, p + 4096), 0);
    check("the handles have the same bytes", std::memcmp(&base, &interior, sizeof base), 0);
    check("cuIpcOpenMemHandle in the same process",
          cuIpcOpenMemHandle(&opened, base, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), 201);
    check("cuIpcGetMemHandle of 0x1234", cuIpcGetMemHandle(&base, 0x1234), 1);
    check("cuIpcCloseMemHandle of an allocation", cuIpcCloseMemHandle(p), 1);
    cuMemFree(p);
}

void vmm() {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    size_t granularity = 0;
    check(
        "cuMemGetAllocationGranularity",
        cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        0);
    check("granularity", static_cast<long long>(granularity), 2 << 20);
    CUdeviceptr range = 0;
    CUmemGenericAllocationHandle memory = 0;
    check("cuMemAddressReserve", cuMemAddressReserve(&range, 2 * granularity, 0, 0, 0), 0);
    check("cuMemAddressReserve of a crooked size", cuMemAddressReserve(&range, 100, 0, 0, 0), 1);
    check("cuMemCreate", cuMemCreate(&memory, granularity, &properties, 0), 0);
    check("cuMemCreate of a crooked size", cuMemCreate(&memory, 100, &properties, 0), 1);
    check("cuMemMap", cuMemMap(range, granularity, 0, memory, 0), 0);
    check("cuMemMap of the same place", cuMemMap(range, granularity, 0, memory, 0), 1);
    check("cuMemMap of the same memory elsewhere",
          cuMemMap(range + granularity, granularity, 0, memory, 0), 0);
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check("cuMemSetAccess", cuMemSetAccess(range, 2 * granularity, &access, 1), 0);
    check("a write through one mapping", cuMemsetD8(range + 5, 42, 1), 0);
    unsigned char seen = 0;
    check("is read through the other", cuMemcpyDtoH(&seen, range + granularity + 5, 1), 0);
    check("with its value", seen, 42);
    CUipcMemHandle handle;
    check("cuIpcGetMemHandle of VMM memory", cuIpcGetMemHandle(&handle, range), 1);
    check("cuMemFree of VMM memory", cuMemFree(range), 1);
    CUdeviceptr base = 0;
    size_t size = 0;
    check("cuMemGetAddressRange of VMM memory", cuMemGetAddressRange(&base, &size, range + 9), 0);
    CUmemGenericAllocationHandle again = 0;
    check("cuMemRetainAllocationHandle",
          cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(range)), 0);
    check_true("gives the same handle", again == memory);
    check("cuMemRelease", cuMemRelease(again), 0);
    check("cuMemRelease of the last reference", cuMemRelease(memory), 0);
    check("mapped memory is still there", cuMemsetD8(range, 1, 1), 0);
    check("cuMemAddressFree of a mapped range", cuMemAddressFree(range, 2 * granularity), 1);
    cuCtxSynchronize();  // unmapping waits for nothing
    check("cuMemUnmap", cuMemUnmap(range, 2 * granularity), 0);
    check("cuMemUnmap again", cuMemUnmap(range, 2 * granularity), 0);
    check("cuMemAddressFree", cuMemAddressFree(range, 2 * granularity), 0);
}

// The result of a call in the middle of a capture, and how the capture ends after it.
template <typename Call>
void in_capture(const char* what, CUstreamCaptureMode mode, Call&& call, int want, int want_end) {
    CUstream stream;
    CUgraph graph = nullptr;
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    check("capture begins", cuStreamBeginCapture(stream, mode), 0);
    char name[160];
    const char* mode_name = mode == CU_STREAM_CAPTURE_MODE_GLOBAL         ? "global"
                            : mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ? "thread-local"
                                                                          : "relaxed";
    std::snprintf(name, sizeof name, "%s in a %s capture", what, mode_name);
    check(name, call(stream), want);
    std::snprintf(name, sizeof name, "%s: the %s capture's end", what, mode_name);
    check(name, cuStreamEndCapture(stream, &graph), want_end);
    if (graph != nullptr) {
        cuGraphDestroy(graph);
    }
    cuStreamDestroy(stream);
}

// Which calls a global capture refuses.
void unsafe_calls(CUdeviceptr memory) {
    const auto global = CU_STREAM_CAPTURE_MODE_GLOBAL;
    static char buffer[8192] __attribute__((aligned(4096)));
    CUdeviceptr p = 0;
    size_t bytes = 0;
    void* host = nullptr;
    unsigned long long handle = 0;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemPoolProps pool_properties{};
    pool_properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    pool_properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUDA_ARRAY_DESCRIPTOR shape{64, 64, CU_AD_FORMAT_FLOAT, 1};
    in_capture(
        "cuMemAllocPitch", global,
        [&](CUstream) { return cuMemAllocPitch(&p, &bytes, 100, 10, 4); }, 900, 901);
    in_capture(
        "cuMemAllocManaged", global,
        [&](CUstream) { return cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL); }, 900, 901);
    in_capture(
        "cuMemHostAlloc", global, [&](CUstream) { return cuMemHostAlloc(&host, 16, 0); }, 900, 901);
    in_capture(
        "cuMemHostRegister", global,
        [&](CUstream) { return cuMemHostRegister(buffer, sizeof buffer, 0); }, 900, 901);
    cuMemHostUnregister(buffer);
    cuMemHostRegister(buffer, sizeof buffer, 0);
    in_capture(
        "cuMemHostUnregister", global, [&](CUstream) { return cuMemHostUnregister(buffer); }, 900,
        901);
    cuMemHostUnregister(buffer);
    cuMemAllocHost(&host, 16);
    in_capture(
        "cuMemFreeHost", global, [&](CUstream) { return cuMemFreeHost(host); }, 900, 901);
    cuMemFreeHost(host);
    in_capture(
        "cuMemAddressReserve", global,
        [&](CUstream) { return cuMemAddressReserve(&p, 2 << 20, 0, 0, 0); }, 0, 0);
    in_capture(
        "cuMemCreate", global,
        [&](CUstream) { return cuMemCreate(&handle, 2 << 20, &properties, 0); }, 0, 0);
    in_capture(
        "cuMemMap", global, [&](CUstream) { return cuMemMap(p, 2 << 20, 0, handle, 0); }, 0, 0);
    CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    in_capture(
        "cuMemSetAccess", global, [&](CUstream) { return cuMemSetAccess(p, 2 << 20, &access, 1); },
        0, 0);
    in_capture(
        "cuMemUnmap", global, [&](CUstream) { return cuMemUnmap(p, 2 << 20); }, 0, 0);
    in_capture(
        "cuMemRelease", global, [&](CUstream) { return cuMemRelease(handle); }, 0, 0);
    in_capture(
        "cuMemAddressFree", global, [&](CUstream) { return cuMemAddressFree(p, 2 << 20); }, 0, 0);
    CUmemoryPool pool = nullptr;
    in_capture(
        "cuMemPoolCreate", global,
        [&](CUstream) { return cuMemPoolCreate(&pool, &pool_properties); }, 900, 901);
    in_capture(
        "cuMemPoolDestroy", global, [&](CUstream) { return cuMemPoolDestroy(pool); }, 900, 901);
    CUarray array = nullptr;
    in_capture(
        "cuArrayCreate", global, [&](CUstream) { return cuArrayCreate(&array, &shape); }, 900, 901);
    cuArrayCreate(&array, &shape);
    in_capture(
        "cuArrayDestroy", global, [&](CUstream) { return cuArrayDestroy(array); }, 900, 901);
    in_capture(
        "cuMemGetAddressRange", global,
        [&](CUstream) { return cuMemGetAddressRange(&p, &bytes, memory); }, 0, 0);
    in_capture(
        "cuPointerGetAttribute", global,
        [&](CUstream) {
            return cuPointerGetAttribute(&handle, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory);
        },
        0, 0);
    CUipcMemHandle ipc_handle;
    in_capture(
        "cuIpcGetMemHandle", global,
        [&](CUstream) { return cuIpcGetMemHandle(&ipc_handle, memory); }, 0, 0);
    CUstream other = nullptr;
    cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
    in_capture(
        "cuStreamSynchronize of another stream", global,
        [&](CUstream) { return cuStreamSynchronize(other); }, 900, 901);
    in_capture(
        "cuStreamQuery of another stream", global, [&](CUstream) { return cuStreamQuery(other); },
        900, 901);
    in_capture(
        "cuMemAllocAsync on another stream", global,
        [&](CUstream) { return cuMemAllocAsync(&p, 100, other); }, 900, 901);
    in_capture(
        "cuMemFreeAsync on another stream", global,
        [&](CUstream) { return cuMemFreeAsync(p, other); }, 900, 901);
    in_capture(
        "cuStreamDestroy", global, [&](CUstream) { return cuStreamDestroy(other); }, 0, 0);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    in_capture(
        "cuGraphCreate", global, [&](CUstream) { return cuGraphCreate(&graph, 0); }, 0, 0);
    in_capture(
        "cuGraphInstantiate", global, [&](CUstream) { return cuGraphInstantiate(&exec, graph, 0); },
        900, 901);
}

void capture() {
    const auto global = CU_STREAM_CAPTURE_MODE_GLOBAL;
    const auto local = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    const auto relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr spare = 0;
    CUdeviceptr scratch = 0;
    CUevent event;
    cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    cuMemAlloc(&scratch, 4096);
    const auto allocate = [&](CUstream) { return cuMemAlloc(&spare, 1 << 20); };
    for (const auto mode : {global, local}) {
        in_capture(
            "nothing", mode, [](CUstream) { return 0; }, 0, 0);
        in_capture("cuMemAlloc", mode, allocate, 900, 901);
        cuMemAlloc(&spare, 1 << 20);
        in_capture(
            "cuMemFree", mode, [&](CUstream) { return cuMemFree(spare); }, 900, 901);
        check("the refused free did not free", cuMemFree(spare), 0);
        in_capture(
            "cuEventQuery", mode, [&](CUstream) { return cuEventQuery(event); }, 900, 901);
        in_capture(
            "cuMemFree(0)", mode, [&](CUstream) { return cuMemFree(0); }, 900, 901);
        in_capture(
            "cuMemAlloc of 0 bytes", mode, [&](CUstream) { return cuMemAlloc(&spare, 0); }, 900,
            901);
    }
    void* host = nullptr;
    int word = 0;
    in_capture(
        "cuMemAllocHost", global, [&](CUstream) { return cuMemAllocHost(&host, 16); }, 900, 901);
    in_capture(
        "cuMemcpyHtoD", global, [&](CUstream) { return cuMemcpyHtoD(scratch, &word, 4); }, 0, 0);
    in_capture(
        "cuMemcpyHtoD", relaxed, [&](CUstream) { return cuMemcpyHtoD(scratch, &word, 4); }, 0, 0);
    in_capture(
        "cuMemsetD8 of the legacy stream", global,
        [&](CUstream) { return cuMemsetD8(scratch, 0, 4); }, 0, 0);
    in_capture(
        "cuEventCreate", global,
        [](CUstream) {
            CUevent made;
            const CUresult result = cuEventCreate(&made, 0);
            cuEventDestroy(made);
            return result;
        },
        0, 0);
    in_capture(
        "cuStreamCreate", global,
        [](CUstream) {
            CUstream made;
            const CUresult result = cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
            cuStreamDestroy(made);
            return result;
        },
        0, 0);
    in_capture(
        "cuEventSynchronize", global, [&](CUstream) { return cuEventSynchronize(event); }, 900,
        901);
    in_capture(
        "cuEventQuery of an event recorded in the capture", relaxed,
        [](CUstream s) {
            CUevent made;
            cuEventCreate(&made, CU_EVENT_DISABLE_TIMING);
            cuEventRecord(made, s);
            const CUresult result = cuEventQuery(made);
            cuEventDestroy(made);
            return result;
        },
        907, 901);
    in_capture(
        "cuStreamWaitEvent for an event from before the capture", relaxed,
        [](CUstream s) {
            CUevent made;
            cuEventCreate(&made, CU_EVENT_DISABLE_TIMING);
            cuEventRecord(made, nullptr);
            const CUresult result = cuStreamWaitEvent(s, made, 0);
            cuEventDestroy(made);
            return result;
        },
        905, 901);
    in_capture(
        "cuMemPoolTrimTo", global,
        [](CUstream) {
            CUmemoryPool pool;
            cuDeviceGetDefaultMemPool(&pool, 0);
            return cuMemPoolTrimTo(pool, 0);
        },
        900, 901);
    unsafe_calls(scratch);
    in_capture("cuMemAlloc", relaxed, allocate, 0, 0);
    in_capture(
        "cuMemFree", relaxed, [&](CUstream) { return cuMemFree(spare); }, 0, 0);
    in_capture(
        "cuEventQuery", relaxed, [&](CUstream) { return cuEventQuery(event); }, 0, 0);
    for (const auto mode : {global, relaxed}) {
        in_capture(
            "cuCtxRecordEvent", mode, [&](CUstream) { return cuCtxRecordEvent(context, event); },
            900, 901);
        in_capture(
            "cuCtxWaitEvent", mode, [&](CUstream) { return cuCtxWaitEvent(context, event); }, 900,
            901);
        in_capture(
            "cuCtxSynchronize", mode, [](CUstream) { return cuCtxSynchronize(); }, 900, 901);
        in_capture(
            "cuStreamSynchronize", mode, [](CUstream s) { return cuStreamSynchronize(s); }, 900,
            901);
        in_capture(
            "cuStreamQuery", mode, [](CUstream s) { return cuStreamQuery(s); }, 900, 901);
        in_capture(
            "cuMemsetD8Async", mode, [&](CUstream s) { return cuMemsetD8Async(scratch, 1, 16, s); },
            0, 0);
    }
    in_capture(
        "a relaxed thread's cuMemAlloc", global,
        [&](CUstream) {
            CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
            cuThreadExchangeStreamCaptureMode(&mode);
            const CUresult result = cuMemAlloc(&spare, 1 << 20);
            cuThreadExchangeStreamCaptureMode(&mode);
            return result;
        },
        0, 0);
    cuMemFree(spare);
    const auto on_another_thread = [&](CUstream) {
        int result = -1;
        std::thread([&] {
            cuCtxSetCurrent(context);
            result = cuMemAlloc(&spare, 1 << 20);
        }).join();
        return result;
    };
    in_capture("another thread's cuMemAlloc", global, on_another_thread, 900, 901);
    in_capture("another thread's cuMemAlloc", local, on_another_thread, 0, 0);
    cuMemFree(spare);
    in_capture(
        "cuMemAllocAsync and cuMemFreeAsync", global,
        [&](CUstream s) {
            CUdeviceptr p = 0;
            const CUresult result = cuMemAllocAsync(&p, 1 << 20, s);
            return result != 0 ? result : cuMemFreeAsync(p, s);
        },
        0, 0);
    in_capture(
        "cuMemGetInfo", global,
        [&](CUstream) {
            size_t bytes = 0;
            return cuMemGetInfo(&bytes, &bytes);
        },
        0, 0);
    in_capture(
        "cuStreamIsCapturing", global,
        [&](CUstream s) {
            CUstreamCaptureStatus status{};
            cuStreamIsCapturing(s, &status);
            return static_cast<int>(status);
        },
        CU_STREAM_CAPTURE_STATUS_ACTIVE, 0);
    in_capture(
        "cuStreamIsCapturing after a refused call", global,
        [&](CUstream s) {
            cuMemAlloc(&spare, 16);
            CUstreamCaptureStatus status{};
            cuStreamIsCapturing(s, &status);
            return static_cast<int>(status);
        },
        CU_STREAM_CAPTURE_STATUS_INVALIDATED, 901);
    check("cuStreamBeginCapture of the legacy stream", cuStreamBeginCapture(nullptr, global), 900);

    // A blocking stream: the legacy stream would depend on it.
    CUstream blocking;
    CUgraph graph = nullptr;
    cuStreamCreate(&blocking, CU_STREAM_DEFAULT);
    cuStreamBeginCapture(blocking, relaxed);
    check("legacy stream while a blocking stream captures",
          cuMemsetD8Async(scratch, 1, 16, nullptr), 906);
    check("its end", cuStreamEndCapture(blocking, &graph), 901);
    check("cuStreamEndCapture without a capture", cuStreamEndCapture(blocking, &graph), 401);

    // A second stream drawn in by an event, joined and not.
    CUstream other;
    cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
    cuStreamBeginCapture(blocking, global);
    check("cuEventRecord in a capture", cuEventRecord(event, blocking), 0);
    check("cuStreamWaitEvent draws a stream in", cuStreamWaitEvent(other, event, 0), 0);
    CUstreamCaptureStatus status{};
    cuStreamIsCapturing(other, &status);
    check("it captures", status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    cuMemsetD8Async(scratch, 1, 16, other);
    check("the end of an unjoined capture", cuStreamEndCapture(blocking, &graph), 904);
    cuStreamIsCapturing(other, &status);
    check("the other stream is out", status, CU_STREAM_CAPTURE_STATUS_NONE);

    cuEventDestroy(event);
    cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    cuStreamBeginCapture(blocking, global);
    cuEventRecord(event, blocking);
    cuStreamWaitEvent(other, event, 0);
    cuMemsetD8Async(scratch, 1, 16, other);
    cuEventRecord(event, other);
    cuStreamWaitEvent(blocking, event, 0);
    check("the end of a joined capture", cuStreamEndCapture(blocking, &graph), 0);
    CUgraphExec exec;
    check("cuGraphInstantiate", cuGraphInstantiate(&exec, graph, 0), 0);
    cuMemsetD8(scratch, 0, 16);
    check("cuGraphLaunch", cuGraphLaunch(exec, blocking), 0);
    check("cuStreamSynchronize after it", cuStreamSynchronize(blocking), 0);
    unsigned char value = 0;
    cuMemcpyDtoH(&value, scratch + 3, 1);
    check("the graph ran", value, 1);
    check("cuGraphExecDestroy", cuGraphExecDestroy(exec), 0);
    check("cuGraphDestroy", cuGraphDestroy(graph), 0);
    cuStreamDestroy(blocking);
    cuStreamDestroy(other);
    cuEventDestroy(event);
    cuMemFree(scratch);
}

void graph_memory() {
    CUstream stream;
    CUgraph graph = nullptr;
    CUgraphExec exec;
    CUdeviceptr p = 0;
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    check("cuMemAllocAsync in a capture", cuMemAllocAsync(&p, 1 << 20, stream), 0);
    cuMemsetD8Async(p, 5, 16, stream);
    check("the end", cuStreamEndCapture(stream, &graph), 0);
    size_t nodes = 0;
    cuGraphGetNodes(graph, nullptr, &nodes);
    check("the graph has two nodes", static_cast<long long>(nodes), 2);
    CUgraph clone = nullptr;
    check("cuGraphClone with memory nodes", cuGraphClone(&clone, graph), 801);
    check("instantiate", cuGraphInstantiate(&exec, graph, 0), 0);
    check("launch", cuGraphLaunch(exec, stream), 0);
    check("synchronize", cuStreamSynchronize(stream), 0);
    unsigned char value = 0;
    check("graph memory is there after the launch", cuMemcpyDtoH(&value, p, 1), 0);
    check("with its contents", value, 5);
    check("a second launch before the free", cuGraphLaunch(exec, stream), 1);
    check("cuMemFree of graph memory", cuMemFree(p), 0);
    check("a second launch after the free", cuGraphLaunch(exec, stream), 0);
    check("cuMemFreeAsync of graph memory", cuMemFreeAsync(p, stream), 0);
    check("synchronize again", cuStreamSynchronize(stream), 0);
    cuGraphExecDestroy(exec);
    cuGraphDestroy(graph);
    cuStreamDestroy(stream);
}

void events() {
    CUevent event;
    CUstream stream;
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    check("cuEventCreate", cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), 0);
    check("cuEventQuery of an event never recorded", cuEventQuery(event), 0);
    check("cuCtxRecordEvent", cuCtxRecordEvent(context, event), 0);
    check("cuCtxWaitEvent", cuCtxWaitEvent(context, event), 0);
    check("cuEventSynchronize", cuEventSynchronize(event), 0);
    check("cuEventQuery", cuEventQuery(event), 0);
    check("cuEventRecord", cuEventRecord(event, stream), 0);
    check("cuStreamWaitEvent", cuStreamWaitEvent(nullptr, event, 0), 0);
    check("cuCtxSynchronize", cuCtxSynchronize(), 0);
    check("cuStreamQuery", cuStreamQuery(stream), 0);
    check("cuEventDestroy", cuEventDestroy(event), 0);
    cuStreamDestroy(stream);
}

void contexts() {
    CUcontext second = nullptr;
    CUcontext current = nullptr;
    check("cuDevicePrimaryCtxRetain again", cuDevicePrimaryCtxRetain(&second, 0), 0);
    check_true("gives the same context", second == context);
    check("cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease(0), 0);
    check("cuCtxPushCurrent", cuCtxPushCurrent(context), 0);
    check("cuCtxPopCurrent", cuCtxPopCurrent(&current), 0);
    check_true("pops what was pushed", current == context);
    check("cuCtxDestroy of a primary context", cuCtxDestroy(context), 201);
    check("cuDeviceGet of a device that is not there",
          cuDeviceGet(reinterpret_cast<CUdevice*>(&second), 999), 101);
    CUcontext none = reinterpret_cast<CUcontext>(uintptr_t{0});
    check("cuDevicePrimaryCtxRetain of a device that is not there",
          cuDevicePrimaryCtxRetain(&none, 999), 101);
}

void fork_child() {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        CUdeviceptr p = 0;
        _exit(cuMemAlloc(&p, 16) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    check("cuMemAlloc in a child of fork is refused as not initialized", status, 0);
}

void end_of_context() {
    CUdeviceptr p = 0;
    cuMemAlloc(&p, 100);
    check("cuDevicePrimaryCtxReset", cuDevicePrimaryCtxReset(0), 0);
    unsigned flags = 0;
    int active = 1;
    check("cuDevicePrimaryCtxGetState", cuDevicePrimaryCtxGetState(0, &flags, &active), 0);
    check("the primary context is not active", active, 0);
    check("cuMemAlloc in the destroyed context", cuMemAlloc(&p, 100), 709);
    check("cuMemFree in the destroyed context", cuMemFree(p), 709);
    CUcontext again = nullptr;
    check("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&again, 0), 0);
    check("cuCtxSetCurrent", cuCtxSetCurrent(again), 0);
    check("cuMemAlloc in the new context", cuMemAlloc(&p, 100), 0);
    check("cuMemFree in the new context", cuMemFree(p), 0);
}

}  // namespace

int main() {
    before_init();
    check("cuInit", cuInit(0), 0);
    check("cuInit with flags", cuInit(1), 1);
    proc_addresses();
    without_context();
    check("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, 0), 0);
    check("cuCtxSetCurrent", cuCtxSetCurrent(context), 0);
    allocation();
    pinned();
    async();
    transfers();
    ipc();
    vmm();
    events();
    capture();
    graph_memory();
    contexts();
    fork_child();
    end_of_context();
    return memlab::conformance::failures == 0 ? 0 : 1;
}
