// Driver API calls with good, odd and bad arguments over all families of memory. Nothing is
// expected here: compare.py demands that the same is seen with and without memlab, and that the
// simulated driver shows what a GPU showed.
//
// Each group runs in a process of its own, because some calls change what memlab does for the rest
// of the process (an IPC export and SYNC_MEMOPS end pooling).
//
// Left out: kernels that go beyond an allocation or use freed memory. The device notices them only
// by what it happens to have mapped there; memory that a pool keeps is still mapped. Copies and
// fills that do so are in calls_edges.cpp.
#include <cuda.h>
#include <unistd.h>

#include <cstdint>
#include <thread>

#include "tests/conformance/transcript.hpp"
#include "tests/programs/resolved_ipc.hpp"

using memlab::conformance::Group;
using memlab::conformance::run_group;
using memlab::conformance::transcript;

namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

CUcontext primary;

void start() {
    CALL(cuInit(0));
    CALL(cuDevicePrimaryCtxRetain(&primary, 0));
    CALL(cuCtxSetCurrent(primary));
}

void* host_pointer(CUdeviceptr address) {
    return reinterpret_cast<void*>(address);
}

/// Allocates and says what is common to all allocations.
CUdeviceptr allocate(const char* name, std::size_t bytes) {
    CUdeviceptr p = 0;
    transcript.value("bytes", static_cast<long long>(bytes));
    CALL(cuMemAlloc(&p, bytes));
    transcript.name(name, p, bytes);
    transcript.value("aligned to 512", p % 512 == 0);
    return p;
}

void release(CUdeviceptr p) {
    transcript.place("of", p);
    CALL(cuMemFree(p));
    transcript.forget(p);
}

void range_of(CUdeviceptr address) {
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    transcript.place("of", address);
    if (CALL(cuMemGetAddressRange(&base, &bytes, address)) == CUDA_SUCCESS) {
        transcript.place("base", base);
        transcript.value("bytes", static_cast<long long>(bytes));
    }
}

// All attributes of a pointer, each alone.
void describe(CUdeviceptr p) {
    transcript.place("attributes of", p);
    const auto number = [&](const char* what, CUpointer_attribute attribute, bool wide) {
        std::uint64_t value = 0;
        const CUresult result = cuPointerGetAttribute(&value, attribute, p);
        transcript.call(what, result);
        if (result == CUDA_SUCCESS) {
            transcript.value("it is",
                             wide ? static_cast<long long>(value) : static_cast<int>(value));
        }
    };
    const auto address = [&](const char* what, CUpointer_attribute attribute) {
        std::uint64_t value = 0;
        const CUresult result = cuPointerGetAttribute(&value, attribute, p);
        transcript.call(what, result);
        if (result == CUDA_SUCCESS) {
            transcript.place("it is", value);
        }
    };
    const auto id = [&](const char* what, CUpointer_attribute attribute) {
        std::uint64_t value = 0;
        const CUresult result = cuPointerGetAttribute(&value, attribute, p);
        transcript.call(what, result);
        if (result == CUDA_SUCCESS) {
            transcript.id("it is", value);
        }
    };
    id("CONTEXT", CU_POINTER_ATTRIBUTE_CONTEXT);
    number("MEMORY_TYPE", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, false);
    address("DEVICE_POINTER", CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
    address("HOST_POINTER", CU_POINTER_ATTRIBUTE_HOST_POINTER);
    number("SYNC_MEMOPS", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, false);
    id("BUFFER_ID", CU_POINTER_ATTRIBUTE_BUFFER_ID);
    number("IS_MANAGED", CU_POINTER_ATTRIBUTE_IS_MANAGED, false);
    number("DEVICE_ORDINAL", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, false);
    number("IS_LEGACY_CUDA_IPC_CAPABLE", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, false);
    address("RANGE_START_ADDR", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
    number("RANGE_SIZE", CU_POINTER_ATTRIBUTE_RANGE_SIZE, true);
    number("MAPPED", CU_POINTER_ATTRIBUTE_MAPPED, false);
    number("ALLOWED_HANDLE_TYPES", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, true);
    number("IS_GPU_DIRECT_RDMA_CAPABLE", CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, false);
    number("ACCESS_FLAGS", CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, false);
    id("MEMPOOL_HANDLE", CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
    // MAPPING_SIZE, MAPPING_BASE_ADDR and MEMORY_BLOCK_ID tell how the driver carved the memory up:
    // two runs of plain CUDA differ in them as soon as anything else was allocated before. Only
    // that they answer, and that the mapping holds the pointer, is common.
    std::uint64_t base = 0;
    std::uint64_t size = 0;
    std::uint64_t block = 0;
    transcript.call("MAPPING_BASE_ADDR",
                    cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, p));
    const CUresult sized = cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, p);
    transcript.call("MAPPING_SIZE", sized);
    if (sized == CUDA_SUCCESS && base != 0) {
        transcript.value("the mapping holds the pointer", p >= base && p - base < size);
    }
    transcript.call("MEMORY_BLOCK_ID",
                    cuPointerGetAttribute(&block, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, p));
    number("IS_HW_DECOMPRESS_CAPABLE", CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, false);
}

void some_attributes(CUdeviceptr p) {
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER,   CU_POINTER_ATTRIBUTE_CONTEXT,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,     CU_POINTER_ATTRIBUTE_MAPPED};
    unsigned type = 99;
    CUdeviceptr start_address = 99;
    std::size_t bytes = 99;
    unsigned long long id = 99;
    int ordinal = 99;
    CUdeviceptr on_device = 99;
    CUdeviceptr on_host = 99;
    CUcontext context = nullptr;
    unsigned managed = 99;
    unsigned mapped = 99;
    void* values[] = {&type,      &start_address, &bytes,   &id,      &ordinal,
                      &on_device, &on_host,       &context, &managed, &mapped};
    transcript.place("of", p);
    CALL(cuPointerGetAttributes(10, names, values, p));
    transcript.value("MEMORY_TYPE", type);
    transcript.place("RANGE_START_ADDR", start_address);
    transcript.value("RANGE_SIZE", static_cast<long long>(bytes));
    transcript.id("BUFFER_ID", id);
    transcript.value("DEVICE_ORDINAL", ordinal);
    transcript.place("DEVICE_POINTER", on_device);
    transcript.place("HOST_POINTER", on_host);
    transcript.value("HOST_POINTER is the pointer", on_host == p);
    transcript.id("CONTEXT", reinterpret_cast<std::uint64_t>(context));
    transcript.value("IS_MANAGED", managed);
    transcript.value("MAPPED", mapped);
}

