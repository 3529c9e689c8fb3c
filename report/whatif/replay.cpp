#include "report/whatif/replay.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>

#include "allocator/pool.hpp"
#include "report/reading/log_report.hpp"
#include "report/reading/read_ahead.hpp"
#include "report/reading/reader.hpp"
#include "report/whatif/program.hpp"

namespace memlab::report::whatif {

using allocator::Address;
using allocator::BackendStatus;
using allocator::BlockInfo;
using allocator::Fence;
using allocator::FenceState;
using allocator::FenceTiming;
using allocator::Tag;
using trace::Event;
using trace::EventType;

namespace {

/// An observer callback of a pool: recorded in the log, or emitted by the replay.
struct PoolEvent {
    EventType type = EventType::alloc;
    std::uint64_t address = 0;
    std::uint64_t requested = 0;
    std::uint64_t size = 0;
    std::uint64_t number = 0;   ///< of the event in the log; 0: emitted by the replay
    std::uint64_t time_ns = 0;  ///< of the log

    bool same_as(const PoolEvent& other) const {
        return type == other.type && address == other.address && requested == other.requested &&
               size == other.size;
    }
};

std::string to_text(const PoolEvent& event) {
    char text[160];
    std::snprintf(text, sizeof text, "%s", name_of(event.type));
    std::string result = text;
    if (event.requested != 0) {
        std::snprintf(text, sizeof text, " of %" PRIu64 " bytes", event.requested);
        result += text;
    }
    if (event.address != 0) {
        std::snprintf(text, sizeof text, " at 0x%" PRIx64 " (%" PRIu64 " bytes)", event.address,
                      event.size);
        result += text;
    }
    return result;
}

std::string position_text(const PoolEvent& event) {
    char text[80];
    std::snprintf(text, sizeof text, "event %" PRIu64 " at %.6f s", event.number,
                  static_cast<double>(event.time_ns) / 1e9);
    return text;
}

class Observer final : public allocator::PoolObserver {
  public:
    void on_alloc(const BlockInfo& block, Tag /*tag*/) override {
        add(EventType::alloc, block.address, block.requested, block.size);
    }
    void on_free_requested(const BlockInfo& block, Tag /*tag*/) override {
        add(EventType::free_requested, block.address, block.requested, block.size);
    }
    void on_free_completed(const BlockInfo& block) override {
        add(EventType::free_completed, block.address, block.requested, block.size);
    }
    void on_segment_alloc(Address segment, std::uint64_t size, Tag /*tag*/) override {
        add(EventType::segment_alloc, segment, 0, size);
    }
    void on_segment_free(Address segment, std::uint64_t size) override {
        add(EventType::segment_free, segment, 0, size);
    }
    void on_segment_map(Address address, std::uint64_t bytes, Tag /*tag*/) override {
        add(EventType::segment_map, address, 0, bytes);
    }
    void on_segment_unmap(Address address, std::uint64_t bytes) override {
        add(EventType::segment_unmap, address, 0, bytes);
    }
    void on_alloc_retry(std::uint64_t requested, Tag /*tag*/) override {
        add(EventType::alloc_retry, 0, requested, 0);
    }
    void on_reclaim(std::uint64_t requested, Tag /*tag*/) override {
        add(EventType::reclaim, 0, requested, 0);
    }
    void on_empty_cache() override { add(EventType::empty_cache, 0, 0, 0); }
    void on_tick(std::uint64_t now_ns) override { add(EventType::tick, 0, now_ns, 0); }
    void on_sync() override {}

    std::deque<PoolEvent> events;

  private:
    void add(EventType type, std::uint64_t address, std::uint64_t requested, std::uint64_t size) {
        events.push_back({type, address, requested, size, 0, 0});
    }
};

/// Returns the segment addresses that the driver returned in the recording.
class Backend final : public allocator::DeviceBackend {
  public:
    explicit Backend(std::uint64_t total_memory) : total_memory_(total_memory) {}

    BackendStatus segment_alloc(std::uint64_t bytes, Address* address) override {
        missing_bytes = bytes;
        if (!next_is(EventType::segment_alloc) || answers.front().size > bytes) {
            return impossible;
        }
        if (answers.front().size < bytes) {  // the recorded pool got it with a smaller request
            return out_of_memory;
        }
        *address = answers.front().address;
        return accept();
    }
    BackendStatus segment_free(Address /*address*/, std::uint64_t /*bytes*/) override { return {}; }
    // The log has no event for address reservations: a range begins at its first mapped page.
    BackendStatus range_reserve(Address* base, std::uint64_t /*bytes*/) override {
        if (!next_is(EventType::segment_map)) {
            return impossible;
        }
        *base = answers.front().address;
        return {};
    }
    BackendStatus range_release(Address /*base*/, std::uint64_t /*bytes*/) override { return {}; }
    BackendStatus pages_map(Address address, std::uint64_t bytes,
                            std::uint64_t /*chunk*/) override {
        missing_bytes = bytes;
        if (!next_is(EventType::segment_map) || answers.front().address != address ||
            answers.front().size != bytes) {
            return impossible;
        }
        return accept();
    }
    BackendStatus pages_unmap(Address /*address*/, std::uint64_t /*bytes*/) override { return {}; }
    std::uint64_t total_memory() const override { return total_memory_; }

