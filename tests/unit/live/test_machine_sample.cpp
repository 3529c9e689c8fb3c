// NVML's listing is read, and put together with memlab's processes and /proc.
#include <random>

#include "tests/catch.hpp"
#include "tests/unit/live/live_samples.hpp"

namespace memlab::tools {
namespace {

TEST_CASE("NVML's listing: GPUs, processes, what the driver does not tell", "[live]") {
    const GpuListing listing = parse_gpu_listing(
        "driver 580.65.06\n"
        "gpu 0 3 1000 600 400 GPU-aa 00000000:03:00.0 NVIDIA H200\n"
        "process 0 12 500 compute\nprocess 0 12 510 graphics\nprocess 0 13 - compute\n"
        "gpu 1 4 1000 0 1000 GPU-bb - \nno_processes 1 compute 3\nprocess 7 1 1 compute\n"
        "something new\nend\n");
    CHECK(listing.driver == "580.65.06");
    CHECK(listing.problem.empty());
    REQUIRE(listing.gpus.size() == 2);
    const Gpu& gpu = listing.gpus[0];
    CHECK(gpu.minor == 3);
    CHECK(gpu.uuid == "GPU-aa");
    CHECK(gpu.pci == "00000000:03:00.0");
    CHECK(gpu.name == "NVIDIA H200");
    REQUIRE(gpu.processes.size() == 2);
    CHECK(gpu.processes[0].bytes == 510);  // in both lists, once
    CHECK(gpu.processes[0].compute);
    CHECK(gpu.processes[0].graphics);
    CHECK_FALSE(gpu.processes[1].bytes);
    CHECK(gpu.processes_known);
    CHECK(listing.gpus[1].pci.empty());
    CHECK_FALSE(listing.gpus[1].processes_known);
    CHECK(parse_gpu_listing("no_nvml it is not there\nend\n").problem == "it is not there");
}

TEST_CASE("a listing that is damaged anywhere is read as far as it goes", "[live]") {
    const std::string whole =
        "driver 580\ngpu 0 0 1000 600 400 GPU-aa pci NVIDIA\nprocess 0 12 500 compute\n"
        "process 0 13 - graphics\nno_processes 0 compute 3\nend\n";
    std::mt19937 random(7);
    for (int round = 0; round < 20'000; ++round) {
        std::string text = whole.substr(0, random() % (whole.size() + 1));
        for (std::size_t i = random() % 4; i > 0 && !text.empty(); --i) {
            text[random() % text.size()] = static_cast<char>(random());
        }
        const GpuListing listing = parse_gpu_listing(text);
        CHECK(listing.gpus.size() <= 3);
        Observed observed;
        observed.gpus = listing;
        CHECK(join(observed).gpus.size() == listing.gpus.size());
    }
}

TEST_CASE("a sample has every process once, with each GPU", "[live]") {
    const MachineSample sample = join(small_machine());
    REQUIRE(sample.gpus.size() == 2);
    REQUIRE(sample.processes.size() == 3);
    const ProcessSample* const training = sample.find(4711);
    REQUIRE(training != nullptr);
    CHECK(training->memlab);
    CHECK(training->known_bytes() == 20 * gib);
    CHECK(training->allocated() == 12 * gib);
    CHECK(training->reserved() == 19 * gib);
    CHECK(training->cached() == 7 * gib);
    CHECK_FALSE(training->tensors());
    CHECK(sample.gpus[0].unaccounted == 2 * gib);
    CHECK(sample.gpus[1].unaccounted == gib);
    CHECK(sample.find(1) == nullptr);
}

TEST_CASE("without NVML the GPUs are those of memlab's processes", "[live]") {
    Observed observed;
    observed.gpus.problem = "it is not there";
    observed.statuses = {status_of(4711, 0, gib, 2 * gib), status_of(4712, 0, gib, gib),
                         status_of(4713, 1, gib, gib)};
    const MachineSample sample = join(observed);
    REQUIRE(sample.gpus.size() == 2);
    CHECK_FALSE(sample.gpus[0].by_nvml);
    CHECK_FALSE(sample.gpus[0].unaccounted);
    CHECK(sample.processes.size() == 3);
    CHECK(sample.find(4711)->known_bytes() == 2 * gib);
}

TEST_CASE("a process that keeps the GPU open and that NVML does not list is found", "[live]") {
    Observed observed = small_machine();
    observed.facts[4720] = facts_of(4720, "python3 train.py", 1);
    observed.own_child = 4721;
    observed.open = {{4711, {0}, true},      // listed
                     {4720, {0}, true},      // a child that was left
                     {4721, {0}, true},      // asks NVML for us
                     {900, {0, 1}, false}};  // nvidia-persistenced
    const MachineSample sample = join(observed);
    CHECK(sample.processes.size() == 4);
    const ProcessSample* const left = sample.find(4720);
    REQUIRE(left != nullptr);
    REQUIRE(left->uses.size() == 1);
    CHECK(left->uses[0].open_only);
    CHECK(left->uses[0].gpu == 0);
    CHECK(sample.find(4721) == nullptr);
    CHECK(sample.find(900) == nullptr);
}

TEST_CASE("process ids of another namespace are not taken for those here", "[live]") {
    Observed observed = small_machine();
    observed.pids_of_the_host = false;
    const MachineSample sample = join(observed);
    CHECK(sample.find(4711)->facts.visible);        // it answers: it is here
    CHECK_FALSE(sample.find(4712)->facts.visible);  // the same number, but no GPU is open in it
}

}  // namespace
}  // namespace memlab::tools
