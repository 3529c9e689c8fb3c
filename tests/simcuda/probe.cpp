// A program for the tests of what the environment does, and of two processes: argv[1] says which.
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "tests/simcuda/simcuda.h"

namespace {

CUcontext enter() {
    CUcontext context = nullptr;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    return context;
}

// One line: the results of so many allocations of so many bytes.
int allocations(int count, size_t bytes) {
    enter();
    for (int i = 0; i < count; ++i) {
        CUdeviceptr p = 0;
        std::printf("%d ", cuMemAlloc(&p, bytes));
    }
    std::printf("\n");
    return 0;
}

int devices() {
    int count = -1;
    const int result = cuInit(0);
    cuDeviceGetCount(&count);
    size_t bytes = 0;
    cuDeviceTotalMem(&bytes, 0);
    std::printf("%d %d %zu\n", result, count, bytes >> 20);
    return 0;
}

int version() {
    int number = 0;
    void* address = nullptr;
    CUdriverProcAddressQueryResult status{};
    cuDriverGetVersion(&number);
    const int result = cuGetProcAddress("cuCtxRecordEvent", &address, number, 0, &status);
    CUcontext context = enter();
    CUevent event = nullptr;
    cuEventCreate(&event, 0);
    std::printf("%d %d %d %d %d\n", number, result, address != nullptr, status,
                cuCtxRecordEvent(context, event));
    return 0;
}

int race() {
    enter();
    CUdeviceptr p = 0;
    CUstream a = nullptr;
    CUstream b = nullptr;
    cuMemAlloc(&p, 4096);
    cuStreamCreate(&a, CU_STREAM_NON_BLOCKING);
    cuStreamCreate(&b, CU_STREAM_NON_BLOCKING);
    simcuda_owner(p, 4096, 1);
    simcuda_declare_access(a, p, 4096, 1);
    simcuda_owner(p, 4096, 2);
    simcuda_declare_access(b, p, 4096, 1);
    return 0;
}

// The parent exports and keeps the memory; a child that starts afresh imports, checks and writes.
int ipc(const char* self) {
    enter();
    CUdeviceptr before = 0;
    CUdeviceptr p = 0;
    CUipcMemHandle handle;
    cuMemAlloc(&before, 100);
    cuMemAlloc(&p, 100);
    cuMemsetD8(p, 7, 100);
    if (cuIpcGetMemHandle(&handle, p) != CUDA_SUCCESS) {
        return 1;
    }
    char text[2 * sizeof handle + 1];
    for (size_t i = 0; i < sizeof handle; ++i) {
        std::snprintf(text + 2 * i, 3, "%02x", static_cast<unsigned char>(handle.reserved[i]));
    }
    const pid_t child = fork();
    if (child == 0) {
        execl(self, self, "ipc-import", text, nullptr);
        _exit(9);
    }
    int status = 0;
    waitpid(child, &status, 0);
    unsigned char value = 0;
    cuMemcpyDtoH(&value, p + 99, 1);
    return status == 0 && value == 8 ? 0 : 1;
}

int ipc_import(const char* text) {
    enter();
    CUipcMemHandle handle;
    for (size_t i = 0; i < sizeof handle; ++i) {
        unsigned byte = 0;
        std::sscanf(text + 2 * i, "%2x", &byte);
        handle.reserved[i] = static_cast<char>(byte);
    }
    CUdeviceptr p = 0;
    CUdeviceptr again = 0;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    unsigned char value = 0;
    const bool good =
        cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS &&
        cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS &&
        p == again && cuMemcpyDtoH(&value, p + 99, 1) == CUDA_SUCCESS && value == 7 &&
        cuMemGetAddressRange(&base, &bytes, p + 5) == CUDA_SUCCESS && base == p && bytes == 100 &&
        cuMemsetD8(p + 99, 8, 1) == CUDA_SUCCESS && cuMemFree(p) == CUDA_ERROR_INVALID_VALUE &&
        cuIpcCloseMemHandle(p) == CUDA_SUCCESS && cuIpcCloseMemHandle(p) == CUDA_SUCCESS &&
        cuIpcCloseMemHandle(p) == CUDA_ERROR_INVALID_VALUE;
    return good ? 0 : 1;
}

constexpr size_t page = size_t{2} << 20;

void must(CUresult result) {
    if (result != CUDA_SUCCESS) {
        std::printf("%d\n", result);
        std::exit(1);
    }
}

void allocate_every(std::vector<CUdeviceptr>& all, size_t first, size_t every, size_t bytes) {
    for (size_t i = first; i < all.size(); i += every) {
        must(cuMemAlloc(&all[i], bytes));
    }
}

void free_every(const std::vector<CUdeviceptr>& all, size_t first, size_t every) {
    for (size_t i = first; i < all.size(); i += every) {
        must(cuMemFree(all[i]));
    }
}

// Buffers of cuMemAlloc, every second freed, others that do not fit into the holes, and the rest.
void many_buffers(size_t count, size_t bytes) {
    std::vector<CUdeviceptr> all(count);
    allocate_every(all, 0, 1, bytes);
    free_every(all, 0, 2);
    std::vector<CUdeviceptr> larger(count / 4);
    allocate_every(larger, 0, 1, bytes * 3 / 2);
    allocate_every(all, 0, 4, bytes);
    free_every(all, 1, 2);
    free_every(larger, 0, 1);
    free_every(all, 0, 4);
}

// Single mappings of one page, every second unmapped and mapped again; then all at once.
void many_mappings(size_t count) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    std::vector<CUmemGenericAllocationHandle> handles(count);
    CUdeviceptr range = 0;
    must(cuMemAddressReserve(&range, count * page, 0, 0, 0));
    const auto map = [&](size_t i) {
        must(cuMemCreate(&handles[i], page, &properties, 0));
        must(cuMemMap(range + i * page, page, 0, handles[i], 0));
        must(cuMemSetAccess(range + i * page, page, &access, 1));
    };
    for (size_t i = 0; i < count; ++i) {
        map(i);
    }
    for (size_t i = 0; i < count; i += 2) {
        must(cuMemUnmap(range + i * page, page));
        must(cuMemRelease(handles[i]));
    }
    for (size_t i = 0; i < count; i += 2) {
        map(i);
    }
    must(cuMemUnmap(range, count * page));
    for (const auto handle : handles) {
        must(cuMemRelease(handle));
    }
    must(cuMemAddressFree(range, count * page));
}

