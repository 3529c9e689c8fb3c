// Snapshots of the pool's layout, from recordings with known blocks.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "report/pool_view/layout.hpp"
#include "report/pool_view/render.hpp"
#include "report/reading/read_ahead.hpp"
#include "report/reading/reader.hpp"
#include "tests/catch.hpp"
#include "tests/unit/report/pool_recording.hpp"
#include "tests/unit/trace/recording.hpp"
#include "tests/unit/trace/temporary_folder.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/log_writer.hpp"

using namespace memlab::test;
using namespace memlab::model;
using namespace memlab::report;
using memlab::trace::LogWriter;

namespace {

constexpr std::uint64_t mib = PoolRecording::mib;
constexpr std::uint64_t base = PoolRecording::base;

class Pool : public PoolRecording {
  public:
    /// Reads the report and takes the snapshots.
    void look(std::vector<PoolSnapshot>& moments) {
        const Device& device = read().devices.at(0);
        PoolCollector collected(2);
        moments = snapshot_pools({&device}, log(), collected).devices.front().moments;
    }
};

/// "[0+20: 0+4 8+2p] [40+2:]", in MiB from the base.
std::string text_of(const PoolSnapshot& moment) {
    std::string text;
    for (const SegmentLayout& segment : moment.segments) {
        text += (text.empty() ? "[" : " [") + std::to_string((segment.address - base) / mib) + "+" +
                std::to_string(segment.size / mib) + ":";
        for (const BlockLayout& block : segment.blocks) {
            text += " " + std::to_string((block.address - base) / mib) + "+" +
                    std::to_string(block.size / mib) + (block.pending ? "p" : "");
        }
        text += "]";
    }
    return text;
}

/// The segments right after the allocation that first takes a device to its peak, which is known.
class PeakTaker final : public memlab::trace::GenericSink<PeakTaker> {
  public:
    explicit PeakTaker(const Device& device)
        : device_(static_cast<std::uint32_t>(device.index)),
          peak_(device.curve(memlab::model::Curve::allocated).peak_bytes) {}

    template <typename Record>
    void take(const Record& record) {
        figures_.on(record);
    }
    void take(const memlab::trace::Event& event) {
        figures_.on(event);
        using memlab::trace::CurveName;
        if (!taken && event.type == EventType::alloc && event.device == device_ &&
            figures_.devices()[device_]->curve(CurveName::allocated).current == peak_) {
            taken = snapshot_segments(figures_, device_);
        }
    }

    std::optional<std::vector<SegmentLayout>> taken;

  private:
    const std::uint32_t device_;
    const std::uint64_t peak_;
    memlab::trace::Aggregator figures_;
};

}  // namespace

TEST_CASE("blocks have the names that the program gives them, until they are freed") {
    std::vector<PoolSnapshot> moments;
    Pool pool;
    pool.segment(EventType::segment_alloc, 0, 20)
        .alloc(0, 4, 1)
        .alloc(4, 4, 1)
        .alloc(8, 2, 2)
        .label(0, 4)
        .label(4)
        .oom(1 << 30)
        .give_back(4, 4)
        .alloc(4, 4, 2);
    pool.look(moments);
    const auto labels = [](const PoolSnapshot& moment) {
        std::vector<std::string> found;
        for (const BlockLayout& block : moment.segments.at(0).blocks) {
            found.push_back(block.label);
        }
        return found;
    };
    REQUIRE(moments.size() == 3);
    CHECK(moments[1].what == PoolSnapshot::What::oom);
    CHECK(labels(moments[1]) == std::vector<std::string>{"step", "step", ""});
    CHECK(labels(moments[2]) == std::vector<std::string>{"step", "", ""});
    Resolver resolver(pool.report, nullptr);
    const PoolSnapshots pools{{{&pool.report.devices[0], moments}}, ""};
    const std::string text = render_pools(pools, resolver, {});
    CHECK(text.find("keep\n") != std::string::npos);
    CHECK(text.find("\"step\"\n") != std::string::npos);
    const std::string json = pools_json(pools, resolver);
    CHECK(json.find(R"("label": "step")") != std::string::npos);
    CHECK(json.find(R"("label": null)") != std::string::npos);
    CHECK(text.find("\"step\" work\n") != std::string::npos);
    CHECK(json.find(R"("label_detail": "work")") != std::string::npos);
}

