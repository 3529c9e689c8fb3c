// The models: small cases whose result follows from the allocator's documentation or source, and
// invariants of all allocators and programs.
#include <functional>
#include <memory>

#include "report/whatif/async_model.hpp"
#include "report/whatif/packing.hpp"
#include "report/whatif/plain_model.hpp"
#include "report/whatif/pool_model.hpp"
#include "report/whatif/pytorch_model.hpp"
#include "report/whatif/rmm_model.hpp"
#include "report/whatif/runner.hpp"
#include "tests/catch.hpp"
#include "tests/unit/whatif/live_pool.hpp"
#include "tests/unit/whatif/random_programs.hpp"

using namespace memlab;
using namespace memlab::test;
using namespace memlab::report::whatif;

namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;
constexpr std::uint64_t unlimited = std::uint64_t{1} << 50;

PyTorchSettings pytorch(const char* text) {
    PyTorchSettings settings;
    std::string problem;
    REQUIRE(parse_pytorch_settings(text, &settings, &problem));
    return settings;
}

struct Candidate {
    const char* name;
    std::function<std::unique_ptr<Model>(std::uint64_t capacity)> make;
};

std::vector<Candidate> every_model() {
    const auto pool = [](auto change) {
        return [change](std::uint64_t capacity) {
            allocator::PoolOptions options;
            change(options);
            return std::make_unique<PoolModel>(capacity, options);
        };
    };
    const auto of_pytorch = [](const char* text) {
        return [text](std::uint64_t capacity) {
            PyTorchSettings settings = pytorch(text);
            settings.allowed = capacity;
            return std::make_unique<PyTorchModel>(capacity, settings);
        };
    };
    return {
        {"plain", [](std::uint64_t capacity) { return std::make_unique<PlainModel>(capacity); }},
        {"pool", pool([](allocator::PoolOptions&) {})},
        {"pool roundup", pool([](auto& options) { options.roundup_power2_divisions.fill(4); })},
        {"pool gc", pool([](auto& options) { options.garbage_collection_threshold = 0.5; })},
        {"pool expandable", pool([](auto& options) { options.expandable = true; })},
        {"pool trim", pool([](auto& options) { options.trim_after_ns = 5000; })},
        {"pytorch", of_pytorch("")},
        {"pytorch split", of_pytorch("max_split_size_mb:21")},
        {"pytorch roundup", of_pytorch("roundup_power2_divisions:4")},
        {"pytorch gc", of_pytorch("garbage_collection_threshold:0.5")},
        {"pytorch expandable", of_pytorch("expandable_segments:True")},
        {"rmm",
         [](std::uint64_t capacity) {
             return std::make_unique<RmmModel>(capacity, RmmSettings{});
         }},
        {"rmm bounded",
         [](std::uint64_t capacity) {
             return std::make_unique<RmmModel>(
                 capacity, RmmSettings{capacity / 8 / 256 * 256, capacity / 256 * 256});
         }},
        {"async",
         [](std::uint64_t capacity) { return std::make_unique<AsyncModel>(capacity, ~0ULL); }},
        {"async 0",
         [](std::uint64_t capacity) { return std::make_unique<AsyncModel>(capacity, 0); }},
    };
}

}  // namespace

TEST_CASE("a 3.81 MiB tensor, then nothing, then an emptied cache: PyTorch's four lines") {
    ProgramWriter writer;
    const std::uint32_t tensor = writer.allocate(4'000'000);
    writer.free(tensor);
    writer.empty_cache();
    const auto lines = [&](Model& model) {
        std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
        run(writer.program, model, [&](std::size_t, const Model& now) {
            seen.emplace_back(now.meter().allocated(), now.meter().reserved());
        });
        return seen;
    };
    const std::vector<std::pair<std::uint64_t, std::uint64_t>> expected = {
        {4'000'256, 20 * mib}, {0, 20 * mib}, {0, 20 * mib}, {0, 0}};
    PyTorchModel theirs(unlimited, {});
    CHECK(lines(theirs) == expected);
    PoolModel ours(unlimited, {});
    CHECK(lines(ours) == expected);
    // So does a policy that docs/whatif.md tried.
    allocator::PoolOptions options;
    options.large_rounding = 32 * mib;
    PoolModel coarser(unlimited, options);
    CHECK(lines(coarser) == expected);
}

