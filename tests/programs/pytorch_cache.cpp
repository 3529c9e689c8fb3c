// A program of tensors from a cache like PyTorch's (tests/programs/pytorch), which Python loads as
// this does: with RTLD_LOCAL.
//
//   pytorch_cache LIBRARY train|expandable|out_of_memory|two_gpus|threads|steps|sleep
//
// Recorded, per GPU: each tensor with its stack, and the cache's segments, both to the byte: it
// prints what the cache counted. PyTorch's own profiler is told the same as without memlab.
#include <cuda.h>
#include <dlfcn.h>

#include <random>
#include <string_view>
#include <thread>

#include "memlab/memlab.h"
#include "program.hpp"
#include "tests/programs/pytorch/c10.hpp"

using namespace program;

namespace {

struct Library {
    explicit Library(const char* path) : handle(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
        if (handle == nullptr) {
            SAY("%s\n", dlerror());
            ::_exit(2);
        }
        find(allocate, "torch_allocate");
        find(free, "torch_free");
        find(empty_cache, "torch_empty_cache");
        find(mapped, "torch_mapped");
        find(stats, "torch_stats");
        find(told, "told");
    }
    template <typename Function>
    void find(Function*& function, const char* name) const {
        function = reinterpret_cast<Function*>(dlsym(handle, name));
        if (function == nullptr) {
            ::_exit(2);
        }
    }

    void* handle;
    CUdeviceptr (*allocate)(std::int8_t, std::uint64_t, bool);
    void (*free)(std::int8_t, CUdeviceptr);
    void (*empty_cache)(std::int8_t);
    std::size_t (*mapped)(std::int8_t, MappedSegment*, std::size_t);
    CacheStats (*stats)(std::int8_t);
    std::uint64_t (*told)();
};

[[gnu::noinline]] CUdeviceptr make_tensor(const Library& torch, std::int8_t device,
                                          std::uint64_t bytes, bool expandable) {
    const CUdeviceptr tensor = torch.allocate(device, bytes, expandable);
    asm volatile("");
    return tensor;
}

void train(const Library& torch, std::int8_t device, bool expandable, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<CUdeviceptr> tensors;
    for (int step = 0; step < 2000; ++step) {
        if (tensors.size() > 40 || (!tensors.empty() && random() % 3 == 0)) {
            std::swap(tensors[random() % tensors.size()], tensors.back());
            torch.free(device, tensors.back());
            tensors.pop_back();
        } else {
            const std::uint64_t bytes = random() % 4 == 0 ? random() % (8 << 20) : random() % 70000;
            tensors.push_back(make_tensor(torch, device, 1 + bytes, expandable));
        }
        if (step % 700 == 699) {
            torch.empty_cache(device);
        }
    }
    const std::size_t kept = std::min<std::size_t>(tensors.size(), 3);
    for (std::size_t i = kept; i < tensors.size(); ++i) {
        torch.free(device, tensors[i]);
    }
}

/// Scopes that are steps: each keeps 512 KiB.
void steps(const Library& torch) {
    for (int step = 0; step < 5; ++step) {
        memlab_scope_begin("step");
        const CUdeviceptr kept = make_tensor(torch, 0, std::uint64_t{512} << 10, false);
        memlab_label(reinterpret_cast<const void*>(kept), "kept");
        torch.free(0, make_tensor(torch, 0, std::uint64_t{1} << 20, false));
        memlab_scope_end();
    }
}

/// What vLLM's sleep mode and torch_memory_saver do: the physical memory under the tensors goes and
/// comes back, at the same addresses; PyTorch is not told.
class Sleeper {
  public:
    explicit Sleeper(const Library& torch) : segments_(64) {
        segments_.resize(torch.mapped(0, segments_.data(), segments_.size()));
    }
    std::size_t segments() const { return segments_.size(); }
    void sleep() const {
        for (const MappedSegment& each : segments_) {
            CHECK(cuMemUnmap(each.address, each.size));
            CHECK(cuMemRelease(*each.handle));
        }
    }
    void wake() const {
        CUmemAllocationProp wanted{};
        wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
        const CUmemAccessDesc access{wanted.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        for (const MappedSegment& each : segments_) {
            CHECK(cuMemCreate(each.handle, each.size, &wanted, 0));
            CHECK(cuMemMap(each.address, each.size, 0, *each.handle, 0));
            CHECK(cuMemSetAccess(each.address, each.size, &access, 1));
        }
    }

  private:
    std::vector<MappedSegment> segments_;
};

/// Four segments with tensors and two that hold none.
void sleep_and_wake(const Library& torch) {
    std::vector<CUdeviceptr> tensors;
    for (int i = 0; i < 5; ++i) {
        tensors.push_back(make_tensor(torch, 0, std::uint64_t{32} << 20, true));
    }
    tensors.push_back(make_tensor(torch, 0, 1000, true));
    torch.free(0, tensors[1]);
    torch.free(0, tensors[4]);
    const Sleeper sleeper(torch);
    SAY("%zu segments\n", sleeper.segments());
    for (int i = 0; i < 2; ++i) {
        memlab_mark("awake");
        sleeper.sleep();
        memlab_mark("asleep");
        if (i == 1) {
            torch.free(0, tensors[3]);  // freed while it sleeps
        }
        sleeper.wake();
        memlab_mark("awake again");
    }
    torch.free(0, tensors[2]);
    tensors[1] = make_tensor(torch, 0, std::uint64_t{8} << 20, true);
    tensors[2] = make_tensor(torch, 0, std::uint64_t{24} << 20, true);
    memlab_mark("used again");
}

void report(const Library& torch, std::int8_t device) {
    const CacheStats stats = torch.stats(device);
    SAY("GPU %d: allocated %llu, at most %llu; reserved %llu, at most %llu; blocks %llu, live "
        "%llu; "
        "segments %llu\n",
        static_cast<int>(device), static_cast<unsigned long long>(stats.allocated),
        static_cast<unsigned long long>(stats.peak_allocated),
        static_cast<unsigned long long>(stats.reserved),
        static_cast<unsigned long long>(stats.peak_reserved),
        static_cast<unsigned long long>(stats.blocks),
        static_cast<unsigned long long>(stats.live_blocks),
        static_cast<unsigned long long>(stats.segments));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        return 2;
    }
    const std::string_view what = argv[2];
    const Library torch(argv[1]);
    use_device();
    // Memory that is not the cache's, as a library of CUDA's takes.
    const CUdeviceptr workspace = allocate(std::size_t{3} << 20);
    if (what == "out_of_memory") {
        int tensors = 0;
        while (make_tensor(torch, 0, std::uint64_t{512} << 20, false) != 0) {
            ++tensors;
        }
        SAY("out of memory after some tensors: %s\n", tensors > 0 ? "yes" : "no");
    } else if (what == "steps") {
        steps(torch);
    } else if (what == "sleep") {
        sleep_and_wake(torch);
    } else if (what == "two_gpus") {
        use_device(1);
        train(torch, 1, false, 2);
        report(torch, 1);
        use_device(0);
        train(torch, 0, false, 1);
    } else if (what == "threads") {
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < 4; ++i) {
            threads.emplace_back([&torch, i] {
                use_device();
                train(torch, 0, false, i);
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    } else {
        if (what == "expandable") {  // of many pages
            torch.free(0, make_tensor(torch, 0, 100 << 20, true));
            torch.empty_cache(0);
        }
        train(torch, 0, what == "expandable", 1);
    }
    report(torch, 0);
    SAY("the profiler was told: %s\n", torch.told() > 0 ? "yes" : "no");
    release(workspace);
    return 0;
}
