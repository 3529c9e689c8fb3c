// The CUDA contexts of the process, each with its pool.
//
// A context is known by its handle; handles are reused after a destroy, so a destroyed one leaves
// the registry. Its object is never freed: another thread may still be looking at it. What that
// holds goes, each part under its own lock: some 4 KiB stay of a context.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "allocator/pool.hpp"
#include "interpose/driver/cuda_abi.hpp"
#include "interpose/memory/cuda_backend.hpp"
#include "interpose/memory/pool_recorder.hpp"

namespace memlab::interpose {

class Memory;

class Context {
  public:
    Context(Memory& memory, CUcontext handle, CUdevice device, std::uint32_t id, bool primary);

    CUcontext handle() const { return handle_; }
    /// The driver's number for it, which no other context ever has; 0: it has none.
    std::uint64_t unique_id() const { return unique_id_; }
    CUdevice device() const { return device_; }
    std::uint32_t id() const { return id_; }
    bool primary() const { return primary_; }
    allocator::Pool& pool() { return pool_; }
    CudaBackend& backend() { return backend_; }

    /// Bytes that the pool holds without anyone using them: reserved - active.
    std::uint64_t cached_bytes() const;

  private:
    const CUcontext handle_;
    const CUdevice device_;
    const std::uint32_t id_;
    const bool primary_;
    const std::uint64_t unique_id_;
    CudaBackend backend_;
    PoolRecorder observer_;
    allocator::Pool pool_;
};

/// Thread-safety: all functions, from any thread.
class ContextRegistry {
  public:
    explicit ContextRegistry(Memory& memory) : memory_(memory) {}

    /// The calling thread's current context, registered on first sight; null when none is current.
    Context* current();

    /// Every registered context of the device (-1: of all devices).
    std::vector<Context*> all(CUdevice device = -1) const;

    /// Allocations in `green` belong to the primary context of its device.
    void add_green(CUcontext green, CUdevice device);

    /// The context may be destroyed or reset by the call that comes: no thread of ours is in a call
    /// that names it when this returns, and none begins one. Null: none.
    void ends(CUcontext handle);
    /// That call has returned. `destroyed`: drops the context's pool and ends what lived in it,
    /// captures of its streams as well; else everything is as before.
    void ended(CUcontext handle, bool destroyed);

    /// The program got this handle. One that is known, but is another context's than it was, means
    /// that the earlier one ended unseen.
    void seen(CUcontext handle);

    /// The primary context of a device, while it is active; null when it is not.
    CUcontext primary_of(CUdevice device) const;

    /// `accessor` may now use memory of `owner`: its work belongs to owner's fences, for as long as
    /// both exist (what it submitted runs on after access is taken away).
    /// The accessor is the calling thread's current context.
    void share_memory(CUcontext accessor, CUcontext owner);
    /// The same of every context of a device, those to come too; not where it is the accessor's.
    void share_memory_of(CUdevice owner);
    /// The current context may no longer use memory of `owner`.
    void unshare_memory(CUcontext owner);

    /// True when the process may have more than one context: a copy may then reach into another.
    bool several() const { return several_.load(std::memory_order_relaxed); }
    void expect_several() { several_.store(true, std::memory_order_relaxed); }

    /// A copy that runs in `accessor` uses the pooled memory at `address`: no peer access is needed
    /// for that, so the fences of another context's memory must cover `accessor` from now on.
    void used_by_copy(std::uint64_t address, CUcontext accessor);

    /// A node of a graph uses the pooled memory at `address`; `accessor` is the context that it was
    /// made for (may be null).
    void used_by_graph(std::uint64_t address, CUcontext accessor);
    /// A graph is about to be launched in a stream of this context: whatever memory nodes of graphs
    /// were seen to use, its fences cover that context from now on.
    void graph_runs_in(CUstream stream);

    /// A second stream is about to be given work: as CudaFences's, for every context.
    void order_second_stream() noexcept;

    /// Tells the recording of the device, once.
    void describe_device(CUdevice device);

    /// Gives cached memory of a device back to the driver, except that of `but` (may be null);
    /// returns the bytes.
    std::uint64_t release_cached(CUdevice device, const Context* but);

    /// A capture is over. When it was the last, the frees that waited for it get their fences.
    void captures_over();

    /// The stream is gone (0: several are): its handle may be another's from now on.
    void forget_stream(std::uint64_t stream);

  private:
    Context* find(CUcontext handle) const;
    Context* add(CUcontext handle);
    void describe_locked(CUdevice device);
    void drop(CUcontext handle);
    CUcontext primary_if_green(CUcontext handle) const;

    /// One device's memory is another's context to use, however many contexts it has.
    struct DeviceAccess {
        CUcontext accessor;
        CUdevice accessor_device;
        CUdevice owner;
        bool operator==(const DeviceAccess&) const = default;
    };
    static void let_use(Context& owner, const DeviceAccess& access);

    Memory& memory_;
    /// Changes whenever a handle may stand for another context than before. Never 0.
    std::atomic<std::uint64_t> generation_{1};
    std::atomic<bool> several_{false};
    mutable std::shared_mutex mutex_;
    std::unordered_map<CUcontext, Context*> contexts_;  // green contexts point at their primary
    std::vector<std::unique_ptr<Context>> owned_;
    std::vector<CUdevice> described_devices_;
    std::vector<Context*> used_by_graphs_;
    std::atomic<bool> any_used_by_graphs_{false};
    std::vector<DeviceAccess> device_accesses_;
};

}  // namespace memlab::interpose
