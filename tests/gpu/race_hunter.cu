// Hunts for memory that is handed out again while work of its former owner still runs.
//
//   race_hunter [--seconds N] [--seed N] [--leave MIB] [--gpus N] [--free at-once|waited]
//   race_hunter --one KIND [--threads N] [--then WHAT] [--seconds N] [--seed N]
//
// Host threads allocate, launch and free without waiting, over 1, 2 and 8 streams of each kind
// (non-blocking, blocking, legacy among blocking ones, per-thread default), launched directly and
// in CUDA graphs. Each kernel waits a little, fills its block with a cookie of its own, waits again
// and looks whether the cookie is still everywhere; the block is freed while it runs. Two kernels
// in one memory at one time find one another's cookies: both that one is overwritten and that one
// comes late into memory that is no longer its own.
//
// With --leave the program first takes all of the device's memory but so much, so that what is
// freed must serve again although its work may still run; an allocation that fails is tried again
// after a free.
//
// With --gpus memory is taken on any of the first N GPUs, which may use one another's, and worked
// on by any of them. Plain CUDA's cudaFree does not wait for a peer's work: "--free waited" waits
// before each free, which is right without memlab as well. Otherwise nothing is captured on several
// GPUs: what is allocated meanwhile is the driver's own, and freed as plain CUDA frees it.
//
// With --one all work goes to one stream (non-blocking, blocking, legacy or per-thread), so that
// memory may be handed out again at once; work is longer then, so that a queue of it stands in the
// stream. After half of the time, at once or as --then says, that ends: "streams" gives each thread
// one of its own beside it, "copies" has synchronous fills, which are looked at again, "graphs"
// captures, "destroy" (one thread) destroys the stream and makes another; "nothing" lets it be.
//
// A reuse is counted when an allocation gets memory of which some was freed while its work was
// unfinished (an event behind the work said so at the free). Of those, it is also counted in how
// many the work was unfinished still when the memory was handed out again: then only the order of
// the device's work keeps the two apart.
//
// Uses plain CUDA only. Prints a line a configuration and the sums; exit code 0 without a
// corruption, 1 with one, 2 when CUDA failed.
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace {

void check(cudaError_t error, int line) {
    if (error != cudaSuccess) {
        std::printf("race_hunter: line %d: %s\n", line, cudaGetErrorString(error));
        std::fflush(stdout);
        std::_Exit(2);
    }
}
#define CHECK(call) check((call), __LINE__)

// How many GPUs take part; with more than one they are one another's peers.
int gpus = 1;

void use_gpu(int gpu) {
    if (gpus > 1) {
        CHECK(cudaSetDevice(gpu));
    }
}

constexpr const char* free_names[] = {"at-once", "waited"};
// The host waits for a block's work before it frees the block.
bool waits_first = false;

struct Findings {
    unsigned long long corruptions;  // words that were not the cookie
    unsigned long long expected;     // of the first
    unsigned long long found;
};

__device__ void wait_nanoseconds(unsigned nanoseconds) {
    unsigned long long start;
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    const long long ticks = clock64() + nanoseconds * 2LL;  // %globaltimer may tick coarsely
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds && clock64() < ticks);
}

// `words` of 8 bytes, of which every `stride`th is used.
__global__ void hold(volatile unsigned long long* block, std::size_t words, unsigned stride,
                     unsigned long long cookie, unsigned before, unsigned after,
                     Findings* findings) {
    const std::size_t first = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
    const std::size_t step = std::size_t{gridDim.x} * blockDim.x * stride;
    wait_nanoseconds(before);
    for (std::size_t i = first * stride; i < words; i += step) {
        block[i] = cookie;
    }
    wait_nanoseconds(after);
    for (std::size_t i = first * stride; i < words; i += step) {
        const unsigned long long seen = block[i];
        if (seen != cookie && atomicAdd_system(&findings->corruptions, 1ULL) == 0) {
            findings->expected = cookie;
            findings->found = seen;
        }
    }
}

