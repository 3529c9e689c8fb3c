// The table: policies, the choice and its reason, the notes.
#include "report/whatif/table.hpp"

#include <nlohmann/json.hpp>

#include "report/whatif/pool_settings.hpp"
#include "report/whatif/render.hpp"
#include "report/whatif/trials.hpp"
#include "tests/catch.hpp"
#include "tests/unit/whatif/live_pool.hpp"
#include "tests/unit/whatif/random_programs.hpp"

using namespace memlab;
using namespace memlab::test;
using namespace memlab::report::whatif;

using Catch::Matchers::ContainsSubstring;

namespace {

bool read_pool(const PoolSettings& settings, allocator::PoolOptions* options, bool* one_stream,
               std::string* problem) {
    *options = {};
    for (const auto& [name, value] : settings) {
        if (name == "MEMLAB_ONE_STREAM") {
            *one_stream = value == "on";
        } else if (name == "MEMLAB_BACKEND") {  // the option table's
            options->expandable = value == "vmm";
        } else if (name == "MEMLAB_LARGE_ROUNDING_MB") {
            options->large_rounding = std::stoull(value) * mib;
        } else if (name == "MEMLAB_FRAGMENTED_ROUNDING_MB") {
            options->fragmented_rounding = std::stoull(value) * mib;
        } else if (name == "MEMLAB_ROUNDUP_POWER2_DIVISIONS") {
            *problem =
                allocator::parse_roundup_divisions(value, &options->roundup_power2_divisions);
        } else if (!set_pool_option(name, value, options, problem)) {
            return false;
        }
    }
    return true;
}

std::vector<Policy> policies(const std::vector<std::string>& names) {
    std::vector<Policy> list;
    for (const std::string& name : names) {
        Policy policy;
        std::string problem;
        INFO(name << ": " << problem);
        REQUIRE(read_policy(name, read_pool, &policy, &problem));
        list.push_back(std::move(policy));
    }
    return list;
}

std::string problem_with_policy(const std::string& name) {
    Policy policy;
    std::string problem;
    return read_policy(name, read_pool, &policy, &problem) ? "" : problem;
}

report::whatif::Recording recording_of(Program program) {
    report::whatif::Recording recording;
    recording.process.executable = "/opt/app/train";
    recording.process.pid = 4711;
    recording.programs.push_back(std::move(program));
    return recording;
}

report::Style plain_style(int width) {
    report::Style style;
    style.width = width;
    return style;
}

Program on_a_device(Program program, std::uint64_t total) {
    program.device.name = "Some GPU";
    program.device.total_bytes = total;
    return program;
}

}  // namespace

TEST_CASE("every default policy is one, and runs") {
    const Program program = on_a_device(random_program(4, 400, 40 * mib), 80ULL << 30);
    const Table table = tabulate(program, policies(default_policies()), std::nullopt);
    REQUIRE(table.rows.size() == default_policies().size());
    for (const Row& row : table.rows) {
        INFO(row.policy.name);
        CHECK(row.fits());
        CHECK(row.outcome.reserved_peak >= table.bound.requested);
    }
    CHECK(table.rows[0].outcome.reserved_peak == table.bound.rounded);
    REQUIRE(table.choice.row);
    CHECK(table.rows[*table.choice.row].policy.kind == PolicyKind::allocator);
}

TEST_CASE("policies that are none are refused with what there is") {
    CHECK_THAT(problem_with_policy("jemalloc"), ContainsSubstring("there are lower-bound"));
    CHECK_THAT(problem_with_policy("plain:x=1"), ContainsSubstring("no policy plain:x=1"));
    CHECK_THAT(problem_with_policy("pool:nothing=1"), ContainsSubstring("no option nothing"));
    CHECK_THAT(problem_with_policy("pool:rounding"), ContainsSubstring("name=value"));
    CHECK_THAT(problem_with_policy("pool:rounding=3"), ContainsSubstring("power of two"));
    CHECK_THAT(problem_with_policy("rmm:initial=x"), ContainsSubstring("initial=SIZE"));
    CHECK_THAT(problem_with_policy("rmm:initial=2GiB,maximum=1GiB"),
               ContainsSubstring("exceeds its maximum"));
    CHECK_THAT(problem_with_policy("async:threshold=-1"), ContainsSubstring("threshold"));
    CHECK_THAT(problem_with_policy("pytorch:garbage"), ContainsSubstring("name:value"));
    CHECK(problem_with_policy("rmm:initial=half") == nothing);
    CHECK(problem_with_policy("pool:roundup_power2_divisions=[256:1,>:8],max_split_size_mb=64") ==
          nothing);
}