TEST_CASE("without the options that are ours our pool reserves what PyTorch's does") {
    allocator::PoolOptions options;
    options.coarse_alignment = options.rounding;
    options.fragmented_rounding = 0;
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
        Program program = random_program(seed, 600, 64 * mib);
        // Complete at once, as PyTorch's frees are reusable at once.
        Steps steps;
        for (const Step& step : program.steps) {
            if (step.kind != StepKind::complete) {
                steps.push_back(step);
            }
            if (step.kind == StepKind::free) {
                steps.push_back({StepKind::complete, step.subject});
            }
        }
        program.steps = steps;
        std::vector<std::uint64_t> ours;
        std::vector<std::uint64_t> theirs;
        PoolModel pool(unlimited, options);
        PyTorchModel pytorch_model(unlimited, {});
        run(program, pool,
            [&](std::size_t, const Model& now) { ours.push_back(now.meter().reserved()); });
        run(program, pytorch_model,
            [&](std::size_t, const Model& now) { theirs.push_back(now.meter().reserved()); });
        INFO("seed " << seed);
        // Segment addresses differ, which decides between free blocks of equal size.
        REQUIRE(ours.size() == theirs.size());
        CHECK(*std::max_element(ours.begin(), ours.end()) ==
              Approx(*std::max_element(theirs.begin(), theirs.end())).epsilon(0.05));
    }
}

TEST_CASE("a freed block waits for the device in our pool, and for nothing in PyTorch's") {
    ProgramWriter writer;
    const std::uint32_t first = writer.allocate(64 * mib);
    writer.request_free(first);
    writer.allocate(64 * mib);
    writer.complete(first);
    PoolModel pool(unlimited, {});
    CHECK(run(writer.program, pool).reserved_peak == 128 * mib);
    PyTorchModel other(unlimited, {});
    CHECK(run(writer.program, other).reserved_peak == 64 * mib);
}

TEST_CASE("when memory is short our pool orders the device instead of failing") {
    ProgramWriter writer;
    const std::uint32_t first = writer.allocate(64 * mib);
    writer.request_free(first);
    writer.allocate(64 * mib);
    writer.complete(first);
    PoolModel pool(100 * mib, {});
    const Outcome outcome = run(writer.program, pool);
    CHECK_FALSE(outcome.failure);
    CHECK(outcome.reserved_peak == 64 * mib);
    CHECK(pool.meter().active() == 64 * mib);
}

TEST_CASE("PyTorch's streams do not share free blocks") {
    ProgramWriter writer;
    const std::uint32_t first = writer.allocate(64 * mib, 1);
    writer.free(first);
    writer.allocate(64 * mib, 2);
    PyTorchModel model(unlimited, {});
    CHECK(run(writer.program, model).reserved_peak == 128 * mib);
}

TEST_CASE("PyTorch: expandable segments grow by 20 MiB and give whole chunks back") {
    ProgramWriter writer;
    const std::uint32_t first = writer.allocate(30 * mib);
    const std::uint32_t second = writer.allocate(30 * mib);
    writer.free(first);
    writer.free(second);
    writer.allocate(1000);
    writer.empty_cache();
    std::vector<std::uint64_t> reserved;
    PyTorchModel model(unlimited, pytorch("expandable_segments:True"));
    run(writer.program, model, [&](std::size_t step, const Model& now) {
        const StepKind kind = writer.program.steps[step].kind;
        if (kind != StepKind::complete && kind != StepKind::free) {
            reserved.push_back(now.meter().reserved());
        }
    });
    CHECK(reserved == std::vector<std::uint64_t>{40 * mib, 60 * mib, 62 * mib, 2 * mib});
}

TEST_CASE("PyTorch: sizes are rounded to divisions of powers of two") {
    ProgramWriter writer;
    writer.allocate(1200 * kib);
    PyTorchModel model(unlimited, pytorch("roundup_power2_divisions:4"));
    CHECK(run(writer.program, model).allocated_peak == 1280 * kib);
}

TEST_CASE("PyTorch: settings that the model does not know are refused") {
    PyTorchSettings settings;
    std::string problem;
    for (const char* wrong :
         {"max_split_size_mb:20", "max_split_size_mb:x", "expandable_segments:1",
          "roundup_power2_divisions:3", "garbage_collection_threshold:1", "backend:cudaMallocAsync",
          "max_split_size_mb"}) {
        INFO(wrong);
        CHECK_FALSE(parse_pytorch_settings(wrong, &settings, &problem));
        CHECK(problem != nothing);
    }
}

