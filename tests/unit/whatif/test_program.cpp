// The recorded program: the calls of a log, and that any log gives a consistent program.
#include "report/whatif/program.hpp"

#include <set>

#include "tests/catch.hpp"
#include "tests/unit/whatif/live_pool.hpp"

using namespace memlab;
using namespace memlab::test;
using memlab::report::whatif::Allocation;
using memlab::report::whatif::Program;
using memlab::report::whatif::ProgramBuilder;
using memlab::report::whatif::StepKind;

namespace {

report::whatif::Recording program_of(const Records& records, std::size_t count) {
    ProgramBuilder builder;
    return builder.finish(feed_prefix(records, count, builder));
}

Event event(EventType type, Origin origin, std::uint64_t address, std::uint64_t requested,
            MemoryKind kind = MemoryKind::device) {
    Event result;
    result.type = type;
    result.kind = kind;
    result.origin = origin;
    result.context = 1;
    result.address = address;
    result.requested = requested;
    result.size = requested;
    return result;
}

Records head() {
    return {ProcessInfo{.pid = 1}, DeviceInfo{0, "Some GPU", "GPU-0", 1 << 30, 13000},
            ContextInfo{1, 0, true}};
}

std::vector<StepKind> kinds_of(const Program& program) {
    std::vector<StepKind> kinds;
    for (const report::whatif::Step& step : program.steps) {
        kinds.push_back(step.kind);
    }
    return kinds;
}

/// Checks the invariants that models rely on; "" when they hold.
std::string problem_of(const Program& program) {
    enum class State { none, live, freed, complete };
    std::vector<State> states(program.allocations.size(), State::none);
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
        const report::whatif::Step& step = program.steps[i];
        const std::string at = " (step " + std::to_string(i) + ")";
        if (step.kind == StepKind::mark || step.kind == StepKind::empty_cache ||
            step.kind == StepKind::context_lost) {
            continue;
        }
        if (step.subject >= states.size()) {
            return "a step without an allocation" + at;
        }
        State& state = states[step.subject];
        const State before = step.kind == StepKind::free       ? State::live
                             : step.kind == StepKind::complete ? State::freed
                                                               : State::none;
        if (state != before) {
            return "out of order" + at;
        }
        state = step.kind == StepKind::free       ? State::freed
                : step.kind == StepKind::complete ? State::complete
                                                  : State::live;
    }
    return {};
}

}  // namespace

TEST_CASE("a pool's log becomes calls and completions") {
    Records records = head();
    records.emplace_back(event(EventType::segment_alloc, Origin::pool, 1 << 21, 2 * mib));
    records.emplace_back(event(EventType::alloc, Origin::pool, 1 << 21, 100));
    records.emplace_back(event(EventType::free_requested, Origin::pool, 1 << 21, 100));
    records.emplace_back(event(EventType::sync, Origin::pool, 0, 0));
    records.emplace_back(event(EventType::free_completed, Origin::pool, 1 << 21, 100));
    records.emplace_back(event(EventType::empty_cache, Origin::pool, 0, 0));
    const auto recording = program_of(records, records.size());
    REQUIRE(recording.programs.size() == 1);
    const Program& program = recording.programs.front();
    CHECK(kinds_of(program) == std::vector<StepKind>{StepKind::allocate, StepKind::free,
                                                     StepKind::complete, StepKind::empty_cache});
    CHECK(program.allocations.front().requested == 100);
    CHECK(program.allocations.front().event == 2);
    CHECK(program.recorded.reserved_peak == 2 * mib);
    CHECK(program.recorded.pooled == 1);
    CHECK(program.inconsistencies == 0);
    CHECK_FALSE(program.streams_known);
}

TEST_CASE("what the driver served completes at once, and counts in no pool") {
    Records records = head();
    for (const MemoryKind kind : {MemoryKind::device, MemoryKind::async_pool}) {
        records.emplace_back(event(EventType::alloc, Origin::driver, 4096, 100, kind));
        records.emplace_back(event(EventType::free_requested, Origin::driver, 4096, 0, kind));
    }
    records.emplace_back(event(EventType::alloc, Origin::driver, 1, 5, MemoryKind::array));
    records.emplace_back(event(EventType::alloc, Origin::driver, 2, 5, MemoryKind::pinned));
    const auto recording = program_of(records, records.size());
    const Program& program = recording.programs.at(0);
    CHECK(kinds_of(program) == std::vector<StepKind>{StepKind::allocate, StepKind::free,
                                                     StepKind::complete, StepKind::allocate,
                                                     StepKind::free, StepKind::complete});
    CHECK(program.recorded.pooled == 0);
    CHECK(program.recorded.reserved_peak == 0);
}

TEST_CASE("streams are known where every allocation names one") {
    Records records = head();
    Event one = event(EventType::alloc, Origin::driver, 4096, 100, MemoryKind::async_pool);
    one.stream = 7;
    records.emplace_back(one);
    const auto known = program_of(records, records.size());
    CHECK(known.programs.at(0).streams_known);
    CHECK(known.programs.at(0).allocations[0].stream == 7);
    records.emplace_back(event(EventType::alloc, Origin::driver, 8192, 100));
    CHECK_FALSE(program_of(records, records.size()).programs.at(0).streams_known);
}