// Are the words that `hold` would use still what a fill left there?
__global__ void expect(const volatile unsigned long long* block, std::size_t words, unsigned stride,
                       unsigned long long filled, Findings* findings) {
    const std::size_t first = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
    const std::size_t step = std::size_t{gridDim.x} * blockDim.x * stride;
    for (std::size_t i = first * stride; i < words; i += step) {
        const unsigned long long seen = block[i];
        if (seen != filled && atomicAdd_system(&findings->corruptions, 1ULL) == 0) {
            findings->expected = filled;
            findings->found = seen;
        }
    }
}

enum class Kind { non_blocking, blocking, legacy, per_thread };
constexpr const char* kind_names[] = {"non-blocking", "blocking", "legacy", "per-thread"};

// With little memory work is longer, so that memory is needed again while work on it still runs.
unsigned longest_wait = 12000;

enum class Then { streams, copies, graphs, destroy, nothing };
constexpr const char* then_names[] = {"streams", "copies", "graphs", "destroy", "nothing"};

struct Configuration {
    int streams;
    Kind kind;
    int threads;
    bool graphs;
    bool one = false;  // one stream for all threads, until `then` comes
    Then then = Then::nothing;
};

constexpr Configuration configurations[] = {
    {1, Kind::non_blocking, 1, false}, {2, Kind::non_blocking, 1, false},
    {8, Kind::non_blocking, 1, false}, {8, Kind::non_blocking, 4, false},
    {2, Kind::non_blocking, 2, true},  {8, Kind::non_blocking, 4, true},
    {2, Kind::blocking, 1, false},     {8, Kind::blocking, 4, false},
    {8, Kind::blocking, 2, true},      {1, Kind::legacy, 1, false},
    {2, Kind::legacy, 2, false},       {8, Kind::legacy, 4, true},
    {1, Kind::per_thread, 1, false},   {1, Kind::per_thread, 8, false},
    {1, Kind::per_thread, 4, true},    {2, Kind::per_thread, 4, false},
};

/// What stands behind a piece of work; of the GPU that does the work.
struct Event {
    cudaEvent_t event;
    int gpu;
};

struct Stream {
    cudaStream_t stream;
    int gpu;
};

/// Memory that was freed, by address: whether its work was finished, and the event behind it.
class FreedMemory {
  public:
    struct Counts {
        unsigned long long reuses = 0;
        unsigned long long still_running = 0;
    };

    ~FreedMemory() {
        for (const auto& [address, range] : ranges_) {
            cudaEventDestroy(range.work.event);
        }
    }

    /// Must be told before the memory is freed. Takes the event over.
    void freed(std::uintptr_t address, std::size_t bytes, Event work, bool unfinished) {
        const std::lock_guard<std::mutex> lock(mutex_);
        ranges_[address] = {bytes, work, unfinished};
    }

    /// Looks up what was there before. Events no longer needed go to `events`.
    void handed_out(std::uintptr_t address, std::size_t bytes, std::vector<Event>& events) {
        const std::lock_guard<std::mutex> lock(mutex_);
        auto it = ranges_.upper_bound(address);
        if (it != ranges_.begin() && std::prev(it)->first + std::prev(it)->second.bytes > address) {
            --it;
        }
        bool reuse = false;
        bool running = false;
        while (it != ranges_.end() && it->first < address + bytes) {
            if (it->second.unfinished) {
                reuse = true;
                running = running || cudaEventQuery(it->second.work.event) == cudaErrorNotReady;
            }
            events.push_back(it->second.work);
            it = ranges_.erase(it);
        }
        counts_.reuses += reuse;
        counts_.still_running += running;
    }

    Counts counts() const { return counts_; }