// ---- groups -------------------------------------------------------------------------------------

void device_memory() {
    start();
    transcript.scene("sizes");
    constexpr std::size_t sizes[] = {1,           100,      255,      256,          257,
                                     511,         512,      513,      4 * kib,      64 * kib,
                                     mib - 1,     mib,      mib + 1,  2 * mib - 1,  2 * mib,
                                     2 * mib + 1, 10 * mib, 20 * mib, 20 * mib + 1, 64 * mib};
    constexpr std::size_t count = std::size(sizes);
    CUdeviceptr blocks[count];
    char names[count][16];
    for (std::size_t i = 0; i < count; ++i) {
        std::snprintf(names[i], sizeof names[i], "s%zu", i);
        blocks[i] = allocate(names[i], sizes[i]);
        range_of(blocks[i]);
        range_of(blocks[i] + sizes[i] / 2);
        range_of(blocks[i] + sizes[i] - 1);
    }
    transcript.scene("contents");
    for (std::size_t i = 0; i < count; ++i) {
        CALL(cuMemsetD8(blocks[i], static_cast<unsigned char>(i + 1), sizes[i]));
    }
    for (std::size_t i = 0; i < count; ++i) {
        unsigned char ends[2] = {0, 0};
        CALL(cuMemcpyDtoH(&ends[0], blocks[i], 1));
        CALL(cuMemcpyDtoH(&ends[1], blocks[i] + sizes[i] - 1, 1));
        transcript.value("first", ends[0]);
        transcript.value("last", ends[1]);
    }
    transcript.scene("bad frees");
    int on_stack = 0;
    static int in_data = 0;
    CALL(cuMemFree(0));
    CALL(cuMemFree(1));
    CALL(cuMemFree(0x1234));
    CALL(cuMemFree(~CUdeviceptr{0}));
    CALL(cuMemFree(reinterpret_cast<CUdeviceptr>(&on_stack)));
    CALL(cuMemFree(reinterpret_cast<CUdeviceptr>(&in_data)));
    for (const std::size_t offset :
         {std::size_t{1}, std::size_t{255}, std::size_t{256}, std::size_t{512}, mib, 2 * mib}) {
        transcript.value("offset", static_cast<long long>(offset));
        CALL(cuMemFree(blocks[count - 1] + offset));
    }
    CALL(cuMemFree(blocks[1] + 100));
    CALL(cuMemFreeHost(host_pointer(blocks[4])));
    transcript.scene("frees");
    for (std::size_t i = 0; i < count; i += 2) {
        const CUdeviceptr block = blocks[i];
        release(block);
        CALL(cuMemFree(block));
        range_of(block);
        CUdeviceptr inside = block + sizes[i] / 2;
        CALL(cuMemFree(inside));
        range_of(blocks[i + 1]);
    }
    for (std::size_t i = 1; i < count; i += 2) {
        release(blocks[i]);
    }
    transcript.scene("bad allocations");
    CUdeviceptr p = 0;
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1} << 60, std::size_t{1} << 63, SIZE_MAX, SIZE_MAX - 511}) {
        p = 77;
        transcript.value("bytes", static_cast<long long>(bytes));
        CALL(cuMemAlloc(&p, bytes));
        transcript.value("the pointer", static_cast<long long>(p));
    }
    CALL(cuMemAlloc(nullptr, 16));
    CALL(cuMemAlloc(nullptr, 0));
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    CALL(cuMemGetInfo(&free_bytes, &total));
    p = 77;
    CALL(cuMemAlloc(&p, total + 2 * mib));
    transcript.value("the pointer", static_cast<long long>(p));
    transcript.scene("pitch");
    std::size_t pitch = 0;
    for (const unsigned element : {0U, 1U, 2U, 3U, 4U, 8U, 16U, 32U}) {
        p = 0;
        transcript.value("element", element);
        if (CALL(cuMemAllocPitch(&p, &pitch, 1000, 20, element)) == CUDA_SUCCESS) {
            transcript.name("pitched", p, pitch * 20);
            transcript.value("pitch", static_cast<long long>(pitch));
            range_of(p + 999);
            release(p);
        }
    }
    CALL(cuMemAllocPitch(&p, &pitch, 0, 20, 4));
    CALL(cuMemAllocPitch(&p, &pitch, 1000, 0, 4));
    CALL(cuMemAllocPitch(&p, nullptr, 1000, 20, 4));
    CALL(cuMemAllocPitch(nullptr, &pitch, 1000, 20, 4));
    CALL(cuMemAllocPitch(&p, &pitch, SIZE_MAX, 2, 4));
    CALL(cuMemAllocPitch(&p, &pitch, mib, std::size_t{1} << 44, 4));
    for (const std::size_t width : {std::size_t{1}, std::size_t{512}, std::size_t{513}, 3 * mib}) {
        p = 0;
        transcript.value("width", static_cast<long long>(width));
        CALL(cuMemAllocPitch(&p, &pitch, width, 7, 16));
        transcript.name("pitched", p, pitch * 7);
        transcript.value("pitch", static_cast<long long>(pitch));
        range_of(p + pitch * 7 - 1);
        release(p);
    }
    transcript.scene("memory info");
    CALL(cuMemGetInfo(nullptr, &total));
    CALL(cuMemGetInfo(&free_bytes, nullptr));
    // The figures themselves change from run to run, and other processes use the device too: only
    // what an allocation must do to them is common.
    CALL(cuMemGetInfo(&free_bytes, &total));
    transcript.value("free within total", free_bytes <= total);
    const CUdeviceptr large = allocate("large", 256 * mib);
    std::size_t left = 0;
    CALL(cuMemGetInfo(&left, &total));
    transcript.value("256 MiB less",
                     free_bytes - left >= 256 * mib && free_bytes - left < 300 * mib);
    release(large);
    std::size_t again = 0;
    CALL(cuMemGetInfo(&again, &total));
    transcript.value("back again", again >= left + 256 * mib);
    std::size_t device_total = 0;
    CALL(cuDeviceTotalMem(&device_total, 0));
    transcript.value("the device's total", device_total == total);
    CALL(cuDeviceTotalMem(nullptr, 0));
    CALL(cuDeviceTotalMem(&device_total, 99));
}