TEST_CASE("what is in use beside the program's memory is the samples' most") {
    Records records = head();
    records.emplace_back(event(EventType::segment_alloc, Origin::pool, 1 << 21, 2 * mib));
    records.emplace_back(event(EventType::alloc, Origin::pool, 1 << 21, 100));
    records.emplace_back(DeviceSample{1, 0, 500 * mib, 1 << 30});
    records.emplace_back(event(EventType::alloc, Origin::driver, 5 << 21, 10 * mib));
    records.emplace_back(DeviceSample{2, 0, 509 * mib, 1 << 30});
    const auto recording = program_of(records, records.size());
    CHECK(recording.programs.at(0).outside_known);
    CHECK(recording.programs.at(0).outside_bytes == 498 * mib);
}

TEST_CASE("an allocation that failed is an attempt") {
    Records records = head();
    OomEvent oom;
    oom.requested = 1 << 30;
    oom.context = 1;
    records.emplace_back(oom);
    const auto recording = program_of(records, records.size());
    CHECK(kinds_of(recording.programs.at(0)) == std::vector<StepKind>{StepKind::attempt});
    CHECK(recording.programs.at(0).recorded.failed == 1);
}

TEST_CASE("a lost context takes everything of it along") {
    Records records = head();
    records.emplace_back(ContextInfo{2, 0, false});
    records.emplace_back(event(EventType::segment_alloc, Origin::pool, 1 << 21, 2 * mib));
    records.emplace_back(event(EventType::alloc, Origin::pool, 1 << 21, 100));
    records.emplace_back(event(EventType::alloc, Origin::pool, (1 << 21) + 512, 100));
    Event other = event(EventType::alloc, Origin::driver, 9 << 21, 100);
    other.context = 2;
    records.emplace_back(other);
    records.emplace_back(event(EventType::free_requested, Origin::pool, 1 << 21, 100));
    records.emplace_back(ContextLost{5, 1});
    const auto recording = program_of(records, records.size());
    const Program& program = recording.programs.at(0);
    CHECK(problem_of(program) == nothing);
    CHECK(program.steps.back().kind == StepKind::context_lost);
    CHECK(program.steps.back().subject == 1);
    CHECK(std::count_if(program.steps.begin(), program.steps.end(),
                        [](const report::whatif::Step& step) {
                            return step.kind == StepKind::complete;
                        }) == 2);
}

TEST_CASE("every prefix of any log is a sound program") {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        const Records records = seed % 3 == 0   ? WildRecords::make(seed, 400, true)
                                : seed % 3 == 1 ? PlausibleRecords::make(seed, 400)
                                                : LivePools(seed, {}, 60 * mib).run(150);
        for (std::size_t count = 0; count <= records.size();
             count += seed < 6 ? 1 : 1 + records.size() / 7) {
            INFO("seed " << seed << ", " << count << " records");
            for (const Program& program : program_of(records, count).programs) {
                REQUIRE(problem_of(program) == nothing);
            }
        }
    }
}

TEST_CASE("allocations and steps are kept whole, whatever their numbers") {
    Random random(1);
    constexpr std::uint64_t sizes[] = {0, 512, 0xfffffffe, 0xffffffff, 1ULL << 40, ~0ULL};
    constexpr std::uint32_t ids[] = {0, 7, (1U << 29) - 2, (1U << 29) - 1, 1U << 30, ~0U};
    std::vector<Allocation> expected;
    report::whatif::Allocations allocations;
    report::whatif::Steps steps;
    std::uint64_t event = 0;
    for (std::size_t i = 0; i < 2000; ++i) {
        event = random.one_in(50) ? sizes[random.below(6)] : event + 1;
        const Allocation allocation{.requested = sizes[random.below(6)],
                                    .event = event,
                                    .time_ns = sizes[random.below(6)],
                                    .stream = random.below(3),
                                    .context = static_cast<std::uint32_t>(random.below(3)),
                                    .thread = ids[random.below(6)],
                                    .stack = ids[random.below(6)],
                                    .kind = trace::MemoryKind::async_pool,
                                    .origin = trace::Origin::pool};
        expected.push_back(allocation);
        allocations.push_back(allocation);
        steps.push_back({StepKind::context_lost, ids[i % 6]});
    }
    allocations.replace(5, expected[6]);
    expected[5] = expected[6];
    REQUIRE(allocations.size() == expected.size());
    const auto all = [](const Allocation& of) {
        return std::tuple(of.requested, of.event, of.time_ns, of.stream, of.context, of.thread,
                          of.stack, of.kind, of.origin);
    };
    for (std::size_t i = 0; i < expected.size(); ++i) {
        REQUIRE(all(allocations[i]) == all(expected[i]));
        REQUIRE(allocations.requested(i) == expected[i].requested);
        REQUIRE(steps[i].kind == StepKind::context_lost);
        REQUIRE(steps[i].subject == ids[i % 6]);
    }
    CHECK(std::distance(steps.begin(), steps.end()) == 2000);
}