    // Replayed frees use no fences: each is deferred until the free_completed event.
    BackendStatus fence_record(Fence* /*fence*/) override { return impossible; }
    FenceState fence_query(Fence /*fence*/) override { return FenceState::pending; }
    BackendStatus fence_wait_device(Fence /*fence*/) override { return impossible; }
    BackendStatus fence_wait_host(Fence /*fence*/) override { return impossible; }
    void fence_release(Fence /*fence*/) override {}

    std::deque<PoolEvent> answers;
    std::uint64_t missing_bytes = 0;  ///< of the last request that the log does not answer

  private:
    bool next_is(EventType type) const { return !answers.empty() && answers.front().type == type; }
    BackendStatus accept() {
        answers.pop_front();
        missing_bytes = 0;
        return {};
    }

    static constexpr BackendStatus impossible{BackendStatus::Kind::error,
                                              allocator::unusable_segment_code};
    static constexpr BackendStatus out_of_memory{BackendStatus::Kind::out_of_memory,
                                                 allocator::out_of_memory_code};
    const std::uint64_t total_memory_;
};

/// The replayed pool of one context.
struct ContextReplay {
    ContextReplay(const allocator::PoolOptions& options, std::uint64_t total_memory)
        : backend(total_memory), pool(options, backend, &observer) {}

    Backend backend;
    Observer observer;
    allocator::Pool pool;
    std::deque<PoolEvent> expected;
};

bool is_pool_event(const Event& event) {
    if (event.origin != trace::Origin::pool || event.kind != trace::MemoryKind::device) {
        return false;
    }
    switch (event.type) {
        case EventType::sync:
        case EventType::mark:
        case EventType::scope_begin:
        case EventType::scope_end:
        case EventType::label:
            return false;
        default:
            return true;
    }
}

class Replayer final : public trace::RecordSink {
  public:
    explicit Replayer(const ReadPoolOptions& read_options) : read_options_(read_options) {}

    using trace::RecordSink::on;
    void on(const trace::OptionValue& record) override { option_values_.push_back(record); }
    void on(const trace::DeviceInfo& record) override { devices_[record.index] = record; }
    void on(const trace::ContextInfo& record) override {
        first_contexts_.emplace(record.device, record.id);
    }
    void on(const trace::ContextLost& record) override {
        const auto found = pools_.find(record.context);
        if (found != pools_.end()) {
            const auto released = found->second->pool.stats().reserved_bytes.all.current;
            reserved_ -= std::min(reserved_, static_cast<std::uint64_t>(released));
            pools_.erase(found);
        }
    }
    void on(const Event& record) override {
        ++number_;
        if (stopped() || !is_pool_event(record)) {
            return;
        }
        ContextReplay* const pool = pool_of(record);
        if (pool == nullptr) {
            return;
        }
        ContextReplay& replay = *pool;
        ++result_.events;
        const PoolEvent event{record.type, record.address, record.requested,
                              record.size, number_,        record.time_ns};
        replay.expected.push_back(event);
        count(record);
        apply(replay, event);
        compare(replay);
    }

    ReplayResult finish(const trace::LogReadResult& read) {
        if (result_.divergence.empty() && read.status == trace::LogStatus::complete) {
            for (const auto& [context, replay] : pools_) {
                compare_end(*replay);
            }
        }
        return std::move(result_);
    }

  private:
    bool stopped() const { return !result_.divergence.empty() || !result_.error.empty(); }

    /// Null when the options cannot be used; result_.error then says why.
    ContextReplay* pool_of(const Event& record) {
        if (const auto known = pools_.find(record.context); known != pools_.end()) {
            return known->second.get();
        }
        PoolInForce in_force;
        std::string problem;
        const auto known = first_contexts_.find(record.device);
        const bool first = known == first_contexts_.end() || known->second == record.context;
        if (!read_options_(option_values_, devices_[record.device], first, &in_force, &problem)) {
            result_.error = "its options cannot be used (" + problem +
                            "); replay it with the memlab that recorded it";
            return nullptr;
        }
        auto replay = std::make_unique<ContextReplay>(in_force.options, in_force.total_memory);
        return pools_.emplace(record.context, std::move(replay)).first->second.get();
    }

    void count(const Event& record) {
        if (record.type == EventType::alloc) {
            ++result_.allocations;
        } else if (record.type == EventType::segment_alloc ||
                   record.type == EventType::segment_map) {
            ++result_.segments;
        }
    }

