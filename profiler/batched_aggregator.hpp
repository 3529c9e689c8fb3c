// The aggregator of a running program, fed in batches.
//
// Adding an event up touches a dozen places of the aggregator's tables. In a program with work of
// its own each of them has left the processor's caches between two events, and an event costs
// several times what it costs in a row: measured in a training of PyTorch, 0.4 us each. So events
// wait until there are enough to share those misses; and as adding them up needs no order but
// their own, it is done after the lock that orders them is given back.
//
// Whoever looks, and every record that is not an event, adds up first what waits. So the figures
// are at all times those of the records so far; what a program that dies leaves in the batch is in
// its event log.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>

#include "profiler/trace/aggregator.hpp"

namespace memlab::profiler {

/// Thread-safety: "the order" is a lock of the owner, which it holds in every call. Below it is one
/// of this class.
class BatchedAggregator {
  public:
    using Order = std::unique_lock<std::mutex>;

    /// May give the order back, as the last thing that is done under it.
    void add(const trace::Event& event, Order& order) {
        Batch& batch = batches_[filling_];
        batch.events[batch.count++] = event;
        if (batch.count != batch.events.size()) {
            return;
        }
        // The batch before this one first: whoever adds it up holds this lock.
        const std::lock_guard turn(mutex_);
        filling_ = 1 - filling_;
        order.unlock();
        add_up(batch);
    }

    /// Any record but an event.
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

    /// The devices that are described so far.
    bool is_described(std::uint32_t device) const {
        const auto& devices = aggregator_.devices();
        return device < devices.size() && devices[device] != nullptr;
    }

  private:
    static constexpr std::size_t batch_size = 64;
    struct Batch {
        std::size_t count = 0;
        std::array<trace::Event, batch_size> events;
    };

    void add_up(Batch& batch) {
        for (std::size_t i = 0; i < batch.count; ++i) {
            aggregator_.on(batch.events[i]);
        }
        batch.count = 0;
    }

    std::size_t filling_ = 0;       // under the order
    std::array<Batch, 2> batches_;  // the one that is filled under the order, else under mutex_
    std::mutex mutex_;              // the aggregator
    trace::Aggregator aggregator_;
};

}  // namespace memlab::profiler
