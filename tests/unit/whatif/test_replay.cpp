// Replays of a pool's log: equal for random programs, different for a log that was changed.
#include "report/whatif/replay.hpp"

#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/whatif/live_pool.hpp"

using namespace memlab;
using namespace memlab::test;
using memlab::report::whatif::ReadPoolOptions;
using memlab::report::whatif::ReplayResult;

using Catch::Matchers::ContainsSubstring;

namespace {

ReadPoolOptions always(const allocator::PoolOptions& options) {
    return [options](const std::vector<trace::OptionValue>&, const trace::DeviceInfo& device, bool,
                     report::whatif::PoolInForce* pool, std::string*) {
        pool->options = options;
        pool->total_memory = device.total_bytes / 2;  // as LivePools has it
        return true;
    };
}

allocator::PoolOptions random_options(std::uint64_t seed) {
    Random random(seed);
    allocator::PoolOptions options;
    options.free_sync = static_cast<allocator::FreeSync>(random.below(3));
    options.expandable = seed % 3 == 2;
    switch (random.below(6)) {
        case 0:
            options.coarse_alignment = options.rounding;
            options.fragmented_rounding = 0;
            break;
        case 1:
            options.max_split_size = 24 * mib;
            options.max_non_split_rounding = 24 * mib;
            break;
        case 2:
            options.roundup_power2_divisions.fill(4);
            break;
        case 3:
            options.garbage_collection_threshold = 0.4;
            options.total_memory = 100 * mib;
            break;
        case 4:
            options.trim_after_ns = 1 + random.below(3000);
            options.trim_backoff = random.one_in(2);
            break;
        default:
            options.large_rounding = 16 * mib;
            break;
    }
    return options;
}

ReplayResult replay(const Records& records, std::size_t count,
                    const allocator::PoolOptions& options) {
    return report::whatif::replay_records(
        [&](RecordSink& sink) { return feed_prefix(records, count, sink); }, always(options));
}

}  // namespace

TEST_CASE("a thousand random programs are replayed to the last segment") {
    std::uint64_t segments = 0;
    std::uint64_t unmaps = 0;
    std::uint64_t retries = 0;
    std::uint64_t reclaims = 0;
    std::uint64_t ticks = 0;
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
        const allocator::PoolOptions options = random_options(seed);
        const std::uint64_t total = (20 + seed % 200) * 2 * mib;
        const Records records = LivePools(seed, options, total).run(300);
        const ReplayResult result = replay(records, records.size(), options);
        INFO("seed " << seed);
        REQUIRE(result.error == nothing);
        REQUIRE(result.divergence == nothing);
        segments += result.segments;
        for (const AnyRecord& record : records) {
            if (const auto* event = std::get_if<Event>(&record)) {
                unmaps += event->type == EventType::segment_unmap ? 1 : 0;
                retries += event->type == EventType::alloc_retry ? 1 : 0;
                reclaims += event->type == EventType::reclaim ? 1 : 0;
                ticks += event->type == EventType::tick ? 1 : 0;
            }
        }
    }
    // The programs must have covered these.
    CHECK(segments > 10000);
    CHECK(unmaps > 1000);
    CHECK(retries > 500);
    CHECK(reclaims > 100);
    CHECK(ticks > 100);
}

TEST_CASE("every prefix of a log replays") {
    const allocator::PoolOptions options = random_options(3);
    const Records records = LivePools(3, options, 100 * mib).run(200);
    for (std::size_t count = 0; count <= records.size(); ++count) {
        INFO(count << " records");
        REQUIRE(replay(records, count, options).divergence == nothing);
    }
}

TEST_CASE("other options than those of the log are found out") {
    allocator::PoolOptions options;
    const Records records = LivePools(5, options, 400 * mib).run(300);
    REQUIRE(replay(records, records.size(), options).divergence == nothing);
    options.large_rounding = 32 * mib;
    const std::string divergence = replay(records, records.size(), options).divergence;
    CHECK_THAT(divergence, Catch::Matchers::StartsWith("event "));
    CHECK_THAT(divergence, ContainsSubstring("bytes more from the driver"));
}

TEST_CASE("a log that says something else is found out, wherever it does") {
    const allocator::PoolOptions options;
    const Records records = LivePools(7, options, 60 * mib).run(120);
    std::size_t changed = 0;
    for (std::size_t i = 0; i < records.size(); ++i) {
        const auto* event = std::get_if<Event>(&records[i]);
        if (event == nullptr || event->type == EventType::sync) {
            continue;
        }
        Records wrong = records;
        auto& altered = std::get<Event>(wrong[i]);
        switch (event->type) {
            case EventType::alloc:
            case EventType::free_requested:
            case EventType::free_completed:
                altered.size += 512;
                break;
            case EventType::segment_alloc:
            case EventType::segment_free:
                altered.size += 2 * mib;
                break;
            default:
                altered.requested += 1;
                altered.address += 1;
                break;
        }
        INFO("record " << i);
        CHECK(replay(wrong, wrong.size(), options).divergence != nothing);
        ++changed;
    }
    CHECK(changed > 50);
}

TEST_CASE("a segment that was given back and is missing from the log is a difference") {
    const allocator::PoolOptions options;
    Records records = LivePools(11, options, 60 * mib).run(300);
    bool removed = false;
    for (std::size_t i = 0; i < records.size() && !removed; ++i) {
        const auto* event = std::get_if<Event>(&records[i]);
        if (event != nullptr && event->type == EventType::segment_free) {
            records.erase(records.begin() + static_cast<std::ptrdiff_t>(i));
            removed = true;
        }
    }
    REQUIRE(removed);
    CHECK(replay(records, records.size(), options).divergence != nothing);
}

TEST_CASE("options that cannot be read are an error, not a difference") {
    const Records records = LivePools(1, {}, 60 * mib).run(20);
    const ReplayResult result = report::whatif::replay_records(
        [&](RecordSink& sink) { return feed_prefix(records, records.size(), sink); },
        [](const std::vector<trace::OptionValue>&, const trace::DeviceInfo&, bool,
           report::whatif::PoolInForce*, std::string* problem) {
            *problem = "MEMLAB_FUTURE is not an option";
            return false;
        });
    CHECK_THAT(result.error, ContainsSubstring("MEMLAB_FUTURE"));
    CHECK(result.divergence == nothing);
}

TEST_CASE("the replay knows the reserved peak") {
    const allocator::PoolOptions options;
    const Records records = LivePools(2, options, 200 * mib).run(300);
    std::uint64_t reserved = 0;
    std::uint64_t peak = 0;
    for (const AnyRecord& record : records) {
        if (const auto* event = std::get_if<Event>(&record)) {
            reserved += event->type == EventType::segment_alloc ? event->size : 0;
            reserved -= event->type == EventType::segment_free ? event->size : 0;
            peak = std::max(peak, reserved);
        }
    }
    const ReplayResult result = replay(records, records.size(), options);
    REQUIRE(result.divergence == nothing);
    CHECK(result.reserved_peak > 0);
    CHECK(result.reserved_peak == peak);
}