TEST_CASE("plain CUDA: 512 bytes from a chunk of 2 MiB, pages above 1 MiB, all given back") {
    ProgramWriter writer;
    const std::uint32_t tiny = writer.allocate(1);
    const std::uint32_t second = writer.allocate(mib);
    const std::uint32_t third = writer.allocate(mib);
    const std::uint32_t large = writer.allocate(mib + 1);
    std::vector<std::uint64_t> reserved;
    for (const std::uint32_t id : {tiny, second, third, large}) {
        writer.free(id);
    }
    PlainModel model(unlimited);
    const Outcome outcome = run(writer.program, model, [&](std::size_t step, const Model& now) {
        if (writer.program.steps[step].kind != StepKind::complete) {
            reserved.push_back(now.meter().reserved());
        }
    });
    CHECK(reserved == std::vector<std::uint64_t>{2 * mib, 2 * mib, 4 * mib, 6 * mib, 6 * mib,
                                                 4 * mib, 2 * mib, 0});
    CHECK(outcome.calls.allocs == 4);
    CHECK(outcome.calls.frees == 4);
    CHECK(outcome.calls.time_ns > 4 * 85000.0 * 0.9);
}

TEST_CASE("RMM's pool doubles, halves its wish when it cannot, and never shrinks") {
    ProgramWriter writer;
    writer.allocate(100 * mib);
    const std::uint32_t second = writer.allocate(100 * mib);
    writer.allocate(100 * mib);
    writer.free(second);
    RmmModel grows(unlimited, {});
    CHECK(run(writer.program, grows).reserved_peak == 400 * mib);
    CHECK(grows.meter().reserved() == 400 * mib);
    // 200 MiB exist, 400 are requested: 100 remain.
    RmmModel short_of_memory(310 * mib, {});
    const Outcome outcome = run(writer.program, short_of_memory);
    CHECK_FALSE(outcome.failure);
    CHECK(outcome.reserved_peak == 300 * mib);
}

TEST_CASE("RMM's pool with a maximum takes half of what remains, and gives whole blocks back") {
    ProgramWriter writer;
    const std::uint32_t first = writer.allocate(10 * mib);
    RmmModel halves(unlimited, RmmSettings{0, 400 * mib});
    CHECK(run(writer.program, halves).reserved_peak == 200 * mib);
    writer.free(first);
    writer.allocate(300 * mib);
    RmmModel reclaims(unlimited, RmmSettings{0, 400 * mib});
    const Outcome outcome = run(writer.program, reclaims);
    CHECK_FALSE(outcome.failure);
    CHECK(reclaims.meter().reserved() == 300 * mib);
    CHECK(outcome.calls.frees == 1);
}

TEST_CASE("cudaMallocAsync keeps chunks of 32 MiB until the program synchronizes") {
    ProgramWriter writer;
    const std::uint32_t first = writer.allocate(40 * mib);
    writer.free(first);
    writer.mark();
    AsyncModel keeps(unlimited, ~0ULL);
    CHECK(run(writer.program, keeps).reserved_peak == 64 * mib);
    CHECK(keeps.meter().reserved() == 64 * mib);
    AsyncModel gives_back(unlimited, 0);
    run(writer.program, gives_back);
    CHECK(gives_back.meter().reserved() == 0);
    AsyncModel to_a_threshold(unlimited, 32 * mib);
    run(writer.program, to_a_threshold);
    CHECK(to_a_threshold.meter().reserved() == 32 * mib);
}

TEST_CASE("a context that is lost takes its pool along") {
    ProgramWriter writer;
    const std::uint32_t first = writer.allocate(64 * mib);
    writer.free(first);
    writer.program.steps.push_back({StepKind::context_lost, 1});
    PoolModel pool(unlimited, {});
    run(writer.program, pool);
    CHECK(pool.meter().reserved() == 0);
}

TEST_CASE("the run ends at the first refusal and says which") {
    ProgramWriter writer;
    writer.allocate(600 * mib);
    const std::uint32_t second = writer.allocate(600 * mib);
    writer.free(second);
    PyTorchModel model(gib, {});
    const Outcome outcome = run(writer.program, model);
    REQUIRE(outcome.failure);
    CHECK(outcome.failure->allocation == second);
    CHECK(outcome.failure->allocated == 600 * mib);
    CHECK(outcome.failure->reserved == 600 * mib);
}

TEST_CASE("an attempt that failed when recorded decides nothing") {
    ProgramWriter writer;
    writer.allocate(mib);
    writer.allocate(2 * gib);
    writer.program.steps.replace(writer.program.steps.size() - 1,
                                 {StepKind::attempt, writer.program.steps.back().subject});
    writer.allocate(mib);
    PyTorchModel fails_too(gib, {});
    const Outcome refused = run(writer.program, fails_too);
    CHECK_FALSE(refused.failure);
    CHECK(refused.attempts_served == 0);
    PyTorchModel serves(unlimited, {});
    CHECK(run(writer.program, serves).attempts_served == 1);
    CHECK(serves.meter().allocated() == 2 * mib);
}

