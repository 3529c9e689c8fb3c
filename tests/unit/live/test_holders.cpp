// "Who holds the memory of my GPU?": the text, the JSON and the advice.
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/unit/live/live_samples.hpp"
#include "tools/live/holders.hpp"

namespace memlab::tools {
namespace {

using Catch::Matchers::ContainsSubstring;

std::string first_advice(const ProcessFacts& facts, bool open_only = false) {
    ProcessSample process;
    process.facts = facts;
    GpuUse use;
    use.open_only = open_only;
    return advice_for(process, use, true).front();
}

TEST_CASE("what to do is said of each state", "[live]") {
    ProcessFacts facts = facts_of(50, "python3 train.py");
    CHECK(first_advice(facts) == "kill 50 ends it");
    facts.of_another = true;
    CHECK(first_advice(facts) == "it belongs to alice: they or root can end it");
    facts.of_another = false;
    facts.state = 'T';
    CHECK_THAT(first_advice(facts), ContainsSubstring("kill -CONT 50"));
    facts.state = 'D';
    CHECK_THAT(first_advice(facts), ContainsSubstring("waits in the kernel"));
    facts.state = 'S';
    facts.parent_gone = facts.worker = true;
    CHECK(first_advice(facts) == "the parent of this worker is gone: kill 50");
    facts.worker = false;
    facts.leader_gone = true;
    CHECK_THAT(first_advice(facts), ContainsSubstring("has ended"));
    facts.parent_gone = false;
    CHECK_THAT(first_advice(facts, true), ContainsSubstring("has the GPU open"));
    facts.state = 'Z';
    facts.zombie = true;
    CHECK_THAT(first_advice(facts), ContainsSubstring("kill 100"));
    facts.threads_left = true;
    CHECK_THAT(first_advice(facts), ContainsSubstring("kill -9 50"));
    facts.is_ending = true;
    CHECK_THAT(first_advice(facts), ContainsSubstring("it is ending"));
    facts.visible = false;
    CHECK_THAT(first_advice(facts), ContainsSubstring("hidden from this user"));
}

TEST_CASE("call sites of one line are one", "[live]") {
    const auto site_at = [](unsigned line, std::uint64_t gpu, std::uint64_t bytes) {
        LiveSite site;
        site.place.recorded = true;
        site.place.file = "train.py";
        site.place.line = static_cast<int>(line);
        site.place.function = "step";
        site.kind = "device";
        site.gpu = gpu;
        site.bytes = bytes;
        site.count = 1;
        return site;
    };
    const std::vector<LiveSite> places =
        one_per_place({site_at(7, 0, 50), site_at(8, 0, 40), site_at(8, 1, 35), site_at(8, 0, 30)});
    REQUIRE(places.size() == 3);
    CHECK(places[0].place.line == 8);
    CHECK(places[0].bytes == 70);
    CHECK(places[0].count == 2);
    CHECK(places[1].bytes == 50);
    CHECK(places[2].gpu == 1);
}

TEST_CASE("the page names every holder and what is not known", "[live]") {
    const MachineSample sample = join(small_machine());
    report::Style style;
    style.width = style.line_width = 100;
    style.ascii = true;
    const std::string text = render_holders_text(sample, {}, {}, style);
    CHECK_THAT(text, ContainsSubstring("GPU 0  NVIDIA H200  40.00 GiB of 141.00 GiB in use"));
    CHECK_THAT(text, ContainsSubstring("20.00 GiB     4711  python3 train.py"));
    CHECK_THAT(text, ContainsSubstring("memlab: allocated 12.00 GiB"));
    CHECK_THAT(text, ContainsSubstring("memlab-ctl 4711 empty-cache gives 7.00 GiB back"));
    CHECK_THAT(text, ContainsSubstring("the parent of this worker is gone: kill 4713"));
    CHECK_THAT(text, ContainsSubstring("2.00 GiB by no process that is listed"));
    HoldersOptions only_second;
    only_second.device = 1;
    CHECK(render_holders_text(sample, {}, only_second, style).find("GPU 0") == std::string::npos);

    Observed without;
    without.gpus.problem = "it is not there";
    CHECK_THAT(render_holders_text(join(without), {}, {}, style),
               ContainsSubstring("No GPU is known here"));
    CHECK_THAT(render_holders_text(join(without), {}, {}, style),
               ContainsSubstring("NVML says nothing (it is not there)"));
}

TEST_CASE("without arguments commands are names of programs", "[live]") {
    const MachineSample sample = join(small_machine());
    CHECK(shown_command(*sample.find(4712), true) == "python3 serve.py --token secret");
    CHECK(shown_command(*sample.find(4712), false) == "python3");
    // A process that was started with MEMLAB_ARGUMENTS=off tells its program alone.
    ProcessSample quiet = *sample.find(4711);
    quiet.status->arguments = {"python3"};
    CHECK(shown_command(quiet, true) == "python3");
}

TEST_CASE("the JSON has the same", "[live]") {
    const MachineSample sample = join(small_machine());
    LiveSite site;
    site.place.recorded = true;
    site.place.function = "train";
    site.kind = "device";
    site.bytes = gib;
    LiveSites sites;
    sites.sites.push_back(site);
    const auto json = nlohmann::json::parse(render_holders_json(sample, {{4711, sites}}, {}));
    REQUIRE(json["gpus"].size() == 2);
    const auto& first = json["gpus"][0]["processes"][0];
    CHECK(first["pid"] == 4711);
    CHECK(first["bytes"] == 20 * gib);
    CHECK(first["memlab"]["reserved_bytes"] == 19 * gib);
    CHECK(first["sites"][0]["place"]["function"] == "train");
    CHECK(json["gpus"][0]["processes"][1]["memlab"].is_null());
    CHECK(json["gpus"][0]["unaccounted_bytes"] == 2 * gib);
    CHECK(json["gpus"][1]["processes"][0]["parent_gone"] == true);
}

}  // namespace
}  // namespace memlab::tools
