// The CUDA contexts of the process, each with its pool.
//
// A context is known by its handle; handles are reused after a destroy, so a destroyed one leaves
// the registry. Its object is never freed: another thread may still be looking at it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "allocator/pool.hpp"
#include "interpose/cuda_abi.hpp"
#include "interpose/cuda_backend.hpp"
#include "interpose/pool_recorder.hpp"

namespace memlab::interpose {

class Session;

class Context {
  public:
    Context(Session& session, CUcontext handle, CUdevice device, std::uint32_t id, bool primary);

    CUcontext handle() const { return handle_; }
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
    CudaBackend backend_;
    PoolRecorder observer_;
    allocator::Pool pool_;
};

/// Thread-safety: all functions, from any thread.
class ContextRegistry {
  public:
    explicit ContextRegistry(Session& session) : session_(session) {}

    /// The calling thread's current context, registered on first sight; null when none is current.
    Context* current();

    /// Every registered context of the device (-1: of all devices).
    std::vector<Context*> all(CUdevice device = -1) const;

    /// Allocations in `green` belong to the primary context of its device.
    void add_green(CUcontext green, CUdevice device);
    void remove_green(CUcontext green);

    /// The context was destroyed or reset: drops its pool and ends what lived in it.
    void lost(CUcontext handle);
    /// The same for the primary context of a device.
    void primary_lost(CUdevice device);

    /// `accessor` may now use memory of `owner`: its work belongs to owner's fences, for as long as
    /// both exist (what it submitted runs on after access is taken away).
    /// The accessor is the calling thread's current context.
    void share_memory(CUcontext accessor, CUcontext owner);
    /// The current context may no longer use memory of `owner`.
    void unshare_memory(CUcontext owner);

    /// True when the process may have more than one context: a copy may then reach into another.
    bool several() const { return several_.load(std::memory_order_relaxed); }
    void expect_several() { several_.store(true, std::memory_order_relaxed); }

    /// A copy that runs in `accessor` uses the pooled memory at `address`: no peer access is needed
    /// for that, so the fences of another context's memory must cover `accessor` from now on.
    void used_by_copy(std::uint64_t address, CUcontext accessor);

    /// A second stream is about to be given work: as CudaFences's, for every context.
    void order_second_stream() noexcept;

    /// Tells the recording of the device, once.
    void describe_device(CUdevice device);

    /// Gives cached memory of a device back to the driver, except that of `but` (may be null);
    /// returns the bytes.
    std::uint64_t release_cached(CUdevice device, const Context* but);

    /// The captures are over: the frees that waited for it get their fences.
    void fence_deferred();

  private:
    Context* find(CUcontext handle) const;
    Context* add(CUcontext handle);
    void describe_locked(CUdevice device);

    Session& session_;
    /// Changes whenever a handle may stand for another context than before. Never 0.
    std::atomic<std::uint64_t> generation_{1};
    std::atomic<bool> several_{false};
    mutable std::shared_mutex mutex_;
    std::unordered_map<CUcontext, Context*> contexts_;  // green contexts point at their primary
    std::vector<std::unique_ptr<Context>> owned_;
    std::vector<CUdevice> described_devices_;
};

}  // namespace memlab::interpose
