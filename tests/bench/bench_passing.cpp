// What recording costs memory that the driver itself serves: mappings of virtual memory and
// stream-ordered allocations, beside few and many others that live. Without memlab, with it, and
// with parts of it switched off, in one run.
//
// The variants take turns (variants.hpp). Each child measures every line in batches; what is
// printed is the median of all batches. "cold": between two operations the processor's caches are
// filled with something else, as a program's own work does; only the operations are timed.
//
// The vector that grows asks for the address behind its end and moves all its pieces when it gets
// another, as the known vectors do. How often that happened is printed too: it is the driver's
// choice, and decides what such a program takes.
//
// Uses the driver's functions only.
//
//   bench_passing [how many others live...]      (10 1000; a GPU takes 100000 as well)
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "variants.hpp"

using memlab::bench::Clock;
using memlab::bench::median;
using memlab::bench::nanoseconds_since;
using memlab::bench::Variant;

namespace {

constexpr int turns = 3;
constexpr int batches = 11;
constexpr std::size_t page = std::size_t{2} << 20;

void check(CUresult result, const char* call) {
    if (result != CUDA_SUCCESS) {
        std::fprintf(stderr, "bench_passing: %s: error %d\n", call, static_cast<int>(result));
        std::exit(1);
    }
}
#define CHECK(call) check(call, #call)

// Other work between two operations: as much as the caches hold.
void fill_caches() {
    static std::vector<std::uint64_t> words(std::size_t{8} << 17);
    for (std::size_t i = 0; i < words.size(); i += 8) {
        words[i] += i;
    }
}

// Runs `operation` from a call stack that is `depth` frames deeper.
template <class Operation>
[[gnu::noinline]] void deep(int depth, const Operation& operation) {
    if (depth == 0) {
        operation();
    } else {
        deep(depth - 1, operation);
    }
    __asm__ volatile("");  // not a jump: the frame stays
}

/// The mean time of `count` operations, all of them or each for itself.
template <class Operation>
double time_of(int count, bool cold, const Operation& operation) {
    if (!cold) {
        const Clock::time_point start = Clock::now();
        for (int i = 0; i < count; ++i) {
            operation();
        }
        return nanoseconds_since(start) / count;
    }
    double sum = 0;
    for (int i = 0; i < count; ++i) {
        fill_caches();
        const Clock::time_point start = Clock::now();
        operation();
        sum += nanoseconds_since(start);
    }
    return sum / count;
}

CUmemAllocationProp properties() {
    CUmemAllocationProp made{};
    made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return made;
}

CUmemGenericAllocationHandle create() {
    const CUmemAllocationProp wanted = properties();
    CUmemGenericAllocationHandle handle = 0;
    CHECK(cuMemCreate(&handle, page, &wanted, 0));
    return handle;
}

void give_access(CUdeviceptr address, std::size_t bytes) {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemSetAccess(address, bytes, &access, 1));
}

CUdeviceptr reserve(std::size_t bytes) {
    CUdeviceptr address = 0;
    CHECK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    return address;
}

/// Pages that stay mapped, all of one handle: so many do not fit otherwise.
class Mappings {
  public:
    explicit Mappings(std::size_t count)
        : handle_(create()), base_(reserve((count + 1) * page)), count_(count) {
        for (std::size_t i = 0; i < count_; ++i) {
            CHECK(cuMemMap(base_ + i * page, page, 0, handle_, 0));
        }
        give_access(base_, count_ * page);
    }
    ~Mappings() {
        CHECK(cuMemUnmap(base_, count_ * page));
        CHECK(cuMemAddressFree(base_, (count_ + 1) * page));
        CHECK(cuMemRelease(handle_));
    }
    Mappings(const Mappings&) = delete;
    Mappings& operator=(const Mappings&) = delete;

    CUmemGenericAllocationHandle handle() const { return handle_; }
    CUdeviceptr end() const { return base_ + count_ * page; }

