// Allocations by size and lifetime: every allocation of a recording is in one bucket, or said to be
// in none.
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "model/report_builder.hpp"
#include "report/histogram/histogram.hpp"
#include "report/histogram/render.hpp"
#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"

namespace model = memlab::model;
namespace report = memlab::report;
using namespace memlab::test;
using memlab::trace::Aggregator;
using report::AllocationCounts;
using report::CountAndBytes;
using report::DeviceHistograms;
using report::Histogram;
using report::Histograms;

namespace {

constexpr std::uint64_t greatest = std::numeric_limits<std::uint64_t>::max();

/// One GPU; times and addresses are given.
class OneGpu {
  public:
    OneGpu() {
        records_.emplace_back(ProcessInfo{.pid = 42, .executable = "/opt/app"});
        records_.emplace_back(StringDef{1, "cuMemAlloc_v2"});
        records_.emplace_back(DeviceInfo{0, "GPU", "GPU-0", 1 << 30, 13000});
        records_.emplace_back(ContextInfo{1, 0, true});
        records_.emplace_back(ModuleDef{1, "/opt/app", "", 0, 0x1000, 0x2000});
        records_.emplace_back(StackDef{1, false, {{1, 0x10}}});
    }

    void alloc(std::uint64_t time, std::uint64_t address, std::uint64_t requested,
               std::uint64_t size) {
        Event event = base(EventType::alloc, time, address);
        event.requested = requested;
        event.size = size;
        event.api = 1;
        event.stack = 1;
        records_.emplace_back(event);
    }
    void free(std::uint64_t time, std::uint64_t address) {
        records_.emplace_back(base(EventType::free_requested, time, address));
    }
    void lose_context(std::uint64_t time) { records_.emplace_back(ContextLost{time, 1}); }

    const Records& records() const { return records_; }

  private:
    static Event base(EventType type, std::uint64_t time, std::uint64_t address) {
        Event event;
        event.type = type;
        event.context = 1;
        event.thread = 7;
        event.time_ns = time;
        event.address = address;
        return event;
    }

    Records records_;
};

struct Counted {
    explicit Counted(const Records& records) {
        Aggregator figures;
        feed(records, *counts.follow("log", figures));
        made = report::make_report(figures, model::Moment::end);
    }

    Histograms of_all() { return of(std::vector<bool>(made.report->sites.size(), true)); }
    Histograms of(const std::vector<bool>& taken) {
        return report::histograms(*made.report, "log", counts, taken, std::nullopt);
    }

    AllocationCounts counts;
    report::ReadResult made;
};

CountAndBytes whole(const Histogram& histogram, const CountAndBytes& rest) {
    CountAndBytes sum = histogram.sum();
    sum.add(rest);
    return sum;
}

}  // namespace

TEST_CASE("a bucket has the values from one power of two below the next") {
    Histogram histogram;
    for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2},
                                      std::uint64_t{3}, std::uint64_t{4}, greatest}) {
        histogram.add(value, {1, 10});
    }
    const auto& buckets = histogram.buckets();
    REQUIRE(buckets.size() == 5);
    CHECK((buckets[0].from() == 0 && buckets[0].below() == 1));
    CHECK((buckets[1].from() == 1 && buckets[1].below() == 2));
    CHECK((buckets[2].from() == 2 && buckets[2].below() == 4));
    CHECK(buckets[2].sum == CountAndBytes{2, 20});
    CHECK((buckets[3].from() == 4 && buckets[3].below() == 8));
    CHECK((buckets[4].from() == std::uint64_t{1} << 63 && !buckets[4].below()));
    histogram.add(2, {greatest, greatest});  // sums saturate
    CHECK(histogram.sum() == CountAndBytes{greatest, greatest});
}

TEST_CASE("sizes are what the program asked for, lifetimes end with its frees") {
    OneGpu recording;
    recording.alloc(1000, 0x10000, 700, 1024);
    recording.alloc(1100, 0x20000, 1024, 1024);
    recording.alloc(1200, 0x30000, 1025, 2048);
    recording.free(1228, 0x10000);
    recording.free(1400, 0x20000);
    Counted counted(recording.records());
    REQUIRE(counted.made.report);
    const DeviceHistograms found = counted.of_all().devices.at(0);
    CHECK(found.all == CountAndBytes{3, 4096});
    REQUIRE(found.sizes.buckets().size() == 2);
    CHECK(found.sizes.buckets()[0] == Histogram::Bucket{10, {1, 1024}});
    CHECK(found.sizes.buckets()[1] == Histogram::Bucket{11, {2, 3072}});
    CHECK(found.held == CountAndBytes{1, 2048});
    CHECK(found.end_unknown == CountAndBytes{});
    REQUIRE(found.lifetimes.buckets().size() == 2);
    CHECK(found.lifetimes.buckets()[0] == Histogram::Bucket{8, {1, 1024}});
    CHECK(found.lifetimes.buckets()[1] == Histogram::Bucket{9, {1, 1024}});
}

