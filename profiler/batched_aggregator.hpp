// The aggregator of a running program, fed in batches.
//
// Aggregating an event touches a dozen cache lines of the aggregator's tables, most of them its
// call site's. The program's own work evicts them between two events, so an event costs several
// times what it costs in a batch: in PyTorch training 0.3 us each. Events are therefore queued
// until call sites repeat within a batch. Aggregation needs only their order, so it runs in a
// thread of memlab's own, which the first full batch starts; where there is none, or it is behind,
// after the recorder's lock, which orders them, is released.
//
// Readers, and nearly all records that are not events, flush the pending events first. So the
// statistics always cover all records so far; events pending when a program dies are in its log.
//
// While a checkpoint is made the aggregate does not change: whatever is added waits in more
// batches, so that no thread of the program waits for the checkpoint.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "profiler/event_batch.hpp"
#include "threads/mutex.hpp"
#include "threads/own_thread.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/aggregate/intervals.hpp"
#include "trace/prefetch.hpp"

namespace memlab::profiler {

/// Thread-safety: the caller holds its own lock, which orders the records, in every call except
/// where noted. This class's mutex nests inside it.
class BatchedAggregator {
  public:
    using Lock = threads::UniqueLock<threads::Mutex>;

    BatchedAggregator() = default;
    /// Waits for the thread, which finishes the batch at hand.
    ~BatchedAggregator() {
        {
            const threads::LockGuard guard(mutex_);
            stop_ = true;
        }
        changed_.notify_one();
        if (thread_started_) {
            pthread_join(thread_, nullptr);
        }
    }
    BatchedAggregator(const BatchedAggregator&) = delete;
    BatchedAggregator& operator=(const BatchedAggregator&) = delete;