  private:
    const CUmemGenericAllocationHandle handle_;
    const CUdeviceptr base_;
    const std::size_t count_;
};

void put(const char* name, std::size_t others, double value) {
    std::printf("%s, beside %zu|%.1f\n", name, others, value);
}

void measure_mappings(std::size_t others) {
    const Mappings live(others);
    const auto map = [&] {
        CHECK(cuMemMap(live.end(), page, 0, live.handle(), 0));
        give_access(live.end(), page);
        CHECK(cuMemUnmap(live.end(), page));
    };
    const auto create_and_map = [&] {
        const CUmemGenericAllocationHandle handle = create();
        CHECK(cuMemMap(live.end(), page, 0, handle, 0));
        give_access(live.end(), page);
        CHECK(cuMemUnmap(live.end(), page));
        CHECK(cuMemRelease(handle));
    };
    const auto retain = [&] {
        CUmemGenericAllocationHandle handle = 0;
        CHECK(cuMemRetainAllocationHandle(
            &handle, reinterpret_cast<void*>(live.end() - page)));  // NOLINT(performance-*)
        CHECK(cuMemRelease(handle));
    };
    for (int batch = 0; batch < batches; ++batch) {
        put("map + access + unmap", others, time_of(50, false, map));
        put("map + access + unmap, cold", others, time_of(20, true, map));
        put("create + map + access + unmap + release", others, time_of(50, false, create_and_map));
        put("the same, cold", others, time_of(20, true, create_and_map));
        put("retain + release", others, time_of(200, false, retain));
    }
}

void measure_stream_ordered(std::size_t others) {
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    std::vector<CUdeviceptr> live(others);
    for (CUdeviceptr& address : live) {
        CHECK(cuMemAllocAsync(&address, 512, stream));
    }
    const auto pair = [&] {
        CUdeviceptr address = 0;
        CHECK(cuMemAllocAsync(&address, std::size_t{1} << 16, stream));
        CHECK(cuMemFreeAsync(address, stream));
    };
    for (int batch = 0; batch < batches; ++batch) {
        CHECK(cuStreamSynchronize(stream));
        put("AllocAsync + FreeAsync", others, time_of(400, false, pair));
        put("AllocAsync + FreeAsync, cold", others, time_of(50, true, pair));
        deep(40, [&] {
            put("AllocAsync + FreeAsync, 40 frames", others, time_of(400, false, pair));
            put("AllocAsync + FreeAsync, 40 frames, cold", others, time_of(50, true, pair));
        });
    }
    for (const CUdeviceptr address : live) {
        CHECK(cuMemFreeAsync(address, stream));
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamDestroy(stream));
}

/// Grows page by page; where its next address is taken, it moves to a larger reservation.
class GrowingVector {
  public:
    ~GrowingVector() {
        unmap_all();
        free_reservations();
        for (const CUmemGenericAllocationHandle handle : handles_) {
            CHECK(cuMemRelease(handle));
        }
    }

    void grow() {
        const std::size_t bytes = handles_.size() * page;
        CUdeviceptr next = 0;
        CHECK(cuMemAddressReserve(&next, page, 0, base_ + bytes, 0));
        if (base_ == 0 || next == base_ + bytes) {
            base_ = base_ == 0 ? next : base_;
            reservations_.emplace_back(next, page);
        } else {
            CHECK(cuMemAddressFree(next, page));
            move(reserve(bytes + page), bytes);
        }
        handles_.push_back(create());
        CHECK(cuMemMap(base_ + bytes, page, 0, handles_.back(), 0));
        give_access(base_ + bytes, page);
    }

    int moves() const { return moves_; }

  private:
    void move(CUdeviceptr to, std::size_t bytes) {
        unmap_all();
        for (std::size_t i = 0; i < handles_.size(); ++i) {
            CHECK(cuMemMap(to + i * page, page, 0, handles_[i], 0));
            give_access(to + i * page, page);
        }
        free_reservations();
        reservations_.emplace_back(to, bytes + page);
        base_ = to;
        ++moves_;
    }
    void unmap_all() {
        for (std::size_t i = 0; i < handles_.size(); ++i) {
            CHECK(cuMemUnmap(base_ + i * page, page));
        }
    }
    void free_reservations() {
        for (const auto& [address, bytes] : reservations_) {
            CHECK(cuMemAddressFree(address, bytes));
        }
        reservations_.clear();
    }