TEST_CASE("the pool at its peak, at failures and at the end") {
    Pool pool;
    pool.segment(EventType::segment_alloc, 0, 20)
        .alloc(0, 4, 1)
        .alloc(4, 8, 2)  // the peak, reached again below
        .give_back(4, 8, false)
        .oom(100 * mib)
        .segment(EventType::segment_alloc, 40, 10)
        .alloc(40, 8, 2)
        .give_back(40, 8);
    std::vector<PoolSnapshot> moments;
    pool.look(moments);
    REQUIRE(moments.size() == 3);
    CHECK(moments[0].what == PoolSnapshot::What::peak);
    CHECK(text_of(moments[0]) == "[0+20: 0+4 4+8]");
    CHECK(moments[1].what == PoolSnapshot::What::oom);
    CHECK(moments[1].requested == 100 * mib);
    CHECK(text_of(moments[1]) == "[0+20: 0+4 4+8p]");
    CHECK(moments[1].pending_bytes() == 8 * mib);
    CHECK(moments[1].largest_free() == 8 * mib);
    CHECK(text_of(moments[2]) == "[0+20: 0+4 4+8p] [40+10:]");
    CHECK(moments[2].reserved_bytes() == 30 * mib);
    CHECK(moments[2].active_bytes() == 12 * mib);
    CHECK(moments[2].largest_free() == 10 * mib);
}

TEST_CASE("ranges that grow and shrink in place") {
    Pool pool;
    pool.segment(EventType::segment_map, 0, 4)
        .segment(EventType::segment_map, 8, 4)
        .segment(EventType::segment_map, 4, 4)      // joins both
        .segment(EventType::segment_map, 12, 2, 2)  // of another context
        .alloc(0, 1, 1)
        .segment(EventType::segment_unmap, 4, 4);
    std::vector<PoolSnapshot> moments;
    pool.look(moments);
    CHECK(text_of(moments.front()) == "[0+12: 0+1] [12+2:]");
    CHECK(text_of(moments.back()) == "[0+4: 0+1] [8+4:] [12+2:]");
}

TEST_CASE("a context that is lost takes its segments along") {
    Pool pool;
    pool.segment(EventType::segment_alloc, 0, 4)
        .segment(EventType::segment_alloc, 8, 4, 2)
        .alloc(0, 1, 1)
        .lose(1);
    std::vector<PoolSnapshot> moments;
    pool.look(moments);
    CHECK(text_of(moments.back()) == "[8+4:]");
}

TEST_CASE("random recordings: what is laid out holds together and is the aggregator's sum") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const TemporaryFolder folder;
        const std::string path = folder / "log.memlog";
        auto created = LogWriter::create(path, 0);
        REQUIRE(created.writer);
        feed(PlausibleRecords::make(seed, 3000), *created.writer);
        created.writer->close();
        PoolCollector collected(3);
        const ReadResult read = read_report(path, collected.sink_factory());
        REQUIRE(read.report);
        std::vector<const Device*> devices;
        for (const Device& device : read.report->devices) {
            devices.push_back(&device);
        }
        for (const DevicePool& pool : snapshot_pools(devices, path, collected).devices) {
            const Device& device = *pool.device;
            PeakTaker at_peak(device);
            read_log_ahead(path, at_peak);
            const auto peak = std::find_if(
                pool.moments.begin(), pool.moments.end(),
                [](const auto& moment) { return moment.what == PoolSnapshot::What::peak; });
            REQUIRE((peak != pool.moments.end()) == at_peak.taken.has_value());
            if (at_peak.taken) {
                CHECK(peak->segments == *at_peak.taken);
            }
            for (const PoolSnapshot& moment : pool.moments) {
                std::uint64_t end = 0;
                for (const SegmentLayout& segment : moment.segments) {
                    CHECK(segment.address >= end);
                    end = segment.address;
                    for (const BlockLayout& block : segment.blocks) {
                        CHECK(block.address >= end);
                        end = block.address + block.size;
                    }
                    CHECK(end <= segment.address + segment.size);
                    end = segment.address + segment.size;
                }
                if (moment.what == PoolSnapshot::What::end) {
                    CHECK(moment.reserved_bytes() ==
                          device.memory_stats.at("reserved_bytes.all.current"));
                }
            }
        }
    }
}