TEST_CASE("the limit is the device, less what was in use beside the program") {
    ProgramWriter writer;
    writer.allocate(600 * mib);
    Program program = on_a_device(std::move(writer.program), 80ULL << 30);
    program.outside_known = true;
    program.outside_bytes = 500 * mib;
    const Table fits = tabulate(program, policies({"plain"}), 1100 * mib);
    CHECK(fits.rows[0].fits());
    const Table fails = tabulate(program, policies({"plain"}), 1099 * mib);
    CHECK(fails.capacity == 599 * mib);
    CHECK_FALSE(fails.rows[0].fits());
    CHECK_FALSE(fails.choice.row);
    CHECK_THAT(fails.choice.why, ContainsSubstring("nothing fits"));
    CHECK(tabulate(program, policies({"plain"}), mib).capacity == 0);
}

TEST_CASE("the choice reserves least, and does not live in the driver") {
    ProgramWriter writer;
    for (int i = 0; i < 200; ++i) {  // no cached PyTorch segment fits the next size
        const std::uint32_t id = writer.allocate((20 + static_cast<std::uint64_t>(i)) * mib);
        writer.free(id);
    }
    Program program = on_a_device(std::move(writer.program), 80ULL << 30);
    for (std::size_t id = 0; id < program.allocations.size(); ++id) {
        Allocation allocation = program.allocations[id];
        allocation.time_ns *= 1000;
        program.allocations.replace(id, allocation);
    }
    const std::vector<std::string> names = {"plain", "pytorch", "async"};
    const Table table = tabulate(program, policies(names), std::nullopt);
    CHECK(table.rows[*table.choice.row].policy.name == "async");
    CHECK_THAT(table.choice.why, !ContainsSubstring("in the driver's calls"));
    CHECK_FALSE(table.choice.ours);
    // The faster one does not fit: the one that is mostly in the driver is chosen, with a remark.
    ProgramWriter busy;
    const std::uint32_t held = busy.allocate(700 * mib);
    for (int i = 0; i < 2000; ++i) {
        const std::uint32_t id = busy.allocate((300 - static_cast<std::uint64_t>(i % 7)) * mib);
        busy.free(id);
    }
    busy.free(held);
    const Program tight = on_a_device(std::move(busy.program), 1002 * mib);
    const Table last_resort =
        tabulate(tight, policies({"rmm:initial=900MiB", "plain"}), std::nullopt);
    CHECK_FALSE(last_resort.rows[0].fits());
    CHECK(last_resort.rows[*last_resort.choice.row].policy.name == "plain");
}

TEST_CASE("what an option can do goes before what changes the program") {
    ProgramWriter writer;
    for (std::uint64_t i = 0; i < 200; ++i) {  // many calls of the driver with mapped memory
        const std::uint32_t id = writer.allocate((20 + 2 * i) * mib);
        writer.free(id);
        writer.empty_cache();
    }
    const Program program = on_a_device(std::move(writer.program), 80ULL << 30);
    const Table table =
        tabulate(program, policies({"pool", "pool:MEMLAB_BACKEND=vmm", "async:threshold=max"}),
                 std::nullopt);
    REQUIRE(table.choice.row);
    CHECK(table.rows[*table.choice.row].policy.ours);
    CHECK_THAT(table.rows[*table.choice.row].policy.name, ContainsSubstring("pool"));
}

TEST_CASE("PyTorch's allocator is a choice for programs that use it only") {
    Program program = on_a_device(random_program(9, 300, 40 * mib), 80ULL << 30);
    const std::vector<std::string> names = {"pool:large_rounding=1GiB",
                                            "pytorch:expandable_segments:True"};
    const Table without = tabulate(program, policies(names), std::nullopt);
    CHECK(without.rows[*without.choice.row].policy.ours);
    CHECK(without.rows[*without.choice.least].policy.pytorch);
    program.uses_pytorch = true;
    const Table with = tabulate(program, policies(names), std::nullopt);
    CHECK(with.rows[*with.choice.row].policy.pytorch);
    CHECK(with.rows[*with.choice.ours].policy.ours);
}