void attributes() {
    start();
    static char registered[8192] __attribute__((aligned(4096)));
    CUstream stream = nullptr;
    CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    transcript.scene("device memory");
    const CUdeviceptr a = allocate("a", 100);
    const CUdeviceptr b = allocate("b", 3 * mib);
    describe(a);
    describe(a + 99);
    describe(b + 2 * mib);
    some_attributes(a + 7);
    some_attributes(b);
    transcript.scene("behind the end, freed, foreign");
    some_attributes(a + 100);
    range_of(a + 100);
    release(a);
    some_attributes(a);
    describe(a);
    const CUdeviceptr c = allocate("c", 100);
    some_attributes(c);
    release(c);
    release(b);
    describe(0);
    describe(0x1234);
    some_attributes(0);
    int on_stack = 0;
    describe(reinterpret_cast<CUdeviceptr>(&on_stack));
    some_attributes(reinterpret_cast<CUdeviceptr>(&on_stack));
    transcript.scene("managed memory");
    CUdeviceptr managed = 0;
    CALL(cuMemAllocManaged(&managed, 10000, CU_MEM_ATTACH_GLOBAL));
    transcript.name("managed", managed, 10000);
    describe(managed + 5);
    some_attributes(managed);
    transcript.scene("pinned memory");
    void* pinned = nullptr;
    CALL(cuMemHostAlloc(&pinned, 10000, CU_MEMHOSTALLOC_PORTABLE));
    transcript.name("pinned", reinterpret_cast<CUdeviceptr>(pinned), 10000);
    describe(reinterpret_cast<CUdeviceptr>(pinned) + 9);
    some_attributes(reinterpret_cast<CUdeviceptr>(pinned));
    transcript.scene("registered memory");
    CALL(cuMemHostRegister(registered, sizeof registered, 0));
    transcript.name("registered", reinterpret_cast<CUdeviceptr>(registered), sizeof registered);
    describe(reinterpret_cast<CUdeviceptr>(registered) + 4096);
    some_attributes(reinterpret_cast<CUdeviceptr>(registered));
    transcript.scene("stream-ordered memory");
    CUdeviceptr async = 0;
    CALL(cuMemAllocAsync(&async, 10000, stream));
    transcript.name("async", async, 10000);
    describe(async + 9999);
    some_attributes(async);
    transcript.scene("wrong calls");
    const CUdeviceptr d = allocate("d", 100);
    std::uint64_t value = 0;
    CUpointer_attribute bad_name[] = {static_cast<CUpointer_attribute>(31)};
    CUpointer_attribute good_name[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void* where[] = {&value};
    CALL(cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_RANGE_SIZE, d));
    CALL(cuPointerGetAttribute(&value, static_cast<CUpointer_attribute>(0), d));
    CALL(cuPointerGetAttribute(&value, static_cast<CUpointer_attribute>(31), d));
    CALL(cuPointerGetAttributes(0, good_name, where, d));
    CALL(cuPointerGetAttributes(1, nullptr, where, d));
    CALL(cuPointerGetAttributes(1, good_name, nullptr, d));
    CALL(cuPointerGetAttributes(1, bad_name, where, d));
    CALL(cuMemGetAddressRange(nullptr, nullptr, d));
    CALL(cuMemGetAddressRange(nullptr, nullptr, d + 200));
    release(d);
    CALL(cuMemFree(managed));
    CALL(cuMemFreeHost(pinned));
    CALL(cuMemHostUnregister(registered));
    CALL(cuMemFreeAsync(async, stream));
    CALL(cuStreamSynchronize(stream));
    CALL(cuStreamDestroy(stream));
}

