#include "tests/unit/allocator/replay.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>

#include "tests/unit/allocator/fixture.hpp"

namespace memlab::allocator::testing {

namespace {

using What = Seen::What;

/// Returns the recorded results of the first backend; a replayed pool makes no other calls.
class ReplayBackend final : public DeviceBackend {
  public:
    BackendStatus segment_alloc(std::uint64_t bytes, Address* address) override {
        if (answers.empty() || answers.front().what != What::segment_alloc ||
            answers.front().size > bytes) {
            problem = "grew by a segment of " + std::to_string(bytes) + " bytes";
            return {BackendStatus::Kind::error, 1};
        }
        if (answers.front().size < bytes) {  // the first backend did not have that much
            return {BackendStatus::Kind::out_of_memory, out_of_memory_code};
        }
        *address = answers.front().address;
        answers.pop_front();
        return {};
    }
    BackendStatus segment_free(Address, std::uint64_t) override { return {}; }
    BackendStatus range_reserve(Address* base, std::uint64_t) override {
        // A new range is followed by a mapping at its base; if a segment follows instead, the first
        // backend had failed to reserve a range.
        if (answers.empty() || answers.front().what != What::segment_map) {
            return {BackendStatus::Kind::error, not_supported_code};
        }
        *base = answers.front().address;
        return {};
    }
    BackendStatus range_release(Address, std::uint64_t) override {
        problem = "released a range";
        return {};
    }
    BackendStatus pages_map(Address address, std::uint64_t bytes,
                            std::uint64_t /*chunk*/) override {
        if (answers.empty() || answers.front().what != What::segment_map ||
            answers.front().address != address || answers.front().size != bytes) {
            problem = "mapped " + std::to_string(bytes) + " bytes at " + std::to_string(address);
            return {BackendStatus::Kind::error, 1};
        }
        answers.pop_front();
        return {};
    }
    BackendStatus pages_unmap(Address, std::uint64_t) override { return {}; }
    std::uint64_t total_memory() const override { return total; }
    BackendStatus fence_record(Fence* fence) override {
        *fence = 0;
        problem = "recorded a fence";
        return {};
    }
    FenceState fence_query(Fence) override {
        problem = "asked for a fence";
        return FenceState::complete;
    }
    BackendStatus fence_wait_device(Fence) override {
        problem = "ordered the device";
        return {};
    }
    BackendStatus fence_wait_host(Fence) override {
        problem = "waited";
        return {};
    }
    void fence_release(Fence) override { problem = "released a fence"; }

    std::uint64_t total = 0;
    std::deque<Seen> answers;
    std::string problem;
};

std::string feed(Pool& pool, ReplayBackend& backend, const Seen& seen) {
    switch (seen.what) {
        case What::alloc:
            if (!pool.allocate(seen.requested, seen.tag).status.ok()) {
                return "an allocation failed";
            }
            if (!backend.answers.empty()) {
                return "an allocation did not grow";
            }
            return {};
        case What::free_requested:
            return pool.free(seen.address, seen.tag, FenceTiming::deferred).kind ==
                           FreeResult::Kind::freed
                       ? ""
                       : "a free found no block";
        case What::free_completed:
            return pool.retire(seen.address) ? "" : "there was no block to retire";
        case What::alloc_retry:
            pool.release_for_retry(seen.requested, seen.tag);
            return {};
        case What::tick:
            pool.tick(seen.requested);
            return {};
        case What::reclaim:
            pool.reclaim(seen.requested, seen.tag);
            return {};
        case What::empty_cache:
            pool.release_some();
            return {};
        case What::segment_alloc:
        case What::segment_map:
            backend.answers.push_back(seen);
            return {};
        case What::segment_unmap:
        case What::segment_free:
        case What::sync:
            return {};
    }
    return "an unknown event";
}

}  // namespace

std::string problem_of_replay(const PoolOptions& options, const std::vector<Seen>& events,
                              std::uint64_t total_memory) {
    ReplayBackend backend;
    backend.total = total_memory;
    CheckingObserver observer(options);
    Pool pool(options, backend, &observer);
    std::size_t fed = 0;
    const auto at = [&] { return " (replay of event " + std::to_string(fed) + ")"; };
    for (; fed < events.size(); ++fed) {
        if (std::string problem = feed(pool, backend, events[fed]); !problem.empty()) {
            return problem + at();
        }
        if (!backend.problem.empty()) {
            return backend.problem + at();
        }
    }
    std::vector<Seen> expected;
    std::copy_if(events.begin(), events.end(), std::back_inserter(expected),
                 [](const Seen& seen) { return seen.what != What::sync; });
    const std::vector<Seen>& got = observer.events();
    const auto parted =
        std::mismatch(expected.begin(), expected.end(), got.begin(), got.end()).first;
    if (parted != expected.end() || got.size() != expected.size()) {
        return "the replay parts from the events at " + std::to_string(parted - expected.begin()) +
               " of " + std::to_string(expected.size());
    }
    if (!observer.problems().empty()) {
        return "events of the replay: " + observer.problems().front();
    }
    return pool.validate();
}

}  // namespace memlab::allocator::testing