TEST_CASE("the picture, and who keeps the segments") {
    Pool pool;
    pool.segment(EventType::segment_alloc, 0, 20)
        .segment(EventType::segment_alloc, 40, 20)
        .segment(EventType::segment_alloc, 80, 10)
        .alloc(0, 1, 1)
        .alloc(10, 5, 2)
        .alloc(59, 1, 1)
        .give_back(10, 5, false);
    std::vector<PoolSnapshot> moments;
    pool.look(moments);
    Resolver resolver(pool.report, nullptr);
    PoolViewOptions options;
    options.style.ascii = true;
    const std::string text =
        render_pools({{{&pool.report.devices[0], {moments.back()}}}, ""}, resolver, options);
    CHECK(text.substr(0, text.find("\nStatistics")) == R"(GPU 0: GPU  memlab's pool

At the end  8 ns
  50.00 MiB reserved in 3 segments, 7.00 MiB of it active (5.00 MiB freed, but
  maybe still in use by the GPU); 43.00 MiB free, the largest block 19.00 MiB. 1
  segment (10.00 MiB) is empty: memlab_empty_cache() would give that back.

         size        free  blocks  # active, o freed and pending, . free
    20.00 MiB   19.00 MiB       1  ........................................###
    20.00 MiB   14.00 MiB       2  ###..................oooooooooooo..........
    10.00 MiB   10.00 MiB       0  [1 empty segment]

  What keeps partly free segments from being given back:
   free alone      shared  blocks       bytes  where
    19.00 MiB   14.00 MiB       2    2.00 MiB  /opt/app/model.py:5  keep
          0 B   14.00 MiB       1    5.00 MiB  /opt/app/model.py:15  work
  free alone: in segments with blocks of this place only; shared: in segments
  with blocks of other places, too.
)");
    CHECK(text.find("num_device_alloc") != std::string::npos);
    CHECK(text.find("small_pool") == std::string::npos);
    options.all_figures = true;
    CHECK(
        render_pools({{{&pool.report.devices[0], {}}}, ""}, resolver, options).find("small_pool") !=
        std::string::npos);
    const auto json =
        nlohmann::json::parse(pools_json({{{&pool.report.devices[0], moments}}, ""}, resolver));
    CHECK(!json.contains("stretch"));
    CHECK(json["devices"][0]["moments"].size() == 2);
    CHECK(json["devices"][0]["moments"][1]["segments"][0]["blocks"][1]["pending"] == true);
}

TEST_CASE("a segment ends with the address space, whatever its size") {
    Pool pool;
    // The sum of all is below 64 bits.
    pool.segment(EventType::segment_alloc, 0, (std::uint64_t{1} << 44) - 1000).alloc(10, 4, 1);
    std::vector<PoolSnapshot> moments;
    pool.look(moments);
    REQUIRE(moments.back().segments.size() == 1);
    CHECK(moments.back().reserved_bytes() == ~base);
    CHECK(moments.back().active_bytes() == 4 * mib);
    CHECK(moments.back().largest_free() == ~base - 14 * mib);
    pool.segment(EventType::segment_alloc, 10,
                 10);  // overlaps: the old one must have been released
    pool.look(moments);
    CHECK(text_of(moments.back()) == "[10+10:]");
}