  private:
    struct Range {
        std::size_t bytes;
        Event work;
        bool unfinished;
    };
    std::mutex mutex_;
    std::map<std::uintptr_t, Range> ranges_;
    Counts counts_;
};

class Hunter {
  public:
    Hunter(const Configuration& configuration, cudaStream_t shared, FreedMemory& memory,
           Findings* findings, std::uint64_t seed, std::uint64_t cookie)
        : configuration_(configuration),
          memory_(memory),
          findings_(findings),
          random_(seed),
          cookie_(cookie) {
        if (configuration.one) {
            streams_.push_back({shared, 0});
            CHECK(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking));
            own_.push_back(other_);
        }
        for (int gpu = 0; gpu < gpus; ++gpu) {
            use_gpu(gpu);
            add_streams(gpu);
            if (configuration.graphs || configuration.then == Then::graphs) {
                // Of its own: neither the legacy stream nor work of other threads may touch a
                // capture.
                cudaStream_t stream = nullptr;
                CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
                own_.push_back(stream);
                capturing_.push_back(stream);
            }
        }
    }

    ~Hunter() {
        for (const cudaStream_t stream : own_) {
            cudaStreamDestroy(stream);
        }
        for (const Event& each : events_) {
            cudaEventDestroy(each.event);
        }
    }

    /// Works until the time is over, then frees all that it still has, without waiting.
    unsigned long long work(std::chrono::steady_clock::time_point end) {
        unsigned long long allocations = 0;
        const auto half =
            std::chrono::steady_clock::now() + (end - std::chrono::steady_clock::now()) / 2;
        while (std::chrono::steady_clock::now() < end) {
            if (configuration_.one && !ended_ && std::chrono::steady_clock::now() > half) {
                end_one();
            }
            for (int i = 0; i < 32; ++i, ++allocations) {
                one();
            }
        }
        while (!blocks_.empty()) {
            give_back(0);
        }
        for (const Stream& each : streams_) {  // the device as a whole may be captured from
            use_gpu(each.gpu);
            CHECK(cudaStreamSynchronize(each.stream));
        }
        return allocations;
    }

  private:
    struct Block {
        void* address;
        std::size_t bytes;
        Event work;
        int home;  // the GPU that it is on
    };

    // Of the current GPU.
    void add_streams(int gpu) {
        for (int i = 0; !configuration_.one && i < configuration_.streams; ++i) {
            cudaStream_t stream = cudaStreamPerThread;
            if (configuration_.kind == Kind::legacy && i == 0) {
                stream = cudaStreamLegacy;
            } else if (configuration_.kind != Kind::per_thread || i > 0) {
                const bool blocking =
                    configuration_.kind == Kind::blocking || configuration_.kind == Kind::legacy;
                CHECK(cudaStreamCreateWithFlags(
                    &stream, blocking ? cudaStreamDefault : cudaStreamNonBlocking));
                own_.push_back(stream);
            }
            streams_.push_back({stream, gpu});
        }
    }

    // For the current GPU, which it is of.
    Event take_event(int gpu) {
        for (auto it = events_.rbegin(); it != events_.rend(); ++it) {
            if (it->gpu == gpu) {
                const Event found = *it;
                *it = events_.back();
                events_.pop_back();
                return found;
            }
        }
        Event made{nullptr, gpu};
        CHECK(cudaEventCreateWithFlags(&made.event, cudaEventDisableTiming));
        return made;
    }

    std::size_t choose_bytes() {
        const auto choice = random_() % 16;
        if (choice < 10) {
            return 512 * (1 + random_() % 64);
        }
        return choice < 15 ? 4096 * (1 + random_() % 256)
                           : (std::size_t{1} << 20) * (1 + random_() % 6);
    }

    struct Shape {
        explicit Shape(const Block& block)
            : words(block.bytes / 8),
              stride(words > 8192 ? static_cast<unsigned>(words / 8192) : 1) {
            const std::size_t used = (words + stride - 1) / stride;
            grid = static_cast<unsigned>(used > 2048 ? 8 : (used + 255) / 256);
        }
        std::size_t words;
        unsigned stride;
        unsigned grid;
    };

    void launch(const Block& block, cudaStream_t stream) {
        const Shape shape(block);
        hold<<<shape.grid, 256, 0, stream>>>(
            static_cast<unsigned long long*>(block.address), shape.words, shape.stride, ++cookie_,
            static_cast<unsigned>(random_() % 3000),
            static_cast<unsigned>(random_() % longest_wait), findings_);
        CHECK(cudaGetLastError());
    }

    // In a graph of one or two kernels, made by a capture that other threads' frees and allocations
    // run into.
    void launch_graph(const Block& block, const Stream& target) {
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t exec = nullptr;
        const cudaStream_t capturing = capturing_[static_cast<std::size_t>(target.gpu)];
        CHECK(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeRelaxed));
        launch(block, capturing);
        if (random_() % 2 == 0) {
            launch(block, capturing);
        }
        CHECK(cudaStreamEndCapture(capturing, &graph));
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphLaunch(exec, target.stream));
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
    }

    // The queue of the one stream is as long as it gets: no wait here.
    void end_one() {
        ended_ = true;
        if (configuration_.then == Then::streams) {
            streams_.push_back({other_, 0});
        } else if (configuration_.then == Then::destroy) {
            CHECK(cudaStreamDestroy(streams_[0].stream));
            CHECK(cudaStreamCreateWithFlags(&streams_[0].stream, cudaStreamNonBlocking));
            own_.push_back(streams_[0].stream);
        }
    }

    // A fill that the host waits for: in the legacy stream, whatever else the program uses. What
    // the memory's former owner still had to run in `stream` would come behind it.
    void fill(const Block& block, cudaStream_t stream) {
        const auto byte = static_cast<unsigned>(random_() % 256);
        CHECK(cudaMemset(block.address, static_cast<int>(byte), block.bytes));
        CHECK(cudaStreamSynchronize(cudaStreamLegacy));
        const Shape shape(block);
        expect<<<shape.grid, 256, 0, stream>>>(static_cast<unsigned long long*>(block.address),
                                               shape.words, shape.stride,
                                               byte * 0x0101010101010101ULL, findings_);
        CHECK(cudaGetLastError());
    }

    void one() {
        Block block{};
        block.bytes = choose_bytes();
        block.home = gpus > 1 ? static_cast<int>(random_() % static_cast<unsigned>(gpus)) : 0;
        use_gpu(block.home);
        cudaError_t error = cudaMalloc(&block.address, block.bytes);
        while (error == cudaErrorMemoryAllocation && !blocks_.empty()) {
            (void)cudaGetLastError();
            give_back(0);
            use_gpu(block.home);
            error = cudaMalloc(&block.address, block.bytes);
        }
        if (error == cudaErrorMemoryAllocation) {  // other threads have it all
            (void)cudaGetLastError();
            return;
        }
        CHECK(error);
        memory_.handed_out(reinterpret_cast<std::uintptr_t>(block.address), block.bytes, events_);
        const Stream target = streams_[random_() % streams_.size()];
        const cudaStream_t stream = target.stream;
        use_gpu(target.gpu);
        block.work = take_event(target.gpu);
        const auto now_does = [&](Then what) { return ended_ && configuration_.then == what; };
        if (now_does(Then::copies) && random_() % 4 == 0) {
            fill(block, stream);
        }
        if ((configuration_.graphs || now_does(Then::graphs)) && random_() % 8 == 0) {
            launch_graph(block, target);
        } else {
            launch(block, stream);
        }
        CHECK(cudaEventRecord(block.work.event, stream));
        blocks_.push_back(block);
        // Mostly the newest goes at once, while its work runs; some stay for a while.
        while (!blocks_.empty() && (blocks_.size() > 12 || random_() % 4 != 0)) {
            give_back(random_() % 2 == 0 ? blocks_.size() - 1 : random_() % blocks_.size());
        }
    }

    void give_back(std::size_t index) {
        const Block block = blocks_[index];
        blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(index));
        if (waits_first) {
            CHECK(cudaEventSynchronize(block.work.event));
        }
        const bool unfinished = cudaEventQuery(block.work.event) == cudaErrorNotReady;
        memory_.freed(reinterpret_cast<std::uintptr_t>(block.address), block.bytes, block.work,
                      unfinished);
        use_gpu(block.home);
        CHECK(cudaFree(block.address));
    }

    const Configuration configuration_;
    FreedMemory& memory_;
    Findings* findings_;
    std::mt19937_64 random_;
    std::uint64_t cookie_;
    std::vector<Stream> streams_;
    std::vector<cudaStream_t> own_;
    std::vector<cudaStream_t> capturing_;  // one of each GPU
    cudaStream_t other_ = nullptr;
    bool ended_ = false;
    std::vector<Event> events_;
    std::deque<Block> blocks_;
};

