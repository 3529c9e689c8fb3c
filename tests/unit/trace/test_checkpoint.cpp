// A checkpoint of the aggregator: an aggregator that gets it continues as the one that made it.
#include <filesystem>
#include <string>

#include "model/json_writer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/aggregate/state.hpp"
#include "trace/reading/log_reader.hpp"

using namespace memlab::test;
using namespace memlab::trace;
using memlab::model::report_to_string;

namespace {

std::string plain_report(const Records& records) {
    Aggregator aggregator;
    feed(records, aggregator);
    return report_to_string(aggregator);
}

Records slice(const Records& records, std::size_t from, std::size_t to) {
    return {records.begin() + static_cast<std::ptrdiff_t>(from),
            records.begin() + static_cast<std::ptrdiff_t>(to)};
}

/// The report of an aggregator that is replaced `times` times by one restored from its checkpoint.
std::string report_with_checkpoints(const Records& records, std::size_t times, Random& random) {
    auto aggregator = std::make_unique<Aggregator>();
    std::size_t from = 0;
    for (std::size_t i = 0; i < times; ++i) {
        const std::size_t to = from + random.below(records.size() - from);
        feed(slice(records, from, to), *aggregator);
        auto restored = std::make_unique<Aggregator>();
        // What it knew before does not matter.
        feed(slice(records, 0, random.below(to + 1)), *restored);
        const std::string before = report_to_string(*aggregator);
        aggregator->checkpoint(*restored);
        CHECK(report_to_string(*restored) == before);
        aggregator = std::move(restored);
        from = to;
    }
    feed(slice(records, from, records.size()), *aggregator);
    return report_to_string(*aggregator);
}

/// The state's bytes, damaged by `damage`.
class DamagedState final : public GenericSink<DamagedState> {
  public:
    DamagedState(RecordSink& to, Random& random) : to_(to), random_(random) {}

    void take(const AggregateState& part) {
        AggregateState damaged = part;
        for (std::uint64_t i = random_.below(4); i != 0 && !damaged.bytes.empty(); --i) {
            char& byte = damaged.bytes[random_.below(damaged.bytes.size())];
            byte = static_cast<char>(random_.any());
        }
        to_.on(damaged);
    }
    void take(const auto& record) { to_.on(record); }

  private:
    RecordSink& to_;
    Random& random_;
};

struct StateBytes final : GenericSink<StateBytes> {
    void take(const AggregateState& part) { bytes += part.bytes; }
    void take(const auto& /*record*/) {}

    std::string bytes;
};

/// Counts the fields of records in a state of a version.
struct Counting {
    std::uint32_t version_;
    std::size_t fields = 0;

    std::uint32_t version() const { return version_; }
    void operator()(const auto& /*value*/) { ++fields; }
    void choice(const auto& /*value*/, const auto& /*last*/) { ++fields; }
};

}  // namespace

TEST_CASE("a report made with checkpoints at any record is the one made without") {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        CAPTURE(seed);
        const bool ends = seed % 3 != 0;
        Records records = seed % 2 == 0 ? PlausibleRecords::make(seed, 4000, ends)
                                        : WildRecords::make(seed, 4000, ends);
        Random random(seed);
        const std::size_t times = 1 + random.below(6);
        if (ends) {
            records.pop_back();  // nothing comes after it, also no checkpoint
        }
        CHECK(report_with_checkpoints(records, times, random) == plain_report(records));
    }
}

TEST_CASE("recordings of real programs survive checkpoints") {
    std::size_t logs = 0;
    for (const auto& file : std::filesystem::recursive_directory_iterator(MEMLAB_TEST_DATA)) {
        if (file.path().extension() != ".memlog") {
            continue;
        }
        CAPTURE(file.path().string());
        Recording recording;
        REQUIRE(read_log(file.path().string(), recording).is_log());
        Records records = std::move(recording.records);
        if (std::holds_alternative<End>(records.back())) {
            records.pop_back();
        }
        Random random(++logs);
        CHECK(report_with_checkpoints(records, 3, random) == plain_report(records));
    }
    CHECK(logs > 5);
}

TEST_CASE("a damaged state harms nothing") {
    std::size_t refused = 0;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        CAPTURE(seed);
        const Records records = seed % 2 == 0 ? PlausibleRecords::make(seed, 600, true)
                                              : WildRecords::make(seed, 600, true);
        Random random(seed);
        const std::size_t cut = random.below(records.size());
        Aggregator before;
        feed(slice(records, 0, cut), before);
        Aggregator after;
        DamagedState damaged(after, random);
        before.checkpoint(damaged);
        feed(slice(records, cut, records.size()), after);
        CHECK_FALSE(report_to_string(after).empty());
        refused += after.integrity().incomplete ? 1 : 0;
    }
    CHECK(refused > 20);
    CHECK(refused < 300);
}

TEST_CASE("records in an earlier memlab's state have the fields of then") {
    Counting earlier{3};
    FieldArchive<Counting> visitor{earlier};
    OomEvent oom;
    OomEvent::fields(oom, visitor);
    CHECK(earlier.fields == 13);
    earlier.fields = 0;
    Witness witness;
    Witness::fields(witness, visitor);
    CHECK(earlier.fields == 6);
    Counting now{Checkpoint::state_version};
    FieldArchive<Counting> all{now};
    Witness::fields(witness, all);
    CHECK(now.fields > 6);
}

TEST_CASE("labels in an earlier memlab's state hold nothing that is known") {
    StateBytes then;
    StateWriter writer(then);
    for (const std::uint64_t number : {1, 3,    1, 1, 100, 100,  // of the name 3
                                       1, 0,    3, 1, 1,   100,  // of the site 0
                                       1, 3,    0,               // its row
                                       1, 0,    0,               // their index
                                       1, 4096, 0, 0}) {         // of the allocation at 4096
        writer.number(number);
    }
    writer.finish();
    StateReader reader(then.bytes, 7);
    LabelStats labels;
    LabelStats::state(labels, reader);
    REQUIRE(reader.ok());
    CHECK(reader.at_end());
    REQUIRE(labels.valid(1, 10));
    CHECK(labels.name_of(4096) == 3);
    CHECK(labels.detail_of(4096) == 0);
    labels.label(8192, 3, 50, 0, 9);
    CHECK(labels.detail_of(8192) == 9);
    CHECK(labels.totals()[0].detail == 0);  // what the first holds is not known
    CHECK(labels.by_site()[0].detail == 0);
}

TEST_CASE("a checkpoint of a later memlab is refused") {
    Aggregator aggregator;
    Checkpoint later;
    later.version = Checkpoint::state_version + 1;
    aggregator.on(later);
    aggregator.on(AggregateState{.last = true, .bytes = "x"});
    CHECK(aggregator.integrity().incomplete);
}
