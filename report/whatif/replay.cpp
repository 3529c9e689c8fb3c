#include "report/whatif/replay.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>

#include "allocator/pool.hpp"
#include "report/read_ahead.hpp"
#include "report/whatif/program.hpp"

namespace memlab::whatif {

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

/// What a pool tells, and what the log says that it told.
struct Told {
    EventType type = EventType::alloc;
    std::uint64_t address = 0;
    std::uint64_t requested = 0;
    std::uint64_t size = 0;
    std::uint64_t event = 0;    ///< its number in the log; 0: told by the replay
    std::uint64_t time_ns = 0;  ///< of the log

    bool same_as(const Told& other) const {
        return type == other.type && address == other.address && requested == other.requested &&
               size == other.size;
    }
};

std::string text_of(const Told& told) {
    char text[160];
    std::snprintf(text, sizeof text, "%s", name_of(told.type));
    std::string result = text;
    if (told.requested != 0) {
        std::snprintf(text, sizeof text, " of %" PRIu64 " bytes", told.requested);
        result += text;
    }
    if (told.address != 0) {
        std::snprintf(text, sizeof text, " at 0x%" PRIx64 " (%" PRIu64 " bytes)", told.address,
                      told.size);
        result += text;
    }
    return result;
}

std::string place_of(const Told& told) {
    char text[80];
    std::snprintf(text, sizeof text, "event %" PRIu64 " at %.6f s", told.event,
                  static_cast<double>(told.time_ns) / 1e9);
    return text;
}

class Observer final : public allocator::PoolObserver {
  public:
    void on_alloc(const BlockInfo& block, Tag /*tag*/) override {
        tell(EventType::alloc, block.address, block.requested, block.size);
    }
    void on_free_requested(const BlockInfo& block, Tag /*tag*/) override {
        tell(EventType::free_requested, block.address, block.requested, block.size);
    }
    void on_free_completed(const BlockInfo& block) override {
        tell(EventType::free_completed, block.address, block.requested, block.size);
    }
    void on_segment_alloc(Address segment, std::uint64_t size, Tag /*tag*/) override {
        tell(EventType::segment_alloc, segment, 0, size);
    }
    void on_segment_free(Address segment, std::uint64_t size) override {
        tell(EventType::segment_free, segment, 0, size);
    }
    void on_segment_map(Address address, std::uint64_t bytes, Tag /*tag*/) override {
        tell(EventType::segment_map, address, 0, bytes);
    }
    void on_segment_unmap(Address address, std::uint64_t bytes) override {
        tell(EventType::segment_unmap, address, 0, bytes);
    }
    void on_alloc_retry(std::uint64_t requested, Tag /*tag*/) override {
        tell(EventType::alloc_retry, 0, requested, 0);
    }
    void on_make_room(std::uint64_t requested, Tag /*tag*/) override {
        tell(EventType::make_room, 0, requested, 0);
    }
    void on_empty_cache() override { tell(EventType::empty_cache, 0, 0, 0); }
    void on_tick(std::uint64_t now_ns) override { tell(EventType::tick, 0, now_ns, 0); }
    void on_sync() override {}

    std::deque<Told> told;

  private:
    void tell(EventType type, std::uint64_t address, std::uint64_t requested, std::uint64_t size) {
        told.push_back({type, address, requested, size, 0, 0});
    }
};

/// Answers what the log says that the driver answered.
class Backend final : public allocator::DeviceBackend {
  public:
    explicit Backend(std::uint64_t total_memory) : total_memory_(total_memory) {}

