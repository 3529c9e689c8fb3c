// The aggregator of a running program, fed in batches.
//
// Aggregating an event touches a dozen cache lines of the aggregator's tables, most of them its
// call site's. The program's own work evicts them between two events, so an event costs several
// times what it costs in a batch: in PyTorch training 0.3 us each. Events are therefore queued
// until call sites repeat within a batch. Aggregation needs only their order, so it runs after the
// recorder's lock, which orders them, is released.
//
// Readers, and nearly all records that are not events, flush the pending events first. So the
// statistics always cover all records so far; events pending when a program dies are in its log.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

#include "profiler/event_batch.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/prefetch.hpp"

namespace memlab::profiler {

/// Thread-safety: the caller holds its own lock, which orders the records, in every call except
/// where noted. This class's mutex nests inside it.
class BatchedAggregator {
  public:
    using Lock = std::unique_lock<std::mutex>;

    /// Pending records at most: a few training steps. Aggregating them takes about 0.3 ms.
    static constexpr std::size_t batch_size = 8192;
    /// Range of the flush threshold when the caller is about to block. Small batches cost up to
    /// twice as much per event, which is free only while the program waits anyway.
    static constexpr std::size_t min_batch_when_idle = 512;
    static constexpr std::size_t max_batch_when_idle = batch_size / 2;

    /// The add functions take the frequent records. They may release `lock`, as their last access
    /// to what it protects.
    void add(const trace::Event& event, Lock& lock) {
        batches_[filling_].add(event, EventTemplates::slot(event.type), encode_templates_);
        added(lock);
    }
    /// A free_requested of the pool and its free_completed of the same time.
    void add_freed(const trace::Event& free_requested, Lock& lock) {
        batches_[filling_].add(free_requested, EventTemplates::freed_slot, encode_templates_);
        added(lock);
    }
    void add(const trace::DeviceSample& sample, Lock& lock) {
        batches_[filling_].add(sample);
        added(lock);
    }
    /// Prefetches what adding an event of this slot (EventTemplates) writes. Call without the lock.
    void prefetch(std::size_t slot) const noexcept {
        trace::prefetch_to_write<sizeof filling_ + sizeof next_ + sizeof mutex_ + sizeof batches_>(
            &filling_);
        encode_templates_.prefetch(slot);
        trace::prefetch_to_write<64>(next_.load(std::memory_order_relaxed));
    }
    /// Call when the program is about to wait: aggregates the pending records if there are enough
    /// of them. If so returns true, with `lock` released.
    bool flush_if_idle(Lock& lock) {
        if (batches_[filling_].size() < idle_threshold_.load(std::memory_order_relaxed)) {
            return false;
        }
        swap_and_aggregate(lock);
        return true;
    }
    /// After a flush_if_idle() that flushed: whether the program still had to wait, so that the
    /// flush cost it nothing. Adapts the threshold. Call without the lock.
    void report_idle_wait(bool had_to_wait) {
        const std::size_t now = idle_threshold_.load(std::memory_order_relaxed);
        idle_threshold_.store(had_to_wait ? std::max(now / 2, min_batch_when_idle)
                                          : std::min(now * 2, max_batch_when_idle),
                              std::memory_order_relaxed);
    }
    /// Any other record.
    template <class Record>
    void on(const Record& record) {
        const std::lock_guard guard(mutex_);
        aggregate(batches_[filling_]);
        aggregator_.on(record);
    }

    /// The aggregate of all records so far. It does not change until the caller's lock is released.
    const trace::Aggregator& flush() {
        const std::lock_guard guard(mutex_);
        aggregate(batches_[filling_]);
        return aggregator_;
    }

    /// Held during aggregation; nests inside the caller's lock.
    std::mutex& aggregation_mutex() { return mutex_; }

    /// Whether the device was described.
    bool is_described(std::uint32_t device) const {
        const auto& devices = aggregator_.devices();
        return device < devices.size() && devices[device] != nullptr;
    }

  private:
    using Batch = EventBatch;

    void added(Lock& lock) {
        const Batch& batch = batches_[filling_];
        next_.store(batch.next(), std::memory_order_relaxed);
        if (batch.full()) {
            swap_and_aggregate(lock);
        }
    }
    void swap_and_aggregate(Lock& lock) {
        // Waits for the aggregation of the previous batch, which keeps batches in order.
        const std::lock_guard guard(mutex_);
        Batch& batch = batches_[filling_];
        filling_ = 1 - filling_;
        lock.unlock();
        aggregate(batch);
    }

    void aggregate(Batch& batch) { batch.drain(aggregator_, decode_templates_); }

    EventTemplates encode_templates_;          // guarded by the caller's lock
    EventTemplates decode_templates_;          // guarded by mutex_
    std::size_t filling_ = 0;                  // written under both locks
    std::atomic<const void*> next_ = nullptr;  // where the next record is written
    std::mutex mutex_;
    // The one being filled is guarded by the caller's lock, the other one by mutex_.
    std::array<Batch, 2> batches_{Batch(batch_size), Batch(batch_size)};
    trace::Aggregator aggregator_;  // guarded by mutex_
    std::atomic<std::size_t> idle_threshold_ = max_batch_when_idle;
};

}  // namespace memlab::profiler
