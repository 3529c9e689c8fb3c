// The registry of the process's CUDA contexts, each with its pool.
//
// A context is identified by its handle; handles are reused, so a destroyed context leaves the
// registry. Its object is never freed, because another thread may still use it. Its contents are
// released, each part under its own lock; about 4 KiB per context remain.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "allocator/pool.hpp"
#include "interpose/driver/cuda_abi.hpp"
#include "interpose/memory/cuda_backend.hpp"
#include "interpose/memory/end_gate.hpp"
#include "interpose/memory/pool_recorder.hpp"
#include "threads/mutex.hpp"

namespace memlab::interpose {

class Memory;

class Context {
  public:
    /// `first`: the process's first on this device.
    Context(Memory& memory, CUcontext handle, CUdevice device, std::uint32_t id, bool primary,
            bool first);

    CUcontext handle() const { return handle_; }
    /// The driver's unique id (cuCtxGetId), never reused; 0: not available.
    std::uint64_t unique_id() const { return unique_id_; }
    CUdevice device() const { return device_; }
    std::uint32_t id() const { return id_; }
    bool primary() const { return primary_; }
    allocator::Pool& pool() { return pool_; }
    CudaBackend& backend() { return backend_; }

    /// Passed by driver calls that may destroy the context, until its memory is recorded as lost.
    /// Hold it (EndGate::Use) to use a context that is not the program's current one.
    EndGate& end_gate() { return end_gate_; }
    bool ending() const { return end_gate_.ending(); }

    /// Bytes held by the pool that no live allocation has, those whose frees are not complete
    /// included: reserved - allocated.
    std::uint64_t unused_bytes() const;

  private:
    EndGate end_gate_;
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
    /// The same one by one, in need of no memory: the next one from *index on, which is moved
    /// behind it and begins at 0; null: no more.
    Context* next(CUdevice device, std::size_t* index) const;

    /// Allocations in the green context belong to the primary context of its device.
    void add_green(CUcontext green, CUdevice device);

    /// Call before a driver call that may destroy or reset the context: on return memlab does not
    /// use it on its own behalf, no fence of another context uses it, and none will. Null: ignored.
    /// Returns the registered context, or null. Costs the same however much memory there is: most
    /// such calls destroy nothing.
    Context* before_destroy(CUcontext handle);
    /// That call has returned; `ended` is what before_destroy() returned. `destroyed`: drops the
    /// context's pool and ends its allocations and captures; else the context is used as before.
    void after_destroy(CUcontext handle, Context* ended, bool destroyed);

    /// Call when memory at this address was obtained from the driver, before that is recorded: the
    /// driver may hand out memory that another thread frees, or whose context it destroys, before
    /// that is recorded. Waits until it is, one second at most. Not for the end of `but` (may be
    /// null): for the context whose own memory it becomes.
    void wait_for_earlier_owner(std::uint64_t address, std::uint64_t bytes,
                                const Context* but) const;
    /// False: all that wait_for_earlier_owner() can wait for is a free.
    bool any_ending() const { return ending_.load(std::memory_order_acquire) != 0; }

    /// Call when the program obtains a handle. If a registered handle now denotes another context,
    /// the earlier one was destroyed, maybe unseen, and is dropped.
    void check_identity(CUcontext handle);

    /// The primary context of a device, while it is active; null when it is not.
    CUcontext primary_of(CUdevice device) const;
    /// The same where it is registered, without a call of the driver: unless its end was not seen
    /// it is active.
    CUcontext registered_primary(CUdevice device) const;

    /// `accessor` (the calling thread's current context) may now use memory of `owner`: owner's
    /// fences cover its work for as long as both exist, since work may still run after access is
    /// disabled.
    void share_memory(CUcontext accessor, CUcontext owner);
    /// share_memory() for all present and future contexts of a device, except where it is the
    /// accessor's.
    void share_memory_of(CUdevice owner);
    /// The current context may no longer use memory of `owner`.
    void unshare_memory(CUcontext owner);