    BackendStatus segment_alloc(std::uint64_t bytes, Address* address) override {
        wanted = bytes;
        if (!next_is(EventType::segment_alloc) || answers.front().size > bytes) {
            return impossible;
        }
        if (answers.front().size < bytes) {  // the pool asked for less when this was not there
            return out_of_memory;
        }
        *address = answers.front().address;
        return taken();
    }
    BackendStatus segment_free(Address /*address*/, std::uint64_t /*bytes*/) override { return {}; }
    // Reserving addresses is told by no event: a range begins where its first pages are mapped.
    BackendStatus range_reserve(Address* base, std::uint64_t /*bytes*/) override {
        if (!next_is(EventType::segment_map)) {
            return impossible;
        }
        *base = answers.front().address;
        return {};
    }
    BackendStatus range_release(Address /*base*/, std::uint64_t /*bytes*/) override { return {}; }
    BackendStatus pages_map(Address address, std::uint64_t bytes) override {
        wanted = bytes;
        if (!next_is(EventType::segment_map) || answers.front().address != address ||
            answers.front().size != bytes) {
            return impossible;
        }
        return taken();
    }
    BackendStatus pages_unmap(Address /*address*/, std::uint64_t /*bytes*/) override { return {}; }
    std::uint64_t total_memory() const override { return total_memory_; }

    // No replayed free has a fence: each is deferred, and settled when the log says so.
    BackendStatus fence_record(Fence* /*fence*/) override { return impossible; }
    FenceState fence_query(Fence /*fence*/) override { return FenceState::pending; }
    BackendStatus fence_wait_device(Fence /*fence*/) override { return impossible; }
    BackendStatus fence_wait_host(Fence /*fence*/) override { return impossible; }
    void fence_release(Fence /*fence*/) override {}

    std::deque<Told> answers;
    std::uint64_t wanted = 0;  ///< bytes that the log does not have

  private:
    bool next_is(EventType type) const { return !answers.empty() && answers.front().type == type; }
    BackendStatus taken() {
        answers.pop_front();
        wanted = 0;
        return {};
    }

    static constexpr BackendStatus impossible{BackendStatus::Kind::error,
                                              allocator::unusable_segment_code};
    static constexpr BackendStatus out_of_memory{BackendStatus::Kind::out_of_memory,
                                                 allocator::out_of_memory_code};
    const std::uint64_t total_memory_;
};

/// One context's pool, done again.
struct Again {
    Again(const allocator::PoolOptions& options, std::uint64_t total_memory)
        : backend(total_memory), pool(options, backend, &observer) {}

    Backend backend;
    Observer observer;
    allocator::Pool pool;
    std::deque<Told> expected;
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
    void on(const trace::ContextLost& record) override {
        const auto found = pools_.find(record.context);
        if (found != pools_.end()) {
            const auto gone = found->second->pool.stats().reserved_bytes.all.current;
            reserved_ -= std::min(reserved_, static_cast<std::uint64_t>(gone));
            pools_.erase(found);
        }
    }
    void on(const Event& record) override {
        ++number_;
        if (stopped() || !is_pool_event(record)) {
            return;
        }
        Again* const pool = pool_of(record);
        if (pool == nullptr) {
            return;
        }
        Again& again = *pool;
        ++result_.events;
        const Told told{record.type, record.address, record.requested,
                        record.size, number_,        record.time_ns};
        again.expected.push_back(told);
        count(record);
        feed(again, told);
        compare(again);
    }

    ReplayResult finish(const trace::LogReadResult& read) {
        if (result_.divergence.empty() && read.status == trace::LogStatus::complete) {
            for (const auto& [context, again] : pools_) {
                at_the_end(*again);
            }
        }
        return std::move(result_);
    }

  private:
    bool stopped() const { return !result_.divergence.empty() || !result_.error.empty(); }

    /// None when the options cannot be used.
    Again* pool_of(const Event& record) {
        if (const auto known = pools_.find(record.context); known != pools_.end()) {
            return known->second.get();
        }
        PoolInForce in_force;
        std::string problem;
        if (!read_options_(option_values_, devices_[record.device], &in_force, &problem)) {
            result_.error = "its options cannot be used (" + problem +
                            "); replay it with the memlab that recorded it";
            return nullptr;
        }
        auto again = std::make_unique<Again>(in_force.options, in_force.total_memory);
        return pools_.emplace(record.context, std::move(again)).first->second.get();
    }