void sync_memops() {
    start();
    const CUdeviceptr a = allocate("a", 100);
    const CUdeviceptr b = allocate("b", 100);
    unsigned on = 1;
    unsigned off = 0;
    CALL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_RANGE_SIZE, a));
    CALL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 0x1234));
    CALL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a + 100));
    CALL(cuPointerSetAttribute(nullptr, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    CALL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    CALL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a + 50));
    const auto is_on = [](CUdeviceptr p) {
        unsigned set = 7;
        transcript.place("of", p);
        CALL(cuPointerGetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
        transcript.value("it is", set);
    };
    is_on(a);
    is_on(b);
    const CUdeviceptr c = allocate("c", 100);
    is_on(c);
    CALL(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    is_on(a);
    CALL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    release(a);
    const CUdeviceptr d = allocate("d", 100);
    is_on(d);
    release(b);
    release(c);
    release(d);
}

void host_memory() {
    start();
    static char buffer[16384] __attribute__((aligned(4096)));
    void* p = &p;
    transcript.scene("pinned");
    CALL(cuMemAllocHost(&p, 0));
    transcript.value("null", p == nullptr);
    CALL(cuMemAllocHost(nullptr, 16));
    CALL(cuMemHostAlloc(nullptr, 16, 0));
    CALL(cuMemHostAlloc(&p, 16, 0xff00));
    CALL(cuMemHostAlloc(&p, 0, CU_MEMHOSTALLOC_PORTABLE));
    CALL(cuMemFreeHost(nullptr));
    CALL(cuMemFreeHost(buffer));
    for (const unsigned flags : {0U, 1U, 2U, 3U, 4U, 7U}) {
        p = nullptr;
        transcript.value("flags", flags);
        CALL(cuMemHostAlloc(&p, 5000, flags));
        transcript.name("pinned", reinterpret_cast<CUdeviceptr>(p), 5000);
        unsigned seen = 99;
        CALL(cuMemHostGetFlags(&seen, p));
        transcript.value("flags seen", seen);
        CUdeviceptr on_device = 0;
        CALL(cuMemHostGetDevicePointer(&on_device, p, 0));
        transcript.place("on the device", on_device);
        CALL(cuMemHostGetDevicePointer(&on_device, static_cast<char*>(p) + 100, 0));
        transcript.place("on the device", on_device);
        range_of(reinterpret_cast<CUdeviceptr>(p) + 1);
        CALL(cuMemFree(reinterpret_cast<CUdeviceptr>(p)));
        CALL(cuMemFreeHost(static_cast<char*>(p) + 1));
        CALL(cuMemHostUnregister(p));
        CALL(cuMemFreeHost(p));
        CALL(cuMemFreeHost(p));
    }
    CUdeviceptr on_device = 0;
    CALL(cuMemHostGetDevicePointer(&on_device, buffer, 0));
    CALL(cuMemHostGetDevicePointer(nullptr, buffer, 0));
    unsigned seen = 0;
    CALL(cuMemHostGetFlags(&seen, buffer));
    transcript.scene("registered");
    CALL(cuMemHostRegister(nullptr, 4096, 0));
    CALL(cuMemHostRegister(buffer, 0, 0));
    CALL(cuMemHostRegister(buffer, 8192, 0));
    CALL(cuMemHostRegister(buffer, 8192, 0));
    CALL(cuMemHostRegister(buffer + 4096, 8192, 0));
    CALL(cuMemHostRegister(buffer + 8192, 8192, CU_MEMHOSTREGISTER_PORTABLE));
    CALL(cuMemFreeHost(buffer));
    CALL(cuMemFree(reinterpret_cast<CUdeviceptr>(buffer)));
    CALL(cuMemHostUnregister(buffer + 4096));
    CALL(cuMemHostUnregister(buffer));
    CALL(cuMemHostUnregister(buffer));
    CALL(cuMemHostUnregister(buffer + 8192));
    CALL(cuMemHostUnregister(nullptr));
    const CUdeviceptr device = allocate("device", 8192);
    CALL(cuMemHostRegister(host_pointer(device), 4096, 0));
    CALL(cuMemHostUnregister(host_pointer(device)));
    CALL(cuMemHostGetDevicePointer(&on_device, host_pointer(device), 0));
    release(device);
    transcript.scene("managed");
    CUdeviceptr managed = 0;
    CALL(cuMemAllocManaged(&managed, 0, CU_MEM_ATTACH_GLOBAL));
    CALL(cuMemAllocManaged(&managed, 4096, 0));
    CALL(cuMemAllocManaged(&managed, 4096, 99));
    CALL(cuMemAllocManaged(nullptr, 4096, CU_MEM_ATTACH_GLOBAL));
    CALL(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_HOST));
    transcript.name("managed", managed, 4096);
    range_of(managed + 1);
    CALL(cuMemFree(managed + 1));
    CALL(cuMemFreeHost(host_pointer(managed)));
    release(managed);
    CALL(cuMemFree(managed));
}

