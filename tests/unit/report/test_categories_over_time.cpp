// What memory is for, over time: the sums of the obvious way, at any time, of any recording.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "report/timeline/timeline.hpp"
#include "tests/unit/report/recorded.hpp"
#include "trace/aggregate/aggregator.hpp"

using namespace memlab::test;
using namespace memlab::model;
using namespace memlab::report;
using memlab::trace::Aggregator;
using memlab::trace::counts_as_device_memory;

namespace {

/// What PyTorch's frames of Python say, and one that says nothing.
const std::array<PythonFrame, 5> python_frames = {
    {{"Linear.__init__", "/venv/torch/nn/linear.py", 1, 1},
     {"Module._call_impl", "/venv/torch/nn/modules/module.py", 1, 1},
     {"Adam._init_group", "/venv/torch/optim/adam.py", 1, 1},
     {"reduce", "/venv/torch/distributed/reduce.py", 1, 1},
     {"main", "train.py", 1, 1}}};

struct Moment {
    std::uint64_t time_ns = 0;
    CategoryBytes bytes{};
};

class OfPyTorch : public Recorded {
  public:
    explicit OfPyTorch(Records records) : Recorded(std::move(records)) {
        // As if PyTorch had allocated it all, each site for something else.
        report.modules.push_back({});
        report.modules.back().path = "/venv/torch/lib/libtorch_cuda.so";
        report.python_frames.assign(1, {});
        report.stacks.clear();
        report.frames.clear();
        for (std::size_t i = 0; i < python_frames.size(); ++i) {
            report.python_frames.push_back(python_frames[i]);
            report.frames.emplace_back().python = i + 1;
            report.stacks.emplace_back().frames = {i};
        }
        for (std::size_t i = 0; i < report.sites.size(); ++i) {
            report.sites[i].stack = i % python_frames.size();
        }
    }

    /// By device: its categories after each record.
    std::map<std::uint64_t, std::vector<Moment>> history(Resolver& resolver) const {
        std::map<std::uint64_t, std::vector<Moment>> history;
        replay([&](const Aggregator& state) {
            for (const Device& device : report.devices) {
                Moment moment{state.duration_ns(), {}};
                for (std::size_t i = 0; i < state.sites().size(); ++i) {
                    const memlab::trace::Site& site = state.sites()[i];
                    if (site.device == device.index && counts_as_device_memory(site.kind)) {
                        moment.bytes.at(static_cast<std::size_t>(
                            categorize(report.sites.at(i), resolver))) += site.live_bytes;
                    }
                }
                history[device.index].push_back(moment);
            }
        });
        return history;
    }
};

/// The row as it must be: of the values before it and all within it.
CategoryRow row_from(const std::vector<Moment>& history, std::uint64_t begin_ns,
                     std::uint64_t end_ns) {
    CategoryRow row{begin_ns, begin_ns, {}, {}};
    for (const Moment& moment : history) {
        if (moment.time_ns < begin_ns) {
            row.bytes = row.last = moment.bytes;
        } else if (moment.time_ns < end_ns) {
            row.last = moment.bytes;
            if (sum(moment.bytes) > sum(row.bytes)) {
                row.bytes = moment.bytes;
                row.at_ns = moment.time_ns;
            }
        }
    }
    return row;
}

void check(const OfPyTorch& recorded, std::uint64_t from_ns, std::uint64_t to_ns) {
    Resolver resolver(recorded.report, nullptr);
    const auto history = recorded.history(resolver);
    TimelineView view =
        read_timeline(recorded.report, recorded.log(), from_ns, to_ns, std::nullopt);
    add_categories(view, recorded.report, recorded.log(), resolver);
    for (const DeviceTimeline& device : view.devices) {
        CAPTURE(device.device->index);
        REQUIRE(device.categories.has_value());
        const CategoryTimeline& timeline = *device.categories;
        const std::vector<Moment>& moments = history.at(device.device->index);
        REQUIRE(timeline.rows.size() <= 1024);
        REQUIRE(timeline.rows.front().begin_ns == from_ns);
        for (std::size_t i = 0; i < timeline.rows.size(); ++i) {
            const CategoryRow& row = timeline.rows[i];
            const std::uint64_t end = std::min(row.begin_ns + timeline.bucket_ns, to_ns + 1);
            const CategoryRow expected = row_from(moments, row.begin_ns, end);
            REQUIRE(row.bytes == expected.bytes);
            REQUIRE(row.at_ns == expected.at_ns);
            REQUIRE(row.last == expected.last);
            // Without a row nothing changes.
            const bool is_last = i + 1 == timeline.rows.size();
            const std::uint64_t next = is_last ? to_ns + 1 : timeline.rows[i + 1].begin_ns;
            REQUIRE(row.last == row_from(moments, next, next).last);
        }
        // The curve that read_timeline() has of the same stretch.
        const auto& allocated =
            device.curves.at(static_cast<std::size_t>(memlab::model::Curve::allocated));
        REQUIRE(allocated.has_value());
        CHECK(sum(timeline.at_highest) == allocated->highest);
        std::uint64_t first = 0;
        std::uint64_t last = 0;
        for (const CategoryTimeline::Figures& figures : timeline.figures) {
            first += figures.at_begin;
            last += figures.at_end;
        }
        CHECK(first == allocated->at_begin);
        CHECK(last == allocated->at_end);
        if (sum(timeline.at_highest) > sum(timeline.rows.front().bytes)) {
            CHECK(timeline.highest_ns == allocated->highest_ns);
        }
    }
}

}  // namespace

TEST_CASE("the categories of any recording add up to its allocated curve at any time") {
    std::array<bool, category_count> seen{};
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        CAPTURE(seed);
        const OfPyTorch recorded(PlausibleRecords::make(seed, 600));
        const std::uint64_t end = recorded.report.process.duration_ns;
        check(recorded, 0, end);
        check(recorded, end / 3, end / 2);
        Resolver resolver(recorded.report, nullptr);
        for (const memlab::model::Site& site : recorded.report.sites) {
            seen.at(static_cast<std::size_t>(categorize(site, resolver))) = true;
        }
    }
    CHECK(std::count(seen.begin(), seen.end(), true) == 5);
}

TEST_CASE("a device that is not PyTorch's has no categories") {
    OfPyTorch recorded(PlausibleRecords::make(1, 300));
    recorded.report.modules.clear();
    Resolver resolver(recorded.report, nullptr);
    TimelineView view = read_timeline(recorded.report, recorded.log(), 0, 1000, std::nullopt);
    add_categories(view, recorded.report, recorded.log(), resolver);
    REQUIRE_FALSE(view.devices.empty());
    for (const DeviceTimeline& device : view.devices) {
        CHECK_FALSE(device.categories.has_value());
    }
}
