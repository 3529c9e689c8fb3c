// A program that meets the end of its device's memory, for MEMLAB_LIMIT. The first argument says
// how:
//
//   info [DEVICE]   prints what the driver says of the device's memory
//   fill KIND       takes pieces of 64 MiB until one fails, prints how many there were, frees all
//                   and does it again; KIND is device, pitch, vmm, array, async, pool, or managed
//                   (which ends after 64 pieces)
//   threads         eight threads take pieces of 2 MiB until none is left; prints how many
//   reuse           100 times: takes 512 MiB from the stream-ordered pool and frees it again
//   capture         asks for more than there is while a stream is captured in global mode
//   other           makes physical memory of device 1 while a context of device 0 is current
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "program.hpp"

using namespace program;

namespace {

constexpr std::size_t piece = std::size_t{64} << 20;
constexpr std::size_t max_pieces = 64;

/// One way of taking a piece of device memory and giving it back.
struct Kind {
    std::function<CUresult(CUdeviceptr*)> take;
    std::function<CUresult(CUdeviceptr)> give;
};

CUresult create_physical(CUdeviceptr* handle, int device, std::size_t bytes) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    CUmemGenericAllocationHandle created = 0;
    const CUresult result = cuMemCreate(&created, bytes, &properties, 0);
    *handle = created;
    return result;
}

Kind array_kind() {
    return {[](CUdeviceptr* handle) {
                CUDA_ARRAY_DESCRIPTOR shape{};
                shape.Width = 4096;
                shape.Height = 4096;
                shape.Format = CU_AD_FORMAT_FLOAT;
                shape.NumChannels = 1;
                CUarray array = nullptr;
                const CUresult result = cuArrayCreate(&array, &shape);
                *handle = reinterpret_cast<CUdeviceptr>(array);
                return result;
            },
            [](CUdeviceptr handle) { return cuArrayDestroy(reinterpret_cast<CUarray>(handle)); }};
}

Kind async_kind(CUmemoryPool pool) {
    return {[pool](CUdeviceptr* address) {
                return pool == nullptr ? cuMemAllocAsync(address, piece, nullptr)
                                       : cuMemAllocFromPoolAsync(address, piece, pool, nullptr);
            },
            [](CUdeviceptr address) { return cuMemFreeAsync(address, nullptr); }};
}

Kind kind_named(const std::string& name) {
    if (name == "vmm") {
        return {[](CUdeviceptr* handle) { return create_physical(handle, 0, piece); },
                [](CUdeviceptr handle) { return cuMemRelease(handle); }};
    }
    if (name == "array") {
        return array_kind();
    }
    if (name == "async") {
        return async_kind(nullptr);
    }
    if (name == "pool") {
        CUmemPoolProps properties{};
        properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        CUmemoryPool pool = nullptr;
        CHECK(cuMemPoolCreate(&pool, &properties));
        return async_kind(pool);
    }
    if (name == "managed") {
        return {[](CUdeviceptr* address) {
                    return cuMemAllocManaged(address, piece, CU_MEM_ATTACH_GLOBAL);
                },
                [](CUdeviceptr address) { return cuMemFree(address); }};
    }
    if (name == "pitch") {
        return {[](CUdeviceptr* address) {
                    std::size_t pitch = 0;
                    return cuMemAllocPitch(address, &pitch, piece / 1024, 1024, 4);
                },
                [](CUdeviceptr address) { return cuMemFree(address); }};
    }
    return {[](CUdeviceptr* address) { return cuMemAlloc(address, piece); },
            [](CUdeviceptr address) { return cuMemFree(address); }};
}

void fill(const std::string& name) {
    const Kind kind = kind_named(name);
    for (int round = 0; round < 2; ++round) {
        std::vector<CUdeviceptr> pieces;
        CUresult result = CUDA_SUCCESS;
        while (pieces.size() < max_pieces) {
            CUdeviceptr taken = 0;
            result = kind.take(&taken);
            if (result != CUDA_SUCCESS) {
                break;
            }
            pieces.push_back(taken);
        }
        SAY("%zu pieces, then %d\n", pieces.size(), static_cast<int>(result));
        for (const CUdeviceptr taken : pieces) {
            CHECK(kind.give(taken));
        }
        CHECK(cuCtxSynchronize());
    }
}

void fill_from_threads(CUcontext context) {
    std::atomic<int> pieces{0};
    std::vector<std::thread> threads;
    threads.reserve(8);
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&] {
            CHECK(cuCtxSetCurrent(context));
            CUdeviceptr block = 0;
            while (cuMemAlloc(&block, std::size_t{2} << 20) == CUDA_SUCCESS) {
                ++pieces;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    SAY("%d pieces\n", pieces.load());
}

void reuse() {
    for (int i = 0; i < 100; ++i) {
        CUdeviceptr block = 0;
        const CUresult result = cuMemAllocAsync(&block, std::size_t{512} << 20, nullptr);
        if (result != CUDA_SUCCESS) {
            SAY("round %d: %d\n", i, static_cast<int>(result));
            return;
        }
        CHECK(cuMemFreeAsync(block, nullptr));
    }
    SAY("100 rounds\n");
}

void capture() {
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUdeviceptr block = 0;
    SAY("in a capture: %d\n", static_cast<int>(cuMemAlloc(&block, std::size_t{3} << 30)));
    CUgraph graph = nullptr;
    SAY("the capture: %d\n", static_cast<int>(cuStreamEndCapture(stream, &graph)));
}

void other_device(CUcontext own) {
    CUdeviceptr handle = 0;
    SAY("without a context there: %d\n",
        static_cast<int>(create_physical(&handle, 1, std::size_t{3} << 30)));
    CHECK(cuMemRelease(handle));
    CUcontext there = nullptr;
    CHECK(cuDevicePrimaryCtxRetain(&there, 1));
    CHECK(cuCtxSetCurrent(there));
    release(allocate(1000));
    CHECK(cuCtxSetCurrent(own));
    SAY("with one: %d\n", static_cast<int>(create_physical(&handle, 1, std::size_t{3} << 30)));
    CUcontext current = nullptr;
    CHECK(cuCtxGetCurrent(&current));
    SAY("the current context is as it was: %s\n", current == own ? "yes" : "no");
}

}  // namespace

int main(int argc, char** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    const std::string argument = argc > 2 ? argv[2] : "";
    CUcontext context = use_device();
    if (mode == "info") {
        const int device = argument == "1" ? 1 : 0;
        CHECK(cuDevicePrimaryCtxRetain(&context, device));
        CHECK(cuCtxSetCurrent(context));
        std::size_t free = 0;
        std::size_t total = 0;
        std::size_t device_total = 0;
        CHECK(cuMemGetInfo(&free, &total));
        CHECK(cuDeviceTotalMem(&device_total, device));
        SAY("free %zu total %zu device %zu\n", free, total, device_total);
        release(allocate(piece));
        std::size_t free_after = 0;
        CHECK(cuMemGetInfo(&free_after, &total));
        SAY("all of it is free again: %s\n", free_after == free ? "yes" : "no");
    } else if (mode == "fill") {
        fill(argument);
    } else if (mode == "threads") {
        fill_from_threads(context);
    } else if (mode == "reuse") {
        reuse();
    } else if (mode == "capture") {
        capture();
    } else if (mode == "other") {
        other_device(context);
    }
    return 0;
}