    void count(const Event& record) {
        if (record.type == EventType::alloc) {
            ++result_.allocations;
        } else if (record.type == EventType::segment_alloc ||
                   record.type == EventType::segment_map) {
            ++result_.segments;
        }
    }

    void feed(Again& again, const Told& told) {
        switch (told.type) {
            case EventType::alloc:
                if (!again.pool.allocate(told.requested, 0).status.ok()) {
                    refused(again, told);
                }
                break;
            case EventType::free_requested:
                if (again.pool.free(told.address, 0, FenceTiming::deferred).kind !=
                    allocator::FreeResult::Kind::freed) {
                    diverge(told, "the replay has no such block to free");
                }
                break;
            case EventType::free_completed:
                if (!again.pool.settle(told.address)) {
                    diverge(told, "the replay has no such block that was given back");
                }
                break;
            case EventType::alloc_retry:
                again.pool.release_for_retry(told.requested, 0);
                break;
            case EventType::make_room:
                again.pool.make_room(told.requested, 0);
                break;
            case EventType::empty_cache:
                again.pool.release_cached(false);
                break;
            case EventType::tick:
                again.pool.tick(told.requested);
                break;
            case EventType::segment_alloc:
            case EventType::segment_map:
                again.backend.answers.push_back(told);
                break;
            default:
                break;  // effects of the others, compared only
        }
    }

    void refused(const Again& again, const Told& told) {
        if (again.backend.wanted == 0) {
            diverge(told, "the replayed pool cannot serve it");
        } else if (again.backend.answers.empty()) {
            diverge(told, "the replay needs " + std::to_string(again.backend.wanted) +
                              " bytes more from the driver where the recording needed none");
        } else {
            diverge(told, "the replay needs " + std::to_string(again.backend.wanted) +
                              " bytes more from the driver where the recording has " +
                              text_of(again.backend.answers.front()));
        }
    }

    /// Both have told as much as they could until now.
    void compare(Again& again) {
        while (!stopped() && !again.expected.empty() && !again.observer.told.empty()) {
            const Told& recorded = again.expected.front();
            const Told& replayed = again.observer.told.front();
            if (!recorded.same_as(replayed)) {
                diverge(recorded, "the replay has " + text_of(replayed));
                return;
            }
            account(recorded);
            again.expected.pop_front();
            again.observer.told.pop_front();
        }
    }

    void at_the_end(const Again& again) {
        if (stopped()) {
            return;
        }
        if (!again.expected.empty()) {
            diverge(again.expected.front(), "the replay has nothing like it");
        } else if (!again.observer.told.empty()) {
            result_.divergence =
                "the recording ends, and the replay has " + text_of(again.observer.told.front());
        }
    }

    void account(const Told& told) {
        if (told.type == EventType::segment_alloc || told.type == EventType::segment_map) {
            reserved_ += told.size;
            result_.reserved_peak = std::max(result_.reserved_peak, reserved_);
        } else if (told.type == EventType::segment_free || told.type == EventType::segment_unmap) {
            reserved_ -= std::min(reserved_, told.size);
        }
    }

    void diverge(const Told& recorded, const std::string& how) {
        if (result_.divergence.empty()) {
            result_.divergence =
                place_of(recorded) + ": the recording has " + text_of(recorded) + ", " + how;
        }
    }

    const ReadPoolOptions& read_options_;
    std::vector<trace::OptionValue> option_values_;
    std::map<std::uint32_t, trace::DeviceInfo> devices_;
    std::map<std::uint32_t, std::unique_ptr<Again>> pools_;
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
        [&](trace::RecordSink& sink) { return read = report::read_log_ahead(path, sink); },
        read_options);
    if (!read.is_log()) {
        result.error = not_a_log_error(read, path);
    } else if (read.status == trace::LogStatus::damaged) {
        result.warning =
            "the event log is " + message_of(read, path) + "; compared as far as it goes";
    }
    return result;
}

}  // namespace memlab::whatif