// Buffers of the stream's pool, freed, taken from what it caches, and freed for good.
void many_of_pool(size_t count) {
    CUstream stream = nullptr;
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    std::vector<CUdeviceptr> all(count);
    for (unsigned round = 0; round < 2; ++round) {
        for (size_t i = 0; i < count; ++i) {
            must(cuMemAllocAsync(&all[i], page * (1 + i % 2), stream));
        }
        for (const CUdeviceptr address : all) {
            must(cuMemFreeAsync(address, stream));
        }
    }
    must(cuStreamSynchronize(stream));
}

// Prints the microseconds of processor that it took.
int many(const char* what, size_t count) {
    enter();
    const std::clock_t begin = std::clock();
    if (std::strcmp(what, "buffers") == 0) {
        many_buffers(count, page);
    } else if (std::strcmp(what, "small") == 0) {
        many_buffers(count, 600'000);
    } else if (std::strcmp(what, "mappings") == 0) {
        many_mappings(count);
    } else {
        many_of_pool(count);
    }
    std::printf("%lld\n", static_cast<long long>(std::clock() - begin));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const auto is = [&](const char* name) { return argc > 1 && std::strcmp(argv[1], name) == 0; };
    if (is("allocations") && argc == 4) {
        return allocations(std::atoi(argv[2]), std::strtoull(argv[3], nullptr, 10));
    }
    if (is("ipc-import") && argc == 3) {
        return ipc_import(argv[2]);
    }
    if (is("many") && argc == 4) {
        return many(argv[2], std::strtoull(argv[3], nullptr, 10));
    }
    return is("devices")   ? devices()
           : is("version") ? version()
           : is("race")    ? race()
           : is("ipc")     ? ipc(argv[0])
                           : 64;
}
