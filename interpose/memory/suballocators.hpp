// The program's own allocators, which report each block that they hand out or take back: PyTorch's
// cache (hooks/pytorch.cpp), others by memlab.h or by NVTX's memory extension. They cut their
// blocks from memory that the driver, memlab's pool or another such allocator handed out. Both
// levels are recorded: each allocator has figures of its own, beside those of the GPU
// (trace::DeviceInfo).
//
// Guarantee: an allocator's segments are exactly the memory it splits into blocks. Memory becomes a
// segment with its first block there and ends with its own release. What is unmapped under blocks
// of PyTorch's that it holds only sleeps (vLLM's sleep mode, torch_memory_saver): PyTorch knows
// nothing of that, so segment and blocks stay as they are, until it frees them itself. PyTorch also
// reports with each block how much it has reserved: if memlab knows less, the block's memory
// becomes a segment, by whichever call it was allocated. Where the sums still differ, the report
// says so.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "interpose/driver/function_ref.hpp"
#include "profiler/recorder.hpp"
#include "threads/mutex.hpp"
#include "trace/log_format.hpp"
#include "trace/record.hpp"

namespace memlab::interpose {

/// Memory that an allocator cuts: of no bytes where there is none.
struct SegmentRange {
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
    bool mapped = false;  ///< by cuMemMap
    bool inner = false;   ///< handed out by another allocator of the program's
};

/// The segments of the program's allocators. An allocator on a GPU goes by its device of the
/// recording, DeviceInfo::suballocator_index(). Thread-safety: all functions, from any thread. Its
/// lock is taken before the pools' and the recorder's.
class Suballocators {
  public:
    static constexpr const char* pytorch = trace::DeviceInfo::pytorch;
    static constexpr std::uint32_t max_gpus = trace::DeviceInfo::max_gpus;
    static constexpr std::size_t max_allocators = trace::format::max_devices / max_gpus - 1;

    /// PyTorch's cache on a GPU, which must be one.
    static std::uint32_t pytorch_on(int gpu) {
        return trace::DeviceInfo::suballocator_index(0, static_cast<std::uint32_t>(gpu));
    }
    static bool is_gpu(int gpu) { return gpu >= 0 && static_cast<std::uint32_t>(gpu) < max_gpus; }
    static int gpu_of(std::uint32_t device) { return static_cast<int>(device % max_gpus); }

    /// The number of the allocator with that name, from 1; none where there is none.
    std::optional<std::uint32_t> find(std::string_view name);
    /// None when there are max_allocators of others.
    std::optional<std::uint32_t> find_or_add(std::string_view name);

    /// Whether the allocator is described in the recording; if not, `describe` makes the GPU's
    /// description, or returns false.
    bool is_described(profiler::Recorder& recorder, std::uint32_t device,
                      FunctionRef<bool(trace::DeviceInfo& info)> describe) {
        return (is_pytorchs(device) &&
                pytorchs(device).described.load(std::memory_order_acquire)) ||
               is_described_now(recorder, device, describe);
    }

    /// Whether PyTorch's segments are known as far as they can be, when it says how much it has
    /// reserved. One load.
    bool knows_all(std::uint32_t device, std::uint64_t reserved) const {
        return pytorchs(device).expected.load(std::memory_order_relaxed) == reserved;
    }
    /// The context of all segments of PyTorch's; 0: there are several, or none. One load.
    std::uint32_t context_of_all(std::uint32_t device) const {
        return pytorchs(device).context.load(std::memory_order_relaxed);
    }

    /// Records `alloc` of PyTorch's. What holds it becomes a segment if PyTorch says that it has
    /// reserved more bytes than are known; `find` tells what of the GPU's memory holds an address.
    void allocated(profiler::Recorder& recorder, const trace::Event& alloc, std::uint64_t reserved,
                   FunctionRef<SegmentRange(std::uint64_t address)> find);
    /// The same of an allocator that does not tell what it has reserved.
    void allocated(profiler::Recorder& recorder, const trace::Event& alloc,
                   FunctionRef<SegmentRange(std::uint64_t address)> find);

    /// Whether there were ever segments. One load.
    bool any() const { return any_.load(std::memory_order_relaxed); }
    /// Whether an allocator ever cut another's blocks. One load.
    bool any_inner() const { return any_inner_.load(std::memory_order_relaxed); }
    /// The allocation at `address`, or all mappings in a range, went back to the driver.
    void memory_freed(profiler::Recorder& recorder, std::uint64_t address);
    void memory_unmapped(profiler::Recorder& recorder, std::uint64_t address, std::uint64_t bytes);
    /// Memory was mapped there: what slept there is awake.
    void memory_mapped(std::uint64_t address, std::uint64_t bytes) {
        if (any_asleep_.load(std::memory_order_relaxed)) {
            wake(address, bytes);
        }
    }
    /// The addresses are no longer reserved: nothing sleeps there any more.
    void addresses_freed(profiler::Recorder& recorder, std::uint64_t address, std::uint64_t bytes);
    /// Whether new physical memory of that size is to be mapped where memory sleeps: a guess by the
    /// size. One load, where nothing sleeps.
    bool is_for_sleeping(std::uint64_t bytes) {
        return any_asleep_.load(std::memory_order_relaxed) && sleeps(bytes);
    }
    /// The block went back to the allocator that `device` is: if another allocator cut it, that
    /// segment ends.
    void block_freed(profiler::Recorder& recorder, std::uint32_t device, std::uint64_t address);
    /// All blocks of the allocator went back to it at once.
    void all_freed(profiler::Recorder& recorder, std::uint32_t allocator);
    /// Whether the address lies in a segment.
    bool cuts(std::uint64_t address);
    /// Of an allocator, where a segment of its holds the address; 0: none does.
    std::uint32_t device_at(std::uint32_t allocator, std::uint64_t address);
    /// The name of the allocator, PyTorch's cache apart, whose block begins at the address, the
    /// smallest where there are several; empty: none does.
    std::string owner_of(profiler::Recorder& recorder, std::uint64_t address);
    /// Whether there are segments of others than PyTorch's cache. One load.
    bool any_others() const { return any_others_.load(std::memory_order_relaxed); }
    /// The context ended with its memory.
    void remove_context(std::uint32_t context);

