// The program's own allocators as seen from inside. PyTorch's cache tells of each block that it
// hands out or takes back (hooks/pytorch.cpp); what it cuts them from are allocations that the
// driver, or memlab's pool, made for it. Both are recorded: the allocator has figures of its own,
// beside those of the GPU (trace::DeviceInfo).
//
// The allocator says with each block how much memory it has reserved. Where memlab knows less, the
// block is in memory that it does not know as a segment yet: whatever holds the block becomes one,
// whoever allocated it. So the segments are the allocator's at each moment, and where they are not,
// the report says so.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "interpose/driver/function_ref.hpp"
#include "profiler/recorder.hpp"
#include "trace/record.hpp"

namespace memlab::interpose {

/// Memory that an allocator cuts: of no bytes where there is none.
struct SegmentRange {
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
    bool mapped = false;  ///< by cuMemMap
};

/// The segments of PyTorch's caches, one cache for each GPU. Thread-safety: all functions, from any
/// thread. Its lock is taken before the pools' and the recorder's.
class Suballocators {
  public:
    static constexpr const char* pytorch = "PyTorch";
    /// DeviceInfo::index of PyTorch's cache on a GPU.
    static std::uint32_t device_index(int gpu) {
        return trace::DeviceInfo::suballocator_index(0, static_cast<std::uint32_t>(gpu));
    }

    /// Whether the cache on that GPU is described in the recording; if not, `describe` makes the
    /// GPU's description, or returns false.
    bool is_described(profiler::Recorder& recorder, int gpu,
                      FunctionRef<bool(trace::DeviceInfo& info)> describe) {
        return gpu >= 0 && static_cast<std::size_t>(gpu) < gpus_.size() &&
               (of(gpu).described.load(std::memory_order_acquire) ||
                is_described_now(recorder, gpu, describe));
    }

    /// Whether the allocator's segments are known as far as they can be, when it says how much it
    /// has reserved. One load.
    bool knows_all(int gpu, std::uint64_t reserved) const {
        return of(gpu).expected.load(std::memory_order_relaxed) == reserved;
    }
    /// The context of all segments on the GPU; 0: there are several, or none. One load.
    std::uint32_t context_of_all(int gpu) const {
        return of(gpu).context.load(std::memory_order_relaxed);
    }

    /// Records `alloc`, made by make_event(). What holds it becomes a segment if the allocator
    /// says that it has reserved more bytes than are known; `find` tells what holds an address.
    void allocated(profiler::Recorder& recorder, int gpu, const trace::Event& alloc,
                   std::uint64_t reserved, FunctionRef<SegmentRange(std::uint64_t address)> find);

    /// Whether there were ever segments. One load.
    bool any() const { return any_.load(std::memory_order_relaxed); }
    /// The allocation at `address`, or all mappings in a range, went back to the driver.
    void memory_freed(profiler::Recorder& recorder, std::uint64_t address);
    void memory_unmapped(profiler::Recorder& recorder, std::uint64_t address, std::uint64_t bytes);
    /// Whether the address lies in a segment.
    bool cuts(std::uint64_t address);
    /// The context ended with its memory.
    void remove_context(std::uint32_t context);

    /// An event of a suballocation, without its call. PyTorch does not tell what the program asked
    /// for.
    static trace::Event make_event(trace::EventType type, int gpu, std::uint32_t context,
                                   std::uint64_t address, std::uint64_t bytes) {
        trace::Event event;
        event.type = type;
        event.kind = trace::MemoryKind::suballocation;
        event.origin = trace::Origin::pool;
        event.device = device_index(gpu);
        event.context = context;
        event.address = address;
        event.requested = bytes;
        event.size = bytes;
        return event;
    }

  private:
    struct Segment {
        std::uint64_t bytes = 0;
        std::uint32_t context = 0;
        int gpu = 0;
        bool mapped = false;
    };
    struct Gpu {
        std::atomic<bool> described{false};
        std::uint64_t reserved = 0;     ///< of the segments that are known
        std::uint64_t unexplained = 0;  ///< what the allocator says beyond that, modulo 2^64
        std::atomic<std::uint64_t> expected{0};  ///< their sum
        std::atomic<std::uint32_t> context{0};   ///< see context_of_all()
        bool several_contexts = false;
    };
    using Segments = std::map<std::uint64_t, Segment>;

    Gpu& of(int gpu) { return gpus_[static_cast<std::size_t>(gpu)]; }
    const Gpu& of(int gpu) const { return gpus_[static_cast<std::size_t>(gpu)]; }
    bool is_described_now(profiler::Recorder& recorder, int gpu,
                          FunctionRef<bool(trace::DeviceInfo& info)> describe);
    void set_reserved(Gpu& gpu, std::uint64_t reserved);
    void belongs_to(Gpu& gpu, std::uint32_t context);
    void find_segments(profiler::Recorder& recorder, int gpu, const trace::Event& alloc,
                       FunctionRef<SegmentRange(std::uint64_t)> find);
    Segments::iterator remove(profiler::Recorder& recorder, Segments::iterator segment);
    void remove_in(profiler::Recorder& recorder, std::uint64_t address, std::uint64_t bytes);

    std::mutex mutex_;
    Segments segments_;
    std::array<Gpu, trace::DeviceInfo::max_gpus> gpus_{};
    std::atomic<bool> any_{false};
    bool said_unexplained_ = false;
};

}  // namespace memlab::interpose