TEST_CASE("PyTorch's settings go into the variable that its version reads") {
    const std::vector<Policy> list =
        policies({"pytorch:expandable_segments:True", "pytorch", "pool:MEMLAB_BACKEND=vmm"});
    // Versions before 2.9 know the older name alone; the newer one, where it is set, hides it.
    CHECK(setting_text(list[0], {}) == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    const std::vector<trace::OptionValue> newer = {
        {"PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64"},
        {"PYTORCH_ALLOC_CONF", "max_split_size_mb:32"}};
    CHECK(setting_text(list[0], newer) == "PYTORCH_ALLOC_CONF=expandable_segments:True");
    CHECK(setting_text(list[1], newer) == "PYTORCH_ALLOC_CONF unset");
    CHECK(setting_text(list[2], newer) == "MEMLAB_BACKEND=vmm");
}

TEST_CASE("pools under the same options are the same, whatever they are called") {
    const std::vector<Policy> list =
        policies({"pool", "pool:MEMLAB_BACKEND=classic", "pool:MEMLAB_BACKEND=vmm", "plain"});
    CHECK(same_pool(list[0], list[1]));
    CHECK_FALSE(same_pool(list[0], list[2]));
    CHECK_FALSE(same_pool(list[0], list[3]));
    CHECK_FALSE(same_pool(list[3], list[3]));
    CHECK(list[2].label == "memlab backend=vmm");
}

TEST_CASE("memlab's pool on one stream is a row of its own, with a note") {
    ProgramWriter writer;
    const std::uint32_t first = writer.allocate(64 * mib);
    writer.request_free(first);
    writer.allocate(64 * mib);
    writer.complete(first);
    const std::vector<Policy> list =
        policies({"pool", "pool:MEMLAB_ONE_STREAM=on", "pool:MEMLAB_ONE_STREAM=off"});
    CHECK_FALSE(same_pool(list[0], list[1]));
    CHECK(same_pool(list[0], list[2]));
    const Table table = tabulate(on_a_device(writer.program, 80ULL << 30), list, std::nullopt);
    CHECK(table.rows[0].outcome.reserved_peak == 128 * mib);
    CHECK(table.rows[1].outcome.reserved_peak == 64 * mib);
    const auto says = [](const Table& made) {
        return std::any_of(made.notes.begin(), made.notes.end(), [](const std::string& note) {
            return note.find("whether all work went to one stream") != std::string::npos;
        });
    };
    CHECK(says(table));
    CHECK_FALSE(
        says(tabulate(on_a_device(writer.program, 80ULL << 30), policies({"pool"}), std::nullopt)));
}

TEST_CASE("our own pool is chosen where nothing else is clearly better") {
    ProgramWriter writer;
    writer.allocate(64 * mib);
    const Program program = on_a_device(std::move(writer.program), 80ULL << 30);
    const Table table = tabulate(program, policies({"pytorch", "pool", "plain"}), std::nullopt);
    CHECK(table.rows[*table.choice.row].policy.name == "pool");
    CHECK(table.choice.ours == table.choice.row);
}

TEST_CASE("the text fits any terminal and says what failed where") {
    ProgramWriter writer;
    writer.allocate(600 * mib);
    Allocation first = writer.program.allocations[0];
    first.stack = 7;
    writer.program.allocations.replace(0, first);
    const report::whatif::Recording recording =
        recording_of(on_a_device(std::move(writer.program), 512 * mib));
    std::vector<Table> tables;
    tables.push_back(tabulate(recording.programs[0], policies(default_policies()), std::nullopt));
    const DescribeStack place = [](std::uint32_t stack) {
        return stack == 7 ? std::string("train.cpp:12") : std::string();
    };
    for (const int width : {40, 60, 80, 120}) {
        const std::string text = render_text(recording, tables, plain_style(width), place);
        INFO(text);
        CHECK_THAT(text, ContainsSubstring("! plain CUDA"));
        CHECK_THAT(text, ContainsSubstring("train.cpp:12"));
        CHECK_THAT(text, ContainsSubstring("nothing fits"));
        std::size_t begin = 0;
        for (std::size_t end = text.find('\n'); end != std::string::npos;
             begin = end + 1, end = text.find('\n', begin)) {
            const std::string line = text.substr(begin, end - begin);
            INFO(line);
            CHECK((width < 60 || report::display_width(line) <= static_cast<std::size_t>(width)));
            CHECK((line.empty() || line.back() != ' '));
        }
    }
}

TEST_CASE("the JSON has what docs/whatif.md promises") {
    ProgramWriter writer;
    writer.allocate(600 * mib);
    const report::whatif::Recording recording =
        recording_of(on_a_device(std::move(writer.program), 512 * mib));
    std::vector<Table> tables;
    tables.push_back(
        tabulate(recording.programs[0], policies({"offline", "pool", "plain"}), 1ULL << 30));
    const auto json = nlohmann::json::parse(
        render_json("x.memlog", recording, tables, [](std::uint32_t) { return "a.cpp:1"; }));
    CHECK(json.at("schema") == "memlab-whatif-v1");
    const auto& device = json.at("devices").at(0);
    CHECK(device.at("capacity_bytes") == 1ULL << 30);
    CHECK(device.at("limited") == true);
    CHECK(device.at("outside_bytes").is_null());
    CHECK(device.at("held_bytes") == 600 * mib);
    CHECK(device.at("rows").at(0).at("order") == "time");
    CHECK(device.at("rows").at(1).at("driver").at("allocs") == 1);
    CHECK(device.at("rows").at(1).at("failure").is_null());
    CHECK(device.at("choice").at("policy") == "pool");
    std::vector<Table> failing;
    failing.push_back(tabulate(recording.programs[0], policies({"plain"}), std::nullopt));
    const auto failed = nlohmann::json::parse(
        render_json("x.memlog", recording, failing, [](std::uint32_t) { return "a.cpp:1"; }));
    const auto& failure = failed.at("devices").at(0).at("rows").at(0).at("failure");
    CHECK(failure.at("requested_bytes") == 600 * mib);
    CHECK(failure.at("place") == "a.cpp:1");
    CHECK(failed.at("devices").at(0).at("choice").at("policy").is_null());
}