TEST_CASE("every model, every program: sums match, bounds hold, the same run gives the same") {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        const Program program = random_program(seed, 500, 64 * mib, 1 + seed % 3);
        const std::uint64_t capacity = seed % 2 == 0 ? unlimited : (100 + 20 * seed) * mib;
        const LowerBound bound = lower_bound(program);
        for (const Candidate& candidate : every_model()) {
            INFO("seed " << seed << ", " << candidate.name);
            const std::unique_ptr<Model> model = candidate.make(capacity);
            bool sound = true;
            const Outcome outcome = run(program, *model, [&](std::size_t, const Model& now) {
                const Meter& meter = now.meter();
                sound = sound && meter.requested() <= meter.allocated() &&
                        meter.allocated() <= meter.active() && meter.active() <= meter.reserved() &&
                        meter.reserved() <= meter.capacity();
            });
            CHECK(sound);
            CHECK(outcome.reserved_peak >= outcome.active_peak);
            CHECK(outcome.at_growth.largest <= outcome.at_growth.total);
            if (!outcome.failure) {
                CHECK(outcome.reserved_peak >= bound.requested);
            }
            const std::unique_ptr<Model> again = candidate.make(capacity);
            const Outcome second = run(program, *again);
            CHECK(second.reserved_peak == outcome.reserved_peak);
            CHECK(second.calls.allocs == outcome.calls.allocs);
            CHECK(second.failure.has_value() == outcome.failure.has_value());
        }
    }
}

TEST_CASE("when all is freed nothing is allocated or active, and caches can be emptied") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        Program program = random_program(seed, 300, 64 * mib);
        std::vector<int> state(program.allocations.size(), 0);
        for (const Step& step : program.steps) {
            if (step.kind == StepKind::allocate || step.kind == StepKind::free ||
                step.kind == StepKind::complete) {
                ++state[step.subject];
            }
        }
        for (std::uint32_t id = 0; id < state.size(); ++id) {
            if (state[id] < 2) {
                program.steps.push_back({StepKind::free, id});
            }
            if (state[id] < 3) {
                program.steps.push_back({StepKind::complete, id});
            }
        }
        program.steps.push_back({StepKind::empty_cache, 0});
        for (const Candidate& candidate : every_model()) {
            INFO("seed " << seed << ", " << candidate.name);
            const std::unique_ptr<Model> model = candidate.make(unlimited);
            run(program, *model);
            CHECK(model->meter().requested() == 0);
            CHECK(model->meter().allocated() == 0);
            CHECK(model->meter().active() == 0);
            const bool keeps = std::string(candidate.name).starts_with("rmm");
            CHECK((model->meter().reserved() == 0 || keeps));
        }
    }
}

TEST_CASE(
    "a request larger than the device is refused by every model, even by a device of nothing") {
    for (const std::uint64_t capacity : {std::uint64_t{0}, 2 * mib, gib}) {
        for (const std::uint64_t requested : {gib + 1, std::uint64_t{1} << 55, ~std::uint64_t{0}}) {
            ProgramWriter writer;
            writer.allocate(requested);
            for (const Candidate& candidate : every_model()) {
                INFO(candidate.name << ", " << requested << " of " << capacity);
                const std::unique_ptr<Model> model = candidate.make(capacity);
                CHECK(run(writer.program, *model).failure);
                CHECK(model->meter().allocated() == 0);
            }
        }
    }
}

TEST_CASE("hostile logs: any sizes, addresses and orders run through every model") {
    for (std::uint64_t seed = 100; seed < 180; ++seed) {
        const Records records =
            seed % 2 == 0 ? WildRecords::make(seed, 600, true) : PlausibleRecords::make(seed, 600);
        ProgramBuilder builder;
        const report::whatif::Recording recording =
            builder.finish(feed_prefix(records, records.size(), builder));
        for (const Program& program : recording.programs) {
            const std::uint64_t capacity = std::min(program.device.total_bytes, unlimited);
            for (const Candidate& candidate : every_model()) {
                INFO("seed " << seed << ", " << candidate.name);
                const std::unique_ptr<Model> model = candidate.make(capacity);
                const Outcome outcome = run(program, *model);
                CHECK(outcome.reserved_peak <= capacity);
            }
            lower_bound(program);
            pack_offline(program, 1'000'000);
        }
    }
}
