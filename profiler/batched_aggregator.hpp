// The aggregator of a running program, fed in batches.
//
// Adding an event up touches a dozen places of the aggregator's tables, most of them its call
// site's. In a program with work of its own they have left the processor's caches when the next
// event comes, and an event costs several times what it costs in a row: measured in a training of
// PyTorch, 0.3 us each. So events wait until there are enough for a call site to come up again and
// again; and as adding them up needs no order but their own, it is done after the lock that orders
// them is given back.
//
// Whoever looks, and nearly every record that is not an event, adds up first what waits. So the
// figures are at all times those of the records so far; what a program that dies leaves in the
// batch is in its event log.
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

/// Thread-safety: "the order" is a lock of the owner, which it holds in every call. Below it is one
/// of this class.
class BatchedAggregator {
  public:
    using Order = std::unique_lock<std::mutex>;

    /// How many records wait at most: a few steps of a training. To add them up takes some 0.3 ms.
    static constexpr std::size_t batch_size = 8192;
    /// From how many on they are added up before the program waits. Of few the single one costs
    /// more, up to twice as much: nothing to a program that then still waits, but to others it is.
    static constexpr std::size_t worthwhile_in_spare_time = 512;
    static constexpr std::size_t worthwhile_else = batch_size / 2;

    /// Of the records that a program makes all the time. May give the order back, as the last thing
    /// that is done under it.
    void add(const trace::Event& event, Order& order) {
        batches_[filling_].add(event, EventTemplates::sort_of(event.type), packed_);
        added(order);
    }
    /// A free_requested of the pool and its free_completed of the same time.
    void add_freed(const trace::Event& free_requested, Order& order) {
        batches_[filling_].add(free_requested, EventTemplates::freed, packed_);
        added(order);
    }
    void add(const trace::DeviceSample& sample, Order& order) {
        batches_[filling_].add(sample);
        added(order);
    }
    /// An event of this sort (EventTemplates) will be added soon. Without the order.
    void prefetch(std::size_t sort) const noexcept {
        trace::prefetch_to_write<sizeof filling_ + sizeof next_ + sizeof mutex_ + sizeof batches_>(
            &filling_);
        packed_.prefetch(sort);
        trace::prefetch_to_write<64>(next_.load(std::memory_order_relaxed));
    }
    /// Adds up what waits, if that is worth it: the program is about to wait. Whether it did, and
    /// then it gave the order back.
    bool catch_up(Order& order) {
        if (batches_[filling_].size() < worthwhile_.load(std::memory_order_relaxed)) {
            return false;
        }
        add_up_and_go_on(order);
        return true;
    }
    /// After a catch_up() that added up: whether the program still had to wait, so that it lost
    /// nothing. The next one will be sooner, or else later. Without the order.
    void caught_up(bool in_spare_time) {
        const std::size_t now = worthwhile_.load(std::memory_order_relaxed);
        worthwhile_.store(in_spare_time ? std::max(now / 2, worthwhile_in_spare_time)
                                        : std::min(now * 2, worthwhile_else),
                          std::memory_order_relaxed);
    }
    /// Any other record.
    template <class Record>
    void on(const Record& record) {
        const std::lock_guard turn(mutex_);
        add_up(batches_[filling_]);
        aggregator_.on(record);
    }

    /// What all records so far add up to. Nobody adds anything up until the order is given back.
    const trace::Aggregator& all() {
        const std::lock_guard turn(mutex_);
        add_up(batches_[filling_]);
        return aggregator_;
    }

    /// The lock that whoever adds up holds; it comes after the order.
    std::mutex& turn() { return mutex_; }

    /// The devices that are described so far.
    bool is_described(std::uint32_t device) const {
        const auto& devices = aggregator_.devices();
        return device < devices.size() && devices[device] != nullptr;
    }

  private:
    using Batch = EventBatch;

    void added(Order& order) {
        const Batch& batch = batches_[filling_];
        next_.store(batch.next(), std::memory_order_relaxed);
        if (batch.full()) {
            add_up_and_go_on(order);
        }
    }
    void add_up_and_go_on(Order& order) {
        // The batch before this one first: whoever adds it up holds this lock.
        const std::lock_guard turn(mutex_);
        Batch& batch = batches_[filling_];
        filling_ = 1 - filling_;
        order.unlock();
        add_up(batch);
    }

    void add_up(Batch& batch) { batch.take_all(aggregator_, taken_); }

    EventTemplates packed_;                    // under the order
    EventTemplates taken_;                     // under mutex_
    std::size_t filling_ = 0;                  // changed under the order and mutex_
    std::atomic<const void*> next_ = nullptr;  // where the next record goes
    std::mutex mutex_;
    // The one that is filled under the order, the other one under mutex_.
    std::array<Batch, 2> batches_{Batch(batch_size), Batch(batch_size)};
    trace::Aggregator aggregator_;  // under mutex_
    std::atomic<std::size_t> worthwhile_ = worthwhile_else;
};

}  // namespace memlab::profiler