    /// True when the process may have more than one context; a copy may then access memory of
    /// another.
    bool has_multiple() const { return multiple_.load(std::memory_order_relaxed); }
    void expect_multiple() { multiple_.store(true, std::memory_order_relaxed); }

    /// A copy or fill that runs in `accessor` uses the pooled memory at `address`. Copies need no
    /// peer access, so the fences of the owning context must cover `accessor` from now on; and one
    /// that is made with a context of `device` current (-1: a fill) must be allowed to reach it.
    void used_by_copy(std::uint64_t address, CUcontext accessor, CUdevice device);

    /// A graph node created for the context `accessor` (may be null) uses the pooled memory at
    /// `address`; `device` as above.
    void used_by_graph(std::uint64_t address, CUcontext accessor, CUdevice device = -1);
    /// Call before a graph is launched in this stream: the fences of all memory used by graph nodes
    /// cover the stream's context from now on.
    void before_graph_launch(CUstream stream);

    /// A second stream is about to get work: calls CudaFences::order_second_stream() of every
    /// context.
    void order_second_stream() noexcept;

    /// Records the device's properties, once.
    void describe_device(CUdevice device);
    /// What the driver says of the device.
    trace::DeviceInfo device_info(CUdevice device) const;

    /// Releases the device's (-1: every device's) cached memory to the driver, except that of
    /// context `but` (may be null); returns the bytes. Where that is none, but a call is under way
    /// that may end a context with cached memory, waits for its return, a second at most. Call
    /// without any of memlab's locks.
    std::uint64_t release_cached(CUdevice device, const Context* but);

    /// The same for an allocation that needs at least so many bytes of the device: releases
    /// nothing, and returns 0, where it could not succeed even then.
    std::uint64_t release_cached_for(CUdevice device, std::uint64_t bytes, const Context* but);

    /// Call when a capture has ended. After the last one the deferred frees get their fences.
    void on_capture_ended();

    /// The stream was destroyed (0: several were): its handle may be reused.
    void forget_stream(std::uint64_t stream);

  private:
    Context* find(CUcontext handle) const;
    Context* add(CUcontext handle);
    void describe_locked(CUdevice device) MEMLAB_REQUIRES(mutex_);
    /// `expected`: only if the handle still denotes that one; null: whichever it denotes.
    void drop(CUcontext handle, const Context* expected);
    bool has_earlier_owner(std::uint64_t address, std::uint64_t bytes, const Context* but) const;
    /// Whether a fence of any context covers another one.
    bool any_has_peers() const;
    CUcontext primary_if_green(CUcontext handle) const;

    /// Peer access of a context to all of a device's memory, in any context of the device.
    struct DeviceAccess {
        CUcontext accessor;
        CUdevice accessor_device;
        CUdevice owner;
        bool operator==(const DeviceAccess&) const = default;
    };
    static void grant_access(Context& owner, const DeviceAccess& access);

    Memory& memory_;
    /// Changes whenever a handle may denote another context than before. Never 0.
    std::atomic<std::uint64_t> generation_{1};
    std::atomic<bool> multiple_{false};
    std::atomic<int> ending_{0};  // of all contexts
    mutable threads::SharedMutex mutex_;
    std::unordered_map<CUcontext, Context*> contexts_
        MEMLAB_GUARDED_BY(mutex_);  // green contexts point at their primary
    std::vector<std::unique_ptr<Context>> owned_ MEMLAB_GUARDED_BY(mutex_);
    std::vector<const Context*> dropped_
        MEMLAB_GUARDED_BY(mutex_);  ///< whose loss may not be recorded yet
    std::vector<CUdevice> described_devices_ MEMLAB_GUARDED_BY(mutex_);
    std::vector<Context*> used_by_graphs_ MEMLAB_GUARDED_BY(mutex_);
    std::atomic<bool> any_used_by_graphs_{false};
    std::vector<DeviceAccess> device_accesses_ MEMLAB_GUARDED_BY(mutex_);
};

}  // namespace memlab::interpose
