// Bounds of the combined peak, compared with step functions whose exact peak is known.
#include "report/runs/combined_usage.hpp"

#include <algorithm>
#include <random>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/runs/synthetic_member.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

constexpr auto allocated = static_cast<std::size_t>(Curve::allocated);

/// A value for each nanosecond of a process's life.
using Story = std::vector<std::uint64_t>;

/// The values as a timeline with buckets of that width. As the recorder writes it: a bucket without
/// changes has no row, and a row's minimum and maximum include the value on entry.
RunMember tell(const Story& story, std::uint64_t start, std::uint64_t bucket, const char* uuid) {
    RunMember member = synthetic_member(100 + start, 1, start);
    member.report.process.duration_ns = story.size();
    const std::uint64_t peak = *std::max_element(story.begin(), story.end());
    Device& device = give_device(member, uuid, peak, peak);
    device.timeline.bucket_ns = bucket;
    std::uint64_t before = 0;
    for (std::size_t begin = 0; begin < story.size(); begin += bucket) {
        TimelineRow::Values values{before, before, before};
        bool changed = false;
        for (std::size_t t = begin; t < std::min<std::size_t>(begin + bucket, story.size()); ++t) {
            changed |= story[t] != values.last;
            values.min = std::min(values.min, story[t]);
            values.max = std::max(values.max, story[t]);
            values.last = story[t];
        }
        if (changed) {
            TimelineRow row;
            row.begin_ns = begin;
            row.curves.fill(values);
            device.timeline.rows.push_back(row);
        }
        before = values.last;
    }
    return member;
}

std::uint64_t true_peak(const std::vector<Story>& stories,
                        const std::vector<std::uint64_t>& starts) {
    std::uint64_t most = 0;
    for (std::uint64_t t = 0; t < 4000; ++t) {
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < stories.size(); ++i) {
            sum +=
                t >= starts[i] && t - starts[i] < stories[i].size() ? stories[i][t - starts[i]] : 0;
        }
        most = std::max(most, sum);
    }
    return most;
}

}  // namespace

TEST_CASE("processes after one another never hold their memory together") {
    RunCollection run;
    run.members.push_back(tell(Story(100, 50), 1000, 1, "GPU-a"));
    run.members.push_back(tell(Story(100, 70), 1100, 1, "GPU-a"));
    const auto gpus = combined_gpu_usage(run);
    REQUIRE(gpus.size() == 1);
    CHECK(gpus[0].allocated.sum == 120);
    CHECK(gpus[0].allocated.at_most == 70);
    CHECK(gpus[0].allocated.at_least == 70);
    CHECK(gpus[0].allocated.at_wall_ns == 1100);
    CHECK(gpus[0].members == std::vector<std::size_t>{0, 1});
}

TEST_CASE("one that still runs holds on") {
    RunCollection run;
    run.members.push_back(tell(Story(100, 50), 1000, 1, "GPU-a"));
    run.members.push_back(tell(Story(100, 70), 1500, 1, "GPU-a"));
    CHECK(combined_gpu_usage(run)[0].allocated.at_most == 70);
    run.members[0].running = true;
    CHECK(combined_gpu_usage(run)[0].allocated.at_most == 120);
    CHECK(combined_gpu_usage(run)[0].allocated.at_least == 120);
}

TEST_CASE("a peak in a wide bucket is not claimed to have met the others' peak") {
    // Both have a spike somewhere in their bucket; the spikes may or may not coincide.
    Story story(100, 10);
    story[5] = 100;
    RunCollection run;
    run.members.push_back(tell(story, 1000, 100, "GPU-a"));
    run.members.push_back(tell(story, 1050, 100, "GPU-a"));
    const CombinedPeak peak = combined_gpu_usage(run)[0].allocated;
    CHECK(peak.at_most == 200);
    CHECK(peak.at_least == 100);  // the other may have held nothing at that moment
    CHECK(true_peak({story, story}, {1000, 1050}) == 110);
}

TEST_CASE("GPUs are told apart by UUID, and without one by host and index") {
    RunCollection run;
    run.members.push_back(tell(Story(10, 1), 0, 1, "GPU-a"));
    run.members.push_back(tell(Story(10, 2), 0, 1, "GPU-b"));
    run.members.push_back(tell(Story(10, 3), 0, 1, "GPU-a"));
    run.members.push_back(tell(Story(10, 4), 0, 1, ""));
    run.members.push_back(tell(Story(10, 5), 0, 1, ""));
    run.members[2].report.process.host = "a-container";
    run.members[4].report.process.host = "node2";
    const auto gpus = combined_gpu_usage(run);
    REQUIRE(gpus.size() == 4);
    CHECK(gpus[0].allocated.at_most == 4);
    CHECK(gpus[0].hosts == std::vector<std::string>{"node1", "a-container"});
    CHECK(gpus[1].allocated.at_most == 2);
    CHECK(gpus[2].allocated.at_most == 4);
    CHECK(gpus[3].allocated.at_most == 5);
}

TEST_CASE("the true peak lies between the bounds, and fine buckets give it exactly") {
    std::mt19937_64 random(7);
    const auto below = [&](std::uint64_t n) { return random() % n; };
    std::size_t exact = 0;
    for (int round = 0; round < 400; ++round) {
        RunCollection fine;
        RunCollection coarse;
        std::vector<Story> stories;
        std::vector<std::uint64_t> starts;
        for (std::size_t i = 0, n = 1 + below(5); i < n; ++i) {
            Story story(1 + below(800));
            std::uint64_t value = 1 + below(100);
            for (std::uint64_t& at : story) {
                value = below(20) == 0 ? below(1000) : value;
                at = value;
            }
            starts.push_back(below(1000));
            fine.members.push_back(tell(story, starts.back(), 1, "GPU-a"));
            coarse.members.push_back(tell(story, starts.back(), 1 + below(300), "GPU-a"));
            stories.push_back(std::move(story));
        }
        const std::uint64_t truth = true_peak(stories, starts);
        const CombinedPeak from_fine = combined_gpu_usage(fine)[0].allocated;
        const CombinedPeak from_coarse = combined_gpu_usage(coarse)[0].allocated;
        // A bucket includes the value on entry, however narrow it is: the bound may be too high.
        CHECK(from_fine.at_least <= truth);
        CHECK(from_fine.at_most >= truth);
        CHECK(from_coarse.at_least <= truth);
        CHECK(from_coarse.at_most >= truth);
        CHECK(from_coarse.at_most <= from_coarse.sum);
        exact += from_coarse.at_least == from_coarse.at_most ? 1 : 0;
    }
    CHECK(exact > 20);   // single processes at least
    CHECK(exact < 390);  // otherwise the bounds would always be equal
}

TEST_CASE("figures that do not add up make no endless sums") {
    RunCollection run;
    for (std::uint64_t i = 0; i < 3; ++i) {
        RunMember member = tell(Story(10, 1), ~std::uint64_t{0} - 5, 1, "GPU-a");
        member.report.devices[0].curves[allocated]->peak_bytes = ~std::uint64_t{0};
        member.report.devices[0].timeline.bucket_ns = ~std::uint64_t{0};
        run.members.push_back(std::move(member));
    }
    const CombinedPeak peak = combined_gpu_usage(run)[0].allocated;
    CHECK(peak.sum == ~std::uint64_t{0});
    CHECK(peak.at_most >= peak.at_least);
}