void async_memory() {
    start();
    CUstream stream = nullptr;
    CUmemoryPool pool = nullptr;
    CUmemoryPool other = nullptr;
    CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CALL(cuDeviceGetDefaultMemPool(&pool, 0));
    CALL(cuDeviceGetMemPool(&other, 0));
    transcript.value("the default pool is current", pool == other);
    transcript.scene("allocations");
    CUdeviceptr p = 0;
    CALL(cuMemAllocAsync(nullptr, 16, stream));
    CALL(cuMemAllocAsync(&p, 0, stream));
    transcript.place("it is", p);
    CALL(cuMemAllocAsync(&p, std::size_t{1} << 60, stream));
    CALL(cuMemAllocAsync(&p, SIZE_MAX, stream));
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, 5 * mib}) {
        transcript.value("bytes", static_cast<long long>(bytes));
        CALL(cuMemAllocAsync(&p, bytes, stream));
        transcript.name("async", p, bytes);
        range_of(p + bytes - 1);
        range_of(p + bytes);
        CALL(cuMemsetD8Async(p, 1, bytes, stream));
        CALL(cuMemFreeAsync(p + 1, stream));
        CALL(cuMemFreeHost(host_pointer(p)));
        CALL(cuMemFreeAsync(p, stream));
        CALL(cuMemFreeAsync(p, stream));
        CALL(cuMemFree(p));
        CALL(cuStreamSynchronize(stream));
        transcript.forget(p);
    }
    transcript.scene("across families and streams");
    CALL(cuMemAllocAsync(&p, 1000, stream));
    CALL(cuMemFreeAsync(p, nullptr));
    CALL(cuMemAllocAsync(&p, 1000, nullptr));
    CALL(cuMemFreeAsync(p, CU_STREAM_PER_THREAD));
    CALL(cuMemAllocAsync(&p, 1000, stream));
    CALL(cuMemFree(p));
    CALL(cuMemFree(p));
    CUdeviceptr plain = allocate("plain", 1000);
    CALL(cuMemFreeAsync(plain + 1, stream));
    CALL(cuMemFreeAsync(plain, stream));
    CALL(cuStreamSynchronize(stream));
    CALL(cuMemFreeAsync(plain, stream));
    CALL(cuMemFree(plain));
    range_of(plain);
    transcript.forget(plain);
    CALL(cuMemFreeAsync(0, stream));
    CALL(cuMemFreeAsync(0x1234, stream));
    void* pinned = nullptr;
    CALL(cuMemAllocHost(&pinned, 100));
    CALL(cuMemFreeAsync(reinterpret_cast<CUdeviceptr>(pinned), stream));
    CALL(cuMemFreeHost(pinned));
    transcript.scene("pools");
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemPoolProps bad = properties;
    bad.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
    CALL(cuMemPoolCreate(nullptr, &properties));
    CALL(cuMemPoolCreate(&other, &bad));
    CALL(cuMemPoolCreate(&other, &properties));
    cuuint64_t threshold = 0;
    CALL(cuMemPoolGetAttribute(other, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    transcript.value("it is", static_cast<long long>(threshold));
    threshold = 64 * mib;
    CALL(cuMemPoolSetAttribute(other, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    CALL(cuMemAllocFromPoolAsync(&p, 1000, other, stream));
    transcript.name("of a pool", p, 1000);
    CALL(cuStreamSynchronize(stream));
    cuuint64_t used = 0;
    CALL(cuMemPoolGetAttribute(other, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    transcript.value("used is at least what was asked for", used >= 1000);
    cuuint64_t reserved = 0;
    CALL(cuMemPoolGetAttribute(other, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    transcript.value("reserved is at least used", reserved >= used);
    CALL(cuMemPoolTrimTo(other, 0));
    CALL(cuMemFreeAsync(p, stream));
    CALL(cuStreamSynchronize(stream));
    CALL(cuMemPoolTrimTo(other, 0));
    CALL(cuMemPoolGetAttribute(other, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    transcript.value("reserved after trimming", static_cast<long long>(reserved));
    CALL(cuDeviceSetMemPool(0, other));
    CALL(cuMemAllocAsync(&p, 1000, stream));
    CALL(cuMemFreeAsync(p, stream));
    CALL(cuDeviceSetMemPool(0, pool));
    CALL(cuMemPoolDestroy(other));
    CALL(cuMemPoolDestroy(pool));
    CALL(cuStreamSynchronize(stream));
    CALL(cuStreamDestroy(stream));
}

void virtual_memory() {
    start();
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAllocationProp bad = properties;
    bad.location.id = 99;
    std::size_t step = 0;
    CALL(cuMemGetAllocationGranularity(&step, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    transcript.value("it is", static_cast<long long>(step));
    CALL(cuMemGetAllocationGranularity(&step, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    transcript.value("it is", static_cast<long long>(step));
    CALL(cuMemGetAllocationGranularity(nullptr, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CALL(cuMemGetAllocationGranularity(&step, &bad, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    step = 2 * mib;
    transcript.scene("reserving");
    CUdeviceptr range = 0;
    CALL(cuMemAddressReserve(&range, 0, 0, 0, 0));
    CALL(cuMemAddressReserve(&range, 100, 0, 0, 0));
    CALL(cuMemAddressReserve(nullptr, step, 0, 0, 0));
    CALL(cuMemAddressReserve(&range, step, 3, 0, 0));
    CALL(cuMemAddressReserve(&range, step, 0, 0, 7));
    CALL(cuMemAddressReserve(&range, 4 * step, 0, 0, 0));
    transcript.name("range", range, 4 * step);
    transcript.value("aligned to 2 MiB", range % step == 0);
    range_of(range);
    some_attributes(range);
    transcript.scene("creating");
    CUmemGenericAllocationHandle memory = 0;
    CUmemGenericAllocationHandle again = 0;
    CALL(cuMemCreate(&memory, 0, &properties, 0));
    CALL(cuMemCreate(&memory, 100, &properties, 0));
    CALL(cuMemCreate(nullptr, step, &properties, 0));
    CALL(cuMemCreate(&memory, step, &bad, 0));
    CALL(cuMemCreate(&memory, step, &properties, 7));
    CALL(cuMemCreate(&memory, std::size_t{1} << 50, &properties, 0));
    CALL(cuMemCreate(&memory, 2 * step, &properties, 0));
    CUmemAllocationProp seen{};
    CALL(cuMemGetAllocationPropertiesFromHandle(&seen, memory));
    transcript.value("type", seen.type);
    transcript.value("location", seen.location.type);
    transcript.scene("mapping");
    CALL(cuMemMap(range + 1, step, 0, memory, 0));
    CALL(cuMemMap(range, 100, 0, memory, 0));
    CALL(cuMemMap(range, 2 * step, 0, memory, 1));
    CALL(cuMemMap(range, 2 * step, 0, memory, 0));
    CALL(cuMemMap(range, 2 * step, 0, memory, 0));
    some_attributes(range + step);
    range_of(range + step + 5);
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    unsigned long long rights = 99;
    CALL(cuMemGetAccess(&rights, &access.location, range));
    transcript.value("it is", static_cast<long long>(rights));
    CALL(cuMemSetAccess(range, 100, &access, 1));
    CALL(cuMemSetAccess(range, 4 * step, &access, 1));
    CALL(cuMemSetAccess(range, 2 * step, &access, 1));
    CALL(cuMemGetAccess(&rights, &access.location, range));
    transcript.value("it is", static_cast<long long>(rights));
    CALL(cuMemsetD8(range + 5, 42, 1));
    describe(range + 5);
    transcript.scene("other families' calls on it");
    CALL(cuMemFree(range));
    CALL(cuMemFreeAsync(range, nullptr));
    CALL(cuMemFreeHost(host_pointer(range)));
    CALL(cuMemRetainAllocationHandle(&again, host_pointer(range + step)));
    transcript.value("the same handle", again == memory);
    CALL(cuMemRelease(again));
    const CUdeviceptr plain = allocate("plain", 3 * mib);
    CALL(cuMemRetainAllocationHandle(&again, host_pointer(plain)));
    CALL(cuMemUnmap(plain, step));
    CALL(cuMemAddressFree(plain, step));
    CALL(cuMemSetAccess(plain, step, &access, 1));
    CALL(cuMemGetAccess(&rights, &access.location, plain));
    release(plain);
    transcript.scene("undoing");
    CALL(cuMemRelease(memory));
    CALL(cuMemsetD8(range + 6, 42, 1));
    CALL(cuMemAddressFree(range, 4 * step));
    cuCtxSynchronize();  // unmapping waits for nothing
    CALL(cuMemUnmap(range + 1, step));
    CALL(cuMemUnmap(range, 2 * step));
    some_attributes(range);
    CALL(cuMemUnmap(range, 2 * step));
    CALL(cuMemAddressFree(range, step));
    CALL(cuMemAddressFree(range, 4 * step));
    CALL(cuMemAddressFree(range, 4 * step));
}

void arrays() {
    start();
    CUarray array = nullptr;
    CUDA_ARRAY_DESCRIPTOR shape{64, 64, CU_AD_FORMAT_FLOAT, 1};
    CUDA_ARRAY_DESCRIPTOR empty{0, 64, CU_AD_FORMAT_FLOAT, 1};
    CUDA_ARRAY_DESCRIPTOR three{64, 64, CU_AD_FORMAT_FLOAT, 3};
    CUDA_ARRAY_DESCRIPTOR huge{std::size_t{1} << 40, 64, CU_AD_FORMAT_FLOAT, 1};
    CALL(cuArrayCreate(&array, &empty));
    CALL(cuArrayCreate(&array, &three));
    CALL(cuArrayCreate(&array, &huge));
    CALL(cuArrayCreate(nullptr, &shape));
    CALL(cuArrayCreate(&array, nullptr));
    CALL(cuArrayCreate(&array, &shape));
    CUDA_ARRAY_DESCRIPTOR seen{};
    CALL(cuArrayGetDescriptor(&seen, array));
    transcript.value("width", static_cast<long long>(seen.Width));
    transcript.value("height", static_cast<long long>(seen.Height));
    CALL(cuArrayDestroy(array));
    CUDA_ARRAY3D_DESCRIPTOR box{16, 16, 4, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0};
    CUDA_ARRAY3D_DESCRIPTOR layered{
        16, 16, 4, CU_AD_FORMAT_UNSIGNED_INT8, 4, CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST};
    CALL(cuArray3DCreate(&array, &box));
    CALL(cuArrayDestroy(array));
    CALL(cuArray3DCreate(&array, &layered));
    CALL(cuArrayDestroy(array));
    CUmipmappedArray mipmap = nullptr;
    CALL(cuMipmappedArrayCreate(&mipmap, &box, 3));
    CUarray level = nullptr;
    CALL(cuMipmappedArrayGetLevel(&level, mipmap, 1));
    CALL(cuMipmappedArrayGetLevel(&level, mipmap, 99));
    CALL(cuMipmappedArrayDestroy(mipmap));
    CALL(cuMipmappedArrayCreate(&mipmap, &box, 0));
    CALL(cuMipmappedArrayCreate(nullptr, &box, 3));
}

void handles() {
    start();
    const CUdeviceptr a = allocate("a", 100);
    const CUdeviceptr b = allocate("b", 4 * mib);
    CUipcMemHandle handle{};
    int descriptor = -1;
    transcript.scene("handles of ranges");
    const auto close_it = [&] {
        if (descriptor >= 0) {
            ::close(descriptor);
            descriptor = -1;
        }
    };
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, std::size_t{4096},
                                    std::size_t{65536}, 4 * mib, 8 * mib}) {
        transcript.value("bytes", static_cast<long long>(bytes));
        CALL(cuMemGetHandleForAddressRange(&descriptor, b, bytes,
                                           CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
        close_it();
    }
    CALL(cuMemGetHandleForAddressRange(&descriptor, a, 65536, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                       0));
    close_it();
    CALL(cuMemGetHandleForAddressRange(&descriptor, 0x1000, 4096,
                                       CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    CALL(
        cuMemGetHandleForAddressRange(nullptr, b, 4 * mib, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    transcript.scene("IPC");
    int on_stack = 0;
    void* pinned = nullptr;
    CUdeviceptr managed = 0;
    CUdeviceptr async = 0;
    CUdeviceptr opened = 0;
    CALL(cuIpcGetMemHandle(&handle, 0));
    CALL(cuIpcGetMemHandle(&handle, 0x1234));
    CALL(cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(&on_stack)));
    CALL(cuMemAllocHost(&pinned, 100));
    CALL(cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(pinned)));
    CALL(cuMemFreeHost(pinned));
    CALL(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    CALL(cuIpcGetMemHandle(&handle, managed));
    CALL(cuMemFree(managed));
    CALL(cuMemAllocAsync(&async, 4096, nullptr));
    CALL(cuIpcGetMemHandle(&handle, async));
    CALL(cuMemFreeAsync(async, nullptr));
    CALL(cuIpcGetMemHandle(&handle, a + 100));
    CALL(cuIpcCloseMemHandle(b));
    CALL(cuIpcCloseMemHandle(0));
    // An export was tried: from now on memory is plain, and exports are exact (ipc.cpp among the
    // test programs tells what becomes of blocks from before).
    const CUdeviceptr c = allocate("c", 4 * mib);
    CUipcMemHandle base{};
    CUipcMemHandle inside{};
    CALL(cuIpcGetMemHandle(nullptr, c));
    CALL(cuIpcGetMemHandle(&base, c));
    CALL(cuIpcGetMemHandle(&inside, c + 4096));
    transcript.value("the same handle", std::memcmp(&base, &inside, sizeof base) == 0);
    CALL(cuIpcOpenMemHandle(&opened, base, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CALL(cuIpcOpenMemHandle(&opened, base, 0));
    range_of(c + 4096);
    release(c);
    CALL(cuIpcGetMemHandle(&base, c));
    release(a);
    release(b);
}

void contexts() {
    transcript.scene("before cuInit");
    CUdeviceptr p = 0;
    CUcontext current = nullptr;
    CALL(cuMemAlloc(&p, 16));
    CALL(cuMemFree(0));
    CALL(cuMemFree(0x1234));
    CALL(cuCtxGetCurrent(&current));
    start();
    transcript.scene("a context of one's own");
    CUcontext own = nullptr;
    const CUdeviceptr a = allocate("a", 1000);
    const CUdeviceptr a2 = allocate("a2", 1000);
    CUstream stream = nullptr;
    CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CALL(cuCtxCreate(&own, nullptr, 0, 0));
    const CUdeviceptr b = allocate("b", 1000);
    const CUdeviceptr b2 = allocate("b2", 5 * mib);
    range_of(a + 1);
    range_of(b + 1);
    some_attributes(a);
    some_attributes(b);
    const auto belongs = [&](CUdeviceptr address) {
        CUcontext owner = nullptr;
        CALL(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address));
        transcript.value("primary", owner == primary);
        transcript.value("own", owner == own);
    };
    belongs(a);
    belongs(b);
    CALL(cuMemsetD8(a, 1, 1000));
    CALL(cuMemFree(a));
    CALL(cuMemFree(a));
    CALL(cuCtxPushCurrent(primary));
    const CUdeviceptr c = allocate("c", 1000);
    CALL(cuMemFree(b));
    CALL(cuCtxPopCurrent(&current));
    transcript.value("primary", current == primary);
    CALL(cuMemFree(c));
    transcript.scene("no context");
    CALL(cuCtxSetCurrent(nullptr));
    CALL(cuCtxGetCurrent(&current));
    transcript.value("the one below", current == primary);
    CALL(cuCtxSetCurrent(nullptr));
    p = 77;
    CALL(cuMemAlloc(&p, 16));
    transcript.value("the pointer", static_cast<long long>(p));
    CALL(cuMemFree(0));
    CALL(cuMemFreeAsync(a2, nullptr));
    CALL(cuMemFreeAsync(a2, CU_STREAM_PER_THREAD));
    CALL(cuMemFreeAsync(a2, stream));
    some_attributes(b2);
    CALL(cuMemFree(b2));
    CALL(cuMemFree(0x1234));
    CALL(cuMemFreeAsync(b2, nullptr));
    range_of(b2 + 1);
    some_attributes(b2);
    std::size_t bytes = 0;
    CALL(cuMemGetInfo(&bytes, &bytes));
    CALL(cuCtxPopCurrent(&current));
    transcript.scene("another thread without a context");
    CALL(cuCtxSetCurrent(own));
    std::thread([&] {
        CALL(cuMemAlloc(&p, 16));
        CALL(cuMemFree(b2));
    }).join();
    range_of(b2 + 1);
    transcript.scene("destroying it");
    CALL(cuCtxDestroy(own));
    CALL(cuCtxGetCurrent(&current));
    transcript.value("none", current == nullptr);
    CALL(cuCtxSetCurrent(primary));
    range_of(b2 + 1);
    CALL(cuMemFree(b2));
    const CUdeviceptr d = allocate("d", 1000);
    CALL(cuMemsetD8(d, 1, 1000));
    transcript.scene("odd calls");
    CALL(cuCtxPushCurrent(nullptr));
    CALL(cuCtxSetCurrent(primary));
    CALL(cuCtxDestroy(nullptr));
    CALL(cuCtxCreate(nullptr, nullptr, 0, 0));
    CALL(cuCtxCreate(&own, nullptr, 0, 99));
    CALL(cuDevicePrimaryCtxRetain(nullptr, 0));
    CALL(cuDevicePrimaryCtxRelease(99));
    CALL(cuDevicePrimaryCtxReset(99));
    transcript.scene("peers");
    int can = 7;
    CALL(cuDeviceCanAccessPeer(&can, 0, 0));
    transcript.value("it is", can);
    CALL(cuDeviceCanAccessPeer(&can, 0, 99));
    CALL(cuCtxEnablePeerAccess(primary, 0));
    CALL(cuCtxEnablePeerAccess(nullptr, 0));
    CALL(cuCtxEnablePeerAccess(primary, 1));
    CALL(cuCtxDisablePeerAccess(primary));
    CALL(cuMemcpyPeer(d, primary, d + 500, primary, 100));
    transcript.scene("reset");
    const CUdeviceptr e = allocate("e", 5 * mib);
    CALL(cuDevicePrimaryCtxReset(0));
    CALL(cuMemAlloc(&p, 16));
    CALL(cuMemFree(d));
    range_of(e + 1);
    CALL(cuDevicePrimaryCtxRetain(&primary, 0));
    CALL(cuCtxSetCurrent(primary));
    CALL(cuMemFree(e));
    CALL(cuMemFree(d));
    CALL(cuMemFree(0x1234));
    release(allocate("f", 5 * mib));
    transcript.scene("the last release");
    allocate("g", 1000);
    CALL(cuDevicePrimaryCtxRelease(0));
    CALL(cuDevicePrimaryCtxRelease(0));
    unsigned flags = 0;
    int active = 7;
    CALL(cuDevicePrimaryCtxGetState(0, &flags, &active));
    transcript.value("active", active);
}

const char* name_of(CUstreamCaptureMode mode) {
    return mode == CU_STREAM_CAPTURE_MODE_GLOBAL         ? "global"
           : mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ? "thread-local"
                                                         : "relaxed";
}

// What `calls` see while a stream of this thread captures, and how the capture ends.
template <class Calls>
void during_capture(const char* what, CUstreamCaptureMode mode, const Calls& calls) {
    char title[128];
    std::snprintf(title, sizeof title, "%s in a %s capture", what, name_of(mode));
    transcript.scene(title);
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CALL(cuStreamBeginCapture(stream, mode));
    calls(stream);
    CUstreamCaptureStatus status{};
    CALL(cuStreamIsCapturing(stream, &status));
    transcript.value("status", status);
    CALL(cuStreamEndCapture(stream, &graph));
    if (graph != nullptr) {
        std::size_t nodes = 0;
        CALL(cuGraphGetNodes(graph, nullptr, &nodes));
        transcript.value("nodes", static_cast<long long>(nodes));
        CALL(cuGraphDestroy(graph));
    }
    CALL(cuStreamDestroy(stream));
}

void captures() {
    start();
    const CUdeviceptr scratch = allocate("scratch", 3 * mib);
    release(allocate("cached", 3 * mib));
    for (const CUstreamCaptureMode mode :
         {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
          CU_STREAM_CAPTURE_MODE_RELAXED}) {
        CUdeviceptr p = 0;
        during_capture("an allocation from memory that was freed", mode, [&](CUstream) {
            p = 0;
            CALL(cuMemAlloc(&p, 3 * mib));
        });
        CALL(cuMemFree(p));
        during_capture("a large allocation", mode, [&](CUstream) {
            p = 0;
            CALL(cuMemAlloc(&p, 100 * mib));
        });
        CALL(cuMemFree(p));
        p = allocate("p", 1000);
        during_capture("a free", mode, [&](CUstream) { CALL(cuMemFree(p)); });
        CALL(cuMemFree(p));
        p = allocate("p", 1000);
        during_capture("a stream-ordered free of plain memory", mode,
                       [&](CUstream stream) { CALL(cuMemFreeAsync(p, stream)); });
        CALL(cuMemFree(p));
        p = allocate("p", 1000);
        during_capture("a bad free", mode, [&](CUstream) { CALL(cuMemFree(p + 1)); });
        during_capture("a foreign free", mode, [&](CUstream) { CALL(cuMemFree(0x1234)); });
        during_capture("questions", mode, [&](CUstream) {
            range_of(p + 1);
            some_attributes(p);
            std::size_t bytes = 0;
            CALL(cuMemGetInfo(&bytes, &bytes));
        });
        CALL(cuMemFree(p));
        during_capture("another thread's calls", mode, [&](CUstream) {
            std::thread([&] {
                CUdeviceptr q = 0;
                CALL(cuCtxSetCurrent(primary));
                CALL(cuMemAlloc(&q, 3 * mib));
                CALL(cuMemFree(q));
            }).join();
        });
        during_capture("another, relaxed thread's calls", mode, [&](CUstream) {
            std::thread([&] {
                CUdeviceptr q = 0;
                CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_RELAXED;
                CALL(cuCtxSetCurrent(primary));
                CALL(cuThreadExchangeStreamCaptureMode(&own));
                transcript.value("before", own);
                CALL(cuMemAlloc(&q, 3 * mib));
                CALL(cuMemFree(q));
                CALL(cuThreadExchangeStreamCaptureMode(&own));
                transcript.value("before", own);
            }).join();
        });
        during_capture("work", mode, [&](CUstream stream) {
            CALL(cuMemsetD8Async(scratch, 1, 1000, stream));
            CALL(cuMemcpyDtoDAsync(scratch + mib, scratch, 1000, stream));
        });
        during_capture("stream-ordered memory", mode, [&](CUstream stream) {
            CUdeviceptr q = 0;
            CALL(cuMemAllocAsync(&q, 1000, stream));
            CALL(cuMemsetD8Async(q, 1, 1000, stream));
            CALL(cuMemFreeAsync(q, stream));
        });
        transcript.scene("afterwards");
        release(allocate("after", 3 * mib));
    }
    transcript.scene("memory made in a relaxed capture, used by its graph");
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUdeviceptr made = 0;
    CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CALL(cuMemAlloc(&made, 1000));
    CALL(cuMemsetD8Async(made, 9, 1000, stream));
    CALL(cuStreamEndCapture(stream, &graph));
    CALL(cuGraphInstantiate(&exec, graph, 0));
    CALL(cuGraphLaunch(exec, stream));
    CALL(cuStreamSynchronize(stream));
    unsigned char value = 0;
    CALL(cuMemcpyDtoH(&value, made + 999, 1));
    transcript.value("it is", value);
    CALL(cuMemFree(made));
    CALL(cuGraphExecDestroy(exec));
    CALL(cuGraphDestroy(graph));
    transcript.scene("captures that end otherwise");
    CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CALL(cuStreamEndCapture(stream, nullptr));
    CALL(cuStreamEndCapture(stream, &graph));
    CALL(cuStreamEndCapture(stream, &graph));
    CALL(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CALL(cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(3)));
    CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CALL(cuStreamDestroy(stream));
    release(allocate("after a destroyed stream", 3 * mib));
    release(scratch);
}

void graph_memory() {
    start();
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUgraphNode made = nullptr;
    CUgraphNode freed = nullptr;
    CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CALL(cuGraphCreate(&graph, 0));
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CALL(cuGraphAddMemAllocNode(&made, graph, nullptr, 0, &parameters));
    parameters.bytesize = 10000;
    CALL(cuGraphAddMemAllocNode(nullptr, graph, nullptr, 0, &parameters));
    CALL(cuGraphAddMemAllocNode(&made, graph, nullptr, 0, &parameters));
    transcript.name("node", parameters.dptr, 10000);
    transcript.value("has an address", parameters.dptr != 0);
    CALL(cuGraphAddMemFreeNode(&freed, graph, nullptr, 0, 0x1234));
    CALL(cuGraphAddMemFreeNode(&freed, graph, &made, 1, parameters.dptr));
    CALL(cuGraphAddMemFreeNode(&freed, graph, &made, 1, parameters.dptr));
    CALL(cuGraphInstantiate(&exec, graph, 0));
    CALL(cuGraphLaunch(exec, stream));
    CALL(cuGraphLaunch(exec, stream));
    CALL(cuStreamSynchronize(stream));
    CALL(cuMemFree(parameters.dptr));
    CALL(cuMemFreeAsync(parameters.dptr, stream));
    CALL(cuGraphExecDestroy(exec));
    CALL(cuGraphDestroy(graph));
    CALL(cuDeviceGraphMemTrim(0));
    cuuint64_t used = 7;
    CALL(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    transcript.value("used", static_cast<long long>(used));
    CALL(cuStreamDestroy(stream));
}

constexpr Group groups[] = {
    {"device", device_memory}, {"attributes", attributes}, {"sync_memops", sync_memops},
    {"host", host_memory},     {"async", async_memory},    {"vmm", virtual_memory},
    {"arrays", arrays},        {"handles", handles},       {"contexts", contexts},
    {"captures", captures},    {"graphs", graph_memory},
};

}  // namespace

int main(int argc, char** argv) {
    return run_group(groups, argc, argv);
}
