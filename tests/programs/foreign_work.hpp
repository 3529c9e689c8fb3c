// Memory of one context that work of another uses, in programs that run on a GPU and on the
// simulated driver: there each piece of work of a slow stream takes a millisecond, and two owners'
// accesses that nothing orders end the process with code 86; on a GPU the contents tell.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <vector>

#include "tests/programs/program.hpp"
#include "tests/simcuda/simcuda.h"

namespace program {

inline constexpr std::size_t foreign_bytes = std::size_t{3} << 20;

/// A control function of the simulated driver; null on a real one.
template <class Function>
Function* if_simulated(const char* name) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return driver == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(driver, name));
}

/// Whose the block is from now on, for the simulated driver.
inline void belongs_to_another(CUdeviceptr block) {
    static std::uint64_t owners = 0;
    static auto* const owner = if_simulated<decltype(simcuda_owner)>("simcuda_owner");
    if (owner != nullptr) {
        owner(block, foreign_bytes, ++owners);
    }
}

/// A context and what works in it.
struct Worker {
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUdeviceptr waiting[2] = {};  ///< copied back and forth, so that what follows comes late

    explicit Worker(CUcontext of) : context(of) {
        constexpr std::size_t bytes = std::size_t{64} << 20;
        use();
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        for (CUdeviceptr& each : waiting) {
            CHECK(cuMemAlloc(&each, bytes));
        }
    }

    void use() const { CHECK(cuCtxSetCurrent(context)); }

    /// The context must be current.
    void delay(CUstream in) const {
        constexpr std::size_t bytes = std::size_t{64} << 20;
        if (auto* slow = if_simulated<decltype(simcuda_set_work_time)>("simcuda_set_work_time")) {
            slow(in, 1'000'000);
            return;
        }
        for (int i = 0; i < 20; ++i) {
            CHECK(cuMemcpyDtoDAsync(waiting[i % 2], waiting[1 - i % 2], bytes, in));
        }
    }

    CUdeviceptr block() const {
        use();
        const CUdeviceptr address = allocate(foreign_bytes);
        belongs_to_another(address);
        return address;
    }

    /// Every byte the value? Read behind the worker's own stream.
    bool holds(CUdeviceptr block, unsigned char value) const {
        std::vector<unsigned char> bytes(foreign_bytes);
        use();
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuMemcpyDtoH(bytes.data(), block, bytes.size()));
        for (const unsigned char each : bytes) {
            if (each != value) {
                return false;
            }
        }
        return true;
    }

    void done() const {
        use();
        release(waiting[0]);
        release(waiting[1]);
        CHECK(cuStreamDestroy(stream));
    }
};

/// How memory that another context's work still uses is freed.
enum class Free {
    in_stream,  ///< in the order of that work: plain CUDA needs no more
    at_once,    ///< plain CUDA waits for the memory's own context only, and overwrites
};

/// A block of `home` that work in `stream` of `other` uses is freed, and its memory had again and
/// filled. False when the fill was overwritten.
template <class Use>
bool reuse(const Worker& home, const Worker& other, CUstream stream, Free how, const Use& use) {
    const CUdeviceptr block = home.block();
    other.use();
    other.delay(stream);
    use(block);
    if (how == Free::in_stream) {
        CHECK(cuMemFreeAsync(block, stream));
    } else {
        home.use();
        release(block);
    }
    const CUdeviceptr next = home.block();
    CHECK(cuMemsetD8Async(next, 0x11, foreign_bytes, home.stream));
    other.use();
    CHECK(cuStreamSynchronize(stream));
    const bool right = home.holds(next, 0x11);
    release(next);
    return right;
}

}  // namespace program