    void apply(ContextReplay& replay, const PoolEvent& event) {
        switch (event.type) {
            case EventType::alloc:
                if (!replay.pool.allocate(event.requested, 0).status.ok()) {
                    diverge_on_failure(replay, event);
                }
                break;
            case EventType::free_requested:
                if (replay.pool.free(event.address, 0, FenceTiming::deferred).kind !=
                    allocator::FreeResult::Kind::freed) {
                    diverge(event, "the replay has no such block to free");
                }
                break;
            case EventType::free_completed:
                if (!replay.pool.retire(event.address)) {
                    diverge(event, "the replay has no such freed block");
                }
                break;
            case EventType::alloc_retry:
                replay.pool.release_for_retry(event.requested, 0);
                break;
            case EventType::reclaim:
                replay.pool.reclaim(event.requested, 0);
                break;
            case EventType::empty_cache:
                replay.pool.release_some();
                break;
            case EventType::tick:
                replay.pool.tick(event.requested);
                break;
            case EventType::segment_alloc:
            case EventType::segment_map:
                replay.backend.answers.push_back(event);
                break;
            default:
                break;  // effects: only compared
        }
    }

    void diverge_on_failure(const ContextReplay& replay, const PoolEvent& event) {
        if (replay.backend.missing_bytes == 0) {
            diverge(event, "the replayed pool cannot serve it");
        } else if (replay.backend.answers.empty()) {
            diverge(event, "the replay needs " + std::to_string(replay.backend.missing_bytes) +
                               " bytes more from the driver where the recording needed none");
        } else {
            diverge(event, "the replay needs " + std::to_string(replay.backend.missing_bytes) +
                               " bytes more from the driver where the recording has " +
                               to_text(replay.backend.answers.front()));
        }
    }

    /// Compares the events that both sides have emitted so far.
    void compare(ContextReplay& replay) {
        while (!stopped() && !replay.expected.empty() && !replay.observer.events.empty()) {
            const PoolEvent& recorded = replay.expected.front();
            const PoolEvent& replayed = replay.observer.events.front();
            if (!recorded.same_as(replayed)) {
                diverge(recorded, "the replay has " + to_text(replayed));
                return;
            }
            count_reserved(recorded);
            replay.expected.pop_front();
            replay.observer.events.pop_front();
        }
    }

    void compare_end(const ContextReplay& replay) {
        if (stopped()) {
            return;
        }
        if (!replay.expected.empty()) {
            diverge(replay.expected.front(), "the replay has nothing like it");
        } else if (!replay.observer.events.empty()) {
            result_.divergence =
                "the recording ends, and the replay has " + to_text(replay.observer.events.front());
        }
    }

    void count_reserved(const PoolEvent& event) {
        if (event.type == EventType::segment_alloc || event.type == EventType::segment_map) {
            reserved_ += event.size;
            result_.reserved_peak = std::max(result_.reserved_peak, reserved_);
        } else if (event.type == EventType::segment_free ||
                   event.type == EventType::segment_unmap) {
            reserved_ -= std::min(reserved_, event.size);
        }
    }

    void diverge(const PoolEvent& recorded, const std::string& how) {
        if (result_.divergence.empty()) {
            result_.divergence =
                position_text(recorded) + ": the recording has " + to_text(recorded) + ", " + how;
        }
    }

    const ReadPoolOptions& read_options_;
    std::vector<trace::OptionValue> option_values_;
    std::map<std::uint32_t, trace::DeviceInfo> devices_;
    std::map<std::uint32_t, std::uint32_t> first_contexts_;  ///< by device
    std::map<std::uint32_t, std::unique_ptr<ContextReplay>> pools_;
    std::uint64_t number_ = 0;
    std::uint64_t reserved_ = 0;
    ReplayResult result_;
};

}  // namespace

ReplayResult replay_records(const FeedRecords& feed, const ReadPoolOptions& read_options) {
    Replayer replayer(read_options);
    const trace::LogReadResult read = feed(replayer);
    return replayer.finish(read);
}

ReplayResult replay_log(const std::string& path, const ReadPoolOptions& read_options) {
    trace::LogReadResult read;
    ReplayResult result = replay_records(
        [&](trace::RecordSink& sink) {
            return read = report::read_log_ahead(path, sink, trace::LogPart::beginning);
        },
        read_options);
    if (!read.is_log()) {
        result.error = not_a_log_error(read, path);
    } else if (read.records == 0) {
        result.error = report::describe_reading(path, read).error;
    } else if (read.status == trace::LogStatus::damaged) {
        result.warning = "the " + log_damage(read, path) + "; compared as far as it goes";
    } else if (read.gap) {
        result.warning =
            "the event log kept its beginning and its newest part; the beginning was "
            "compared";
    }
    return result;
}

}  // namespace memlab::report::whatif