    /// Of a batch: a few training steps. Two are pending at most, one of them handed to the thread.
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
    /// An event that fits_short() and in all else equals the last one of its slot.
    void add_short(const trace::ShortEvent& event, std::size_t slot, Lock& lock) {
        batches_[filling_].add_short(event, slot);
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
    /// The same of add_short().
    void prefetch_short() const noexcept {
        trace::prefetch_to_write<1>(&filling_);
        trace::prefetch_to_write<sizeof batches_>(&batches_);
        trace::prefetch_to_write<64>(next_.load(std::memory_order_relaxed));
    }
    /// Call when the program is about to wait: aggregates the pending records, or hands them to the
    /// thread, if there are enough of them. If so returns true, with `lock` released.
    bool flush_if_idle(Lock& lock) {
        if (batches_[filling_].size() < idle_threshold_.load(std::memory_order_relaxed) ||
            is_frozen()) {
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
        if (is_frozen()) {
            Batch& batch = batches_[filling_];
            batch.add(std::make_unique<trace::AnyRecord>(record));
            next_.store(batch.next(), std::memory_order_relaxed);
            if (batch.full() && !keep_for_later()) {
                const threads::LockGuard guard(mutex_);
                aggregate_all();
            }
            return;
        }
        const threads::LockGuard guard(mutex_);
        aggregate_all();
        aggregator_.on(record);
    }

    /// Keeps the aggregate of all records so far unchanged until its destruction. The caller's lock
    /// is only needed to create it.
    class Frozen {
      public:
        explicit Frozen(BatchedAggregator& of) : of_(of), guard_(of.mutex_) { freeze(); }
        /// With aggregation_mutex() locked.
        Frozen(BatchedAggregator& of, std::adopt_lock_t locked)
            : of_(of), guard_(of.mutex_, locked) {
            freeze();
        }
        /// Aggregates what was added in the meantime, as far as it was more than one batch.
        ~Frozen() {
            for (;;) {
                std::unique_ptr<Batch> batch;
                {
                    const threads::LockGuard lock(of_.queue_mutex_);
                    if (of_.queue_.empty()) {
                        of_.frozen_ = false;
                        return;
                    }
                    batch = std::move(of_.queue_.front());
                    of_.queue_.pop_front();
                }
                of_.aggregate(*batch);
            }
        }
        Frozen(const Frozen&) = delete;
        Frozen& operator=(const Frozen&) = delete;

        /// guard_ holds the lock.
        const trace::Aggregator& aggregate() const MEMLAB_UNCHECKED_LOCKS {
            return of_.aggregator_;
        }
        /// Of the moment at which the aggregate was frozen.
        trace::Intervals& intervals() MEMLAB_UNCHECKED_LOCKS { return of_.intervals_; }

      private:
        void freeze() MEMLAB_REQUIRES(of_.mutex_) {
            of_.aggregate_all();
            const threads::LockGuard lock(of_.queue_mutex_);
            of_.frozen_ = true;
        }

        BatchedAggregator& of_;
        const threads::LockGuard<threads::Mutex> guard_;
    };

    /// The aggregate of all records so far. It does not change until the caller's lock is released.
    const trace::Aggregator& flush() {
        const threads::LockGuard guard(mutex_);
        aggregate_all();
        return aggregator_;
    }

    /// Held during aggregation; nests inside the caller's lock.
    threads::Mutex& aggregation_mutex() MEMLAB_RETURN_LOCK(mutex_) { return mutex_; }

  private:
    using Batch = EventBatch;

    void added(Lock& lock) {
        const Batch& batch = batches_[filling_];
        const void* const next = batch.next();
        next_.store(next, std::memory_order_relaxed);
        // For the next event: the thread that read the line last has it in its core's cache.
        trace::prefetch_to_write<1>(next);
        if (batch.full()) {
            swap_and_aggregate(lock);
        }
    }
    bool is_frozen() {
        const threads::LockGuard lock(queue_mutex_);
        return frozen_;
    }
    /// If the aggregate is frozen, and not too much waits already: puts the batch that was filled
    /// aside.
    bool keep_for_later() {
        const threads::LockGuard lock(queue_mutex_);
        if (!frozen_ || queue_.size() >= max_queue) {
            return false;
        }
        try {
            auto full = std::make_unique<Batch>(batch_size);
            queue_.push_back(nullptr);
            full->swap(batches_[filling_]);
            queue_.back() = std::move(full);
        } catch (const std::bad_alloc&) {
            return false;
        }
        next_.store(batches_[filling_].next(), std::memory_order_relaxed);
        return true;
    }
    void swap_and_aggregate(Lock& lock) {
        if (is_frozen() && keep_for_later()) {
            return;
        }
        if (mutex_.try_lock()) {
            if (!waiting_ && has_thread()) [[likely]] {
                filling_ = 1 - filling_;
                waiting_ = true;
                mutex_.unlock();
                lock.unlock_early();
                changed_.notify_one();
                return;
            }
        } else {
            mutex_.lock();  // waits for the batch at hand, which keeps batches in order
        }
        const threads::LockGuard guard(mutex_, std::adopt_lock);
        aggregate_waiting();
        Batch& batch = batches_[filling_];
        filling_ = 1 - filling_;
        lock.unlock_early();
        aggregate(batch);
    }

    void aggregate_all() MEMLAB_REQUIRES(mutex_) {
        aggregate_waiting();
        aggregate(batches_[filling_]);
    }
    void aggregate_waiting() MEMLAB_REQUIRES(mutex_) {
        if (failed_) {
            failed_ = false;
            throw std::bad_alloc();  // ends the recording, as where it happens on this thread
        }
        if (waiting_) {
            waiting_ = false;
            aggregate(batches_[1 - filling_]);
        }
    }

    /// Whether there is a thread that aggregates; starts it, unless it would run instead of the
    /// program.
    bool has_thread() MEMLAB_REQUIRES(mutex_) {
        if (thread_wanted_) {
            thread_wanted_ = false;
            cpu_set_t processors;
            const bool several = sched_getaffinity(0, sizeof processors, &processors) == 0 &&
                                 CPU_COUNT(&processors) > 1;
            thread_started_ = several && threads::start_own_thread(&run, this, &thread_);
            thread_runs_ = thread_started_;
        }
        return thread_runs_;
    }
    static void* run(void* self) {
        static_cast<BatchedAggregator*>(self)->aggregate_in_thread();
        return nullptr;
    }
    void aggregate_in_thread() {
        const threads::LockGuard guard(mutex_);
        while (!stop_) {
            while (!stop_ && !waiting_) {
                changed_.wait(mutex_);
            }
            try {
                aggregate_waiting();
            } catch (const std::bad_alloc&) {
                failed_ = true;
                thread_runs_ = false;
                return;
            }
        }
    }

    void aggregate(Batch& batch) MEMLAB_REQUIRES(mutex_) {
        batch.drain(aggregator_, decode_templates_);
    }

    /// Batches that wait at most while the aggregate is frozen: 16 MiB.
    static constexpr std::size_t max_queue = 64;

    EventTemplates encode_templates_;  // guarded by the caller's lock
    EventTemplates decode_templates_ MEMLAB_GUARDED_BY(mutex_);
    std::size_t filling_ = 0;                  // written under both locks
    std::atomic<const void*> next_ = nullptr;  // where the next record is written
    threads::Mutex mutex_;
    bool waiting_ MEMLAB_GUARDED_BY(mutex_) = false;  // the batch that is not filled
    // The one being filled is guarded by the caller's lock, the other one by mutex_.
    std::array<Batch, 2> batches_{Batch(batch_size), Batch(batch_size)};
    trace::Aggregator aggregator_ MEMLAB_GUARDED_BY(mutex_);
    trace::Intervals intervals_ MEMLAB_GUARDED_BY(mutex_){aggregator_};
    std::atomic<std::size_t> idle_threshold_ = max_batch_when_idle;

    // The thread's.
    bool thread_wanted_ MEMLAB_GUARDED_BY(mutex_) = true;  // none was started yet
    bool thread_started_ MEMLAB_GUARDED_BY(mutex_) = false;
    bool thread_runs_ MEMLAB_GUARDED_BY(mutex_) = false;
    bool stop_ MEMLAB_GUARDED_BY(mutex_) = false;
    // Out of host memory: to be thrown where somebody can be told.
    bool failed_ MEMLAB_GUARDED_BY(mutex_) = false;
    pthread_t thread_ MEMLAB_GUARDED_BY(mutex_){};
    threads::ConditionVariable changed_;

    threads::Mutex queue_mutex_;  // innermost
    // Set under mutex_, too; with mutex_ free it is false.
    bool frozen_ MEMLAB_GUARDED_BY(queue_mutex_) = false;
    // Full ones, in order.
    std::deque<std::unique_ptr<Batch>> queue_ MEMLAB_GUARDED_BY(queue_mutex_);
};

}  // namespace memlab::profiler