struct Sums {
    unsigned long long allocations = 0;
    unsigned long long reuses = 0;
    unsigned long long still_running = 0;
    unsigned long long corruptions = 0;
};

void run(const Configuration& configuration, double seconds, std::uint64_t seed, Sums& sums) {
    Findings* findings = nullptr;
    CHECK(cudaHostAlloc(&findings, sizeof(Findings), cudaHostAllocMapped | cudaHostAllocPortable));
    *findings = {};
    FreedMemory memory;
    std::atomic<unsigned long long> allocations{0};
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                         std::chrono::duration<double>(seconds));
    cudaStream_t shared =
        configuration.kind == Kind::legacy ? cudaStreamLegacy : cudaStreamPerThread;
    const bool made = configuration.one && (configuration.kind == Kind::non_blocking ||
                                            configuration.kind == Kind::blocking);
    if (made) {
        CHECK(cudaStreamCreateWithFlags(&shared, configuration.kind == Kind::blocking
                                                     ? cudaStreamDefault
                                                     : cudaStreamNonBlocking));
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < configuration.threads; ++i) {
        threads.emplace_back([&, i] {
            const auto number = static_cast<std::uint64_t>(i);
            Hunter hunter(configuration, shared, memory, findings, seed * 1000 + number,
                          (seed << 48) + (number << 40));
            allocations += hunter.work(end);
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (int gpu = gpus - 1; gpu >= 0; --gpu) {
        use_gpu(gpu);
        CHECK(cudaDeviceSynchronize());
    }
    if (made && configuration.then != Then::destroy) {
        CHECK(cudaStreamDestroy(shared));
    }
    const FreedMemory::Counts counts = memory.counts();
    std::printf(
        "%d streams, %s, %d threads%s%s%s: %llu allocations, %llu reuses, %llu of running, "
        "%llu corrupt words",
        configuration.streams, kind_names[static_cast<int>(configuration.kind)],
        configuration.threads, configuration.graphs ? ", graphs" : "",
        configuration.one ? ", then " : "",
        configuration.one ? then_names[static_cast<int>(configuration.then)] : "",
        allocations.load(), counts.reuses, counts.still_running, findings->corruptions);
    if (findings->corruptions != 0) {
        std::printf(" (first: 0x%llx instead of 0x%llx)", findings->found, findings->expected);
    }
    std::printf("\n");
    std::fflush(stdout);
    sums.allocations += allocations;
    sums.reuses += counts.reuses;
    sums.still_running += counts.still_running;
    sums.corruptions += findings->corruptions;
    CHECK(cudaFreeHost(findings));
}

/// The place of `name` among `names`; ends the program when it is none of them.
template <std::size_t count>
int index_of(const char* name, const char* const (&names)[count]) {
    for (std::size_t i = 0; i < count; ++i) {
        if (std::strcmp(name, names[i]) == 0) {
            return static_cast<int>(i);
        }
    }
    std::printf("race_hunter: there is no %s\n", name);
    std::exit(2);
}

// For good. In pieces of 1 GiB, then smaller ones: a single piece may be more than a range can
// hold.
void take_all_but(std::size_t leave) {
    for (std::size_t piece = std::size_t{1} << 30; piece >= std::size_t{2} << 20;) {
        std::size_t free_bytes = 0;
        std::size_t total = 0;
        void* taken = nullptr;
        CHECK(cudaMemGetInfo(&free_bytes, &total));
        if (free_bytes < leave + piece || cudaMalloc(&taken, piece) != cudaSuccess) {
            (void)cudaGetLastError();
            piece /= 2;
        }
    }
}

// The first `gpus` ones may use one another's memory from here on.
void make_peers() {
    for (int gpu = 0; gpu < gpus; ++gpu) {
        CHECK(cudaSetDevice(gpu));
        for (int peer = 0; peer < gpus; ++peer) {
            if (peer != gpu) {
                CHECK(cudaDeviceEnablePeerAccess(peer, 0));
            }
        }
    }
    CHECK(cudaSetDevice(0));
}

}  // namespace

int main(int argc, char** argv) {
    double seconds = 10;
    std::uint64_t seed = 1;
    std::size_t leave = 0;
    Configuration one{1, Kind::non_blocking, 1, false};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (std::strcmp(argv[i], "--seconds") == 0) {
            seconds = std::atof(argv[i + 1]);
        } else if (std::strcmp(argv[i], "--seed") == 0) {
            seed = std::strtoull(argv[i + 1], nullptr, 10);
        } else if (std::strcmp(argv[i], "--leave") == 0) {
            leave = std::strtoull(argv[i + 1], nullptr, 10) << 20;
        } else if (std::strcmp(argv[i], "--gpus") == 0) {
            gpus = std::atoi(argv[i + 1]);
        } else if (std::strcmp(argv[i], "--free") == 0) {
            waits_first = index_of(argv[i + 1], free_names) == 1;
        } else if (std::strcmp(argv[i], "--one") == 0) {
            one.one = true;
            one.kind = static_cast<Kind>(index_of(argv[i + 1], kind_names));
        } else if (std::strcmp(argv[i], "--then") == 0) {
            one.then = static_cast<Then>(index_of(argv[i + 1], then_names));
        } else if (std::strcmp(argv[i], "--threads") == 0) {
            one.threads = std::atoi(argv[i + 1]);
        } else {
            std::printf("race_hunter: no option %s\n", argv[i]);
            return 2;
        }
    }
    int found = 0;
    CHECK(cudaGetDeviceCount(&found));
    if (gpus < 1 || gpus > found || (gpus > 1 && one.one)) {
        std::printf("race_hunter: --gpus is 1 to %d, and 1 with --one\n", found);
        return 2;
    }
    CHECK(cudaFree(nullptr));
    if (gpus > 1) {
        make_peers();
    }
    if (leave != 0) {
        take_all_but(leave);
        longest_wait = 200000;
    }
    Sums sums;
    const std::uint64_t first_seed = seed;
    if (one.one) {
        longest_wait = 50000;
        run(one, seconds, seed, sums);
    } else {
        for (const Configuration& configuration : configurations) {
            if (configuration.graphs && gpus > 1 && !waits_first) {
                continue;
            }
            run(configuration, seconds / static_cast<double>(std::size(configurations)), seed++,
                sums);
        }
    }
    std::printf("seed %llu: %llu allocations, %llu reuses, %llu of running, %llu corrupt words\n",
                static_cast<unsigned long long>(first_seed), sums.allocations, sums.reuses,
                sums.still_running, sums.corruptions);
    return sums.corruptions == 0 ? 0 : 1;
}