    /// An event of a suballocation, without its call. What the program asked for is not told.
    static trace::Event make_event(trace::EventType type, std::uint32_t device,
                                   std::uint32_t context, std::uint64_t address,
                                   std::uint64_t bytes) {
        return profiler::Suballocation{.device = device,
                                       .context = context,
                                       .api = 0,
                                       .stack = 0,
                                       .address = address,
                                       .bytes = bytes}
            .event(type);
    }

  private:
    struct Segment {
        std::uint64_t bytes = 0;
        std::uint32_t context = 0;
        bool mapped = false;
        bool inner = false;
        bool asleep = false;  ///< unmapped under its blocks
    };
    using Segments = std::map<std::uint64_t, Segment>;

    /// An allocator on one GPU.
    struct Cache {
        std::atomic<bool> described{false};
        Segments segments{};
        std::uint64_t reserved = 0;              ///< of the segments that are known
        std::uint64_t unexplained = 0;           ///< what PyTorch says beyond that, modulo 2^64
        std::atomic<std::uint64_t> expected{0};  ///< their sum
        std::atomic<std::uint32_t> context{0};   ///< see context_of_all()
        bool several_contexts = false;
        /// What was unmapped without a block in it: PyTorch gave it back, or it sleeps as well.
        Segments unmapped{};
    };
    static constexpr std::size_t max_unmapped = 4096;  ///< of a cache

    static bool is_pytorchs(std::uint32_t device) { return device / max_gpus == 1; }
    Cache& pytorchs(std::uint32_t device) { return pytorchs_[device % max_gpus]; }
    const Cache& pytorchs(std::uint32_t device) const { return pytorchs_[device % max_gpus]; }
    Cache& of(std::uint32_t device) MEMLAB_REQUIRES(mutex_) {
        return is_pytorchs(device) ? pytorchs(device) : others_[device];
    }
    bool is_described_now(profiler::Recorder& recorder, std::uint32_t device,
                          FunctionRef<bool(trace::DeviceInfo& info)> describe);
    std::optional<std::uint32_t> find_locked(std::string_view name) const MEMLAB_REQUIRES(mutex_);
    /// visit(device, cache) for all that are described.
    template <class Visit>
    void for_each(const Visit& visit) MEMLAB_REQUIRES(mutex_);
    static const Segments::value_type* segment_at(const Cache& cache, std::uint64_t address);
    void set_reserved(Cache& cache, std::uint64_t reserved);
    void add_context(Cache& cache, std::uint32_t context);
    void find_segments(profiler::Recorder& recorder, const trace::Event& alloc,
                       FunctionRef<SegmentRange(std::uint64_t)> find) MEMLAB_REQUIRES(mutex_);
    SegmentRange find_inner(profiler::Recorder& recorder, std::uint32_t device,
                            std::uint64_t address) MEMLAB_REQUIRES(mutex_);
    void free_blocks(profiler::Recorder& recorder, std::uint32_t device, std::uint64_t address,
                     std::uint64_t bytes) MEMLAB_REQUIRES(mutex_);
    Segments::iterator remove(profiler::Recorder& recorder, std::uint32_t device,
                              Segments::iterator segment) MEMLAB_REQUIRES(mutex_);
    void record_segment(profiler::Recorder& recorder, const trace::Event& alloc,
                        const SegmentRange& range) MEMLAB_REQUIRES(mutex_);
    void find_woken(profiler::Recorder& recorder, const trace::Event& alloc, std::uint64_t reserved,
                    FunctionRef<SegmentRange(std::uint64_t)> find) MEMLAB_REQUIRES(mutex_);
    static bool holds_blocks(profiler::Recorder& recorder, std::uint32_t device,
                             std::uint64_t address, std::uint64_t bytes);
    void keep_asleep(profiler::Recorder& recorder, std::uint32_t device, std::uint64_t address,
                     std::uint64_t bytes) MEMLAB_REQUIRES(mutex_);
    void wake(std::uint64_t address, std::uint64_t bytes);
    bool sleeps(std::uint64_t bytes);
    static Segments::iterator first_in(Segments& segments, std::uint64_t address);
    void remove_in(profiler::Recorder& recorder, std::uint32_t device, std::uint64_t address,
                   std::uint64_t bytes, bool inner_only) MEMLAB_REQUIRES(mutex_);
    void remove_inner(profiler::Recorder& recorder, std::uint64_t address, std::uint64_t bytes)
        MEMLAB_REQUIRES(mutex_);

    threads::Mutex mutex_;
    std::vector<std::string> names_ MEMLAB_GUARDED_BY(mutex_);  ///< of the allocators 1, 2, ...
    std::array<Cache, max_gpus> pytorchs_{};
    std::map<std::uint32_t, Cache> others_ MEMLAB_GUARDED_BY(mutex_);
    std::atomic<bool> any_{false};
    std::atomic<bool> any_others_{false};
    std::atomic<bool> any_inner_{false};
    std::atomic<bool> any_asleep_{false};
    bool said_unexplained_ MEMLAB_GUARDED_BY(mutex_) = false;
};

}  // namespace memlab::interpose