    CUdeviceptr base_ = 0;
    std::vector<CUmemGenericAllocationHandle> handles_;
    std::vector<std::pair<CUdeviceptr, std::size_t>> reservations_;
    int moves_ = 0;
};

// `beside`: whether the program has memory of cuMemAlloc's as well, which the pool serves.
void measure_growing(const char* name, bool beside) {
    constexpr int pages = 200;
    std::vector<CUdeviceptr> blocks(beside ? 64 : 0);
    for (CUdeviceptr& block : blocks) {
        CHECK(cuMemAlloc(&block, std::size_t{3} << 20));
    }
    for (int batch = 0; batch < 3; ++batch) {
        GrowingVector vector;
        const Clock::time_point start = Clock::now();
        for (int i = 0; i < pages; ++i) {
            vector.grow();
        }
        std::printf("%s, a page|%.1f\n", name, nanoseconds_since(start) / pages);
        std::printf("%s, moves|%d\n", name, vector.moves() * 1000);
    }
    for (const CUdeviceptr block : blocks) {
        CHECK(cuMemFree(block));
    }
}

/// Child: "LINE|NANOSECONDS" per batch on standard output.
int measure(const std::vector<std::size_t>& others) {
    CUcontext context = nullptr;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    for (const std::size_t count : others) {
        measure_mappings(count);
        measure_stream_ordered(count);
    }
    measure_growing("growing vector", false);
    measure_growing("growing vector beside cuMemAlloc", true);
    return 0;
}

constexpr Variant variants[] = {
    {"native", false, ""},
    {"memlab", true, ""},
    {"no stacks", true, "MEMLAB_STACK_DEPTH=0 "},
    {"pool only", true, "MEMLAB_RECORD=off "},
    {"no pool", true, "MEMLAB_POOL=off "},
};

/// What a child measured, by line, in the order of the lines.
struct Times {
    std::vector<std::string> lines;
    std::map<std::string, std::vector<double>> values;
};

void read_child(FILE* child, Times& times) {
    char line[256];
    double value = 0;
    while (std::fscanf(child, "%255[^|]|%lf ", line, &value) == 2) {
        if (!times.values.contains(line)) {
            times.lines.emplace_back(line);
        }
        times.values[line].push_back(value);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const bool child = argc >= 2 && std::strcmp(argv[1], "--measure") == 0;
    std::vector<std::size_t> others;
    std::string arguments;
    for (int i = child ? 2 : 1; i < argc; ++i) {
        others.push_back(std::strtoull(argv[i], nullptr, 10));
        arguments += std::string(" ") + argv[i];
    }
    if (others.empty()) {
        others = {10, 1000};
    }
    if (child) {
        return measure(others);
    }
    Times times[std::size(variants)];
    const int failed = memlab::bench::measure_in_turns(
        "bench_passing", turns, variants, [&](const Variant& /*variant*/) { return arguments; },
        [&](FILE* pipe, std::size_t variant) { read_child(pipe, times[variant]); });
    if (failed != 0) {
        return failed;
    }
    std::printf("%-62s", "median, us");
    for (const Variant& variant : variants) {
        std::printf(" %10s", variant.name);
    }
    std::printf(" %14s\n", "memlab/native");
    for (const std::string& line : times[0].lines) {
        std::printf("%-62s", line.c_str());
        for (Times& measured : times) {
            std::printf(" %10.3f", median(measured.values[line]) / 1000);
        }
        const double native = median(times[0].values[line]);
        std::printf(" %14.3f\n", native == 0 ? 1 : median(times[1].values[line]) / native);
    }
    return 0;
}