TEST_CASE("a context that ends frees, memory that is reused has an end that was not seen") {
    OneGpu recording;
    recording.alloc(1000, 0x10000, 512, 512);
    recording.alloc(2000, 0x10000, 4096, 4096);  // the first was freed unseen
    recording.alloc(2000, 0x20000, 4096, 4096);
    recording.lose_context(2500);
    Counted counted(recording.records());
    REQUIRE(counted.made.report);
    const DeviceHistograms found = counted.of_all().devices.at(0);
    CHECK(found.end_unknown == CountAndBytes{1, 512});
    CHECK(found.held == CountAndBytes{});
    REQUIRE(found.lifetimes.buckets().size() == 1);
    CHECK(found.lifetimes.buckets()[0] == Histogram::Bucket{9, {2, 8192}});
}

TEST_CASE("a filter takes sites") {
    OneGpu recording;
    recording.alloc(1000, 0x10000, 512, 512);
    Counted counted(recording.records());
    REQUIRE(counted.made.report);
    const Histograms none = counted.of(std::vector<bool>(counted.made.report->sites.size()));
    REQUIRE(none.devices.size() == 1);
    CHECK(none.devices[0].all == CountAndBytes{});
    report::HistogramTextOptions options;
    options.style.ascii = true;
    options.filter = "kind=vmm";
    CHECK(report::render_histograms_text(none, options) ==
          "GPU 0: GPU  0 allocations, 0 B, only kind=vmm\n  no call site matches\n");
}

TEST_CASE("where the log has a gap, what is not known is said") {
    OneGpu all;
    OneGpu shown;
    for (std::uint64_t i = 1; i <= 10; ++i) {
        all.alloc(1000 * i, 0x10000 * i, 512, 512);
    }
    all.free(20'000, 0x10000);
    shown.alloc(1000, 0x10000, 512, 512);
    Aggregator until_gap_end;
    feed(all.records(), until_gap_end);

    AllocationCounts counts;
    Aggregator figures;
    const auto sink = counts.follow("log", figures);
    feed(shown.records(), *sink);
    until_gap_end.checkpoint(*sink);
    OneGpu after;
    after.free(30'000, 0x20000);
    feed(after.records().back(), *sink);
    const auto made = report::make_report(figures, model::Moment::end);
    REQUIRE(made.report);
    const Histograms found = report::histograms(
        *made.report, "log", counts, std::vector<bool>(made.report->sites.size(), true), 0);
    REQUIRE(found.devices.size() == 1);
    CHECK(found.gap_end_ns == 20'000);
    const DeviceHistograms& device = found.devices[0];
    CHECK(device.all == CountAndBytes{10, 5120});
    CHECK(device.sizes.sum() == CountAndBytes{1, 512});
    CHECK(device.size_unknown == CountAndBytes{9, 4608});
    CHECK(device.lifetimes.sum() == CountAndBytes{1, 512});
    CHECK(device.lifetimes.buckets().at(0).from() == 16'384);  // made at 2000
    CHECK(device.held == CountAndBytes{8, 4096});
    CHECK(device.end_unknown == CountAndBytes{1, 512});
    const std::string text = report::render_histograms_text(found, {});
    CHECK(text.find("[not in the log]") != std::string::npos);
    CHECK(text.find("[end not seen]") != std::string::npos);
    CHECK(text.find("MEMLAB_LOG_LIMIT") != std::string::npos);
}

TEST_CASE("random recordings: every allocation is in one row of each table") {
    std::size_t reports = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        for (const bool wild : {false, true}) {
            Counted counted(wild ? WildRecords::make(seed, 2000, true)
                                 : PlausibleRecords::make(seed, 2000, true));
            if (!counted.made.report) {
                continue;
            }
            const Histograms found = counted.of_all();
            for (const DeviceHistograms& device : found.devices) {
                CHECK(whole(device.sizes, device.size_unknown) == device.all);
                CountAndBytes rest = device.held;
                rest.add(device.end_unknown);
                CHECK(whole(device.lifetimes, rest) == device.all);
                // Records without a gap leave no size unknown.
                CHECK((wild || device.size_unknown == CountAndBytes{}));
                ++reports;
            }
            CHECK_FALSE(report::render_histograms_text(found, {}).empty());
            CHECK(nlohmann::json::parse(report::render_histograms_json("f", found, {}))["devices"]
                      .size() == found.devices.size());
        }
    }
    CHECK(reports > 20);
}
