// The packets of a trace: clocks, numbers of texts, counters beside events, and their edges.
#include "report/exports/trace_packets.hpp"

#include <limits>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/export/messages.hpp"

using namespace memlab;
using namespace memlab::test;
using report::exports::TracePackets;
using Type = TracePackets::Type;

namespace {

constexpr std::uint64_t largest = std::numeric_limits<std::int64_t>::max();

// Fields of TracePacket and TrackEvent.
constexpr std::uint64_t clock_snapshot = 6;
constexpr std::uint64_t timestamp = 8;
constexpr std::uint64_t sequence_id = 10;
constexpr std::uint64_t track_event = 11;
constexpr std::uint64_t interned_data = 12;
constexpr std::uint64_t timestamp_clock = 58;
constexpr std::uint64_t counter_value = 30;

std::vector<std::string> packets_of(const std::string& trace) {
    std::vector<std::string> packets;
    for (const Field& field : fields_of(trace)) {
        REQUIRE(field.number == 1);
        packets.push_back(field.text);
    }
    return packets;
}

/// The packets of events, of all sequences.
std::vector<std::string> events_of(const std::string& trace) {
    std::vector<std::string> events;
    for (const std::string& packet : packets_of(trace)) {
        if (has_field(packet, track_event)) {
            events.push_back(packet);
        }
    }
    return events;
}

std::vector<std::uint64_t> values(std::string_view message, std::uint64_t number) {
    std::vector<std::uint64_t> found;
    for (const Field& field : fields_of(message)) {
        if (field.number == number) {
            found.push_back(field.value);
        }
    }
    return found;
}

void instant(TracePackets& packets, std::uint64_t track, std::uint64_t time_ns,
             std::string_view name = "mark") {
    packets.begin_event(Type::instant, track, time_ns);
    packets.name(name);
    packets.end_event();
}

struct FullSink final : model::ByteSink {
    bool write(const char* /*data*/, std::size_t /*size*/) override { return false; }
};

}  // namespace

TEST_CASE("A trace begins with its clock, and the time of day if that is known") {
    for (const std::uint64_t start :
         {std::uint64_t{0}, std::uint64_t{1'700'000'000'000'000'000}, largest + 1}) {
        model::StringSink sink;
        TracePackets packets(sink, start);
        REQUIRE(packets.finish());
        const std::vector<std::string> all = packets_of(sink.text);
        REQUIRE(all.size() == 1);
        const std::string clocks = field_of(all[0], clock_snapshot).text;
        CHECK(fields_of(clocks).size() == (start == 0 || start > largest ? 2U : 3U));
        CHECK(field_of(clocks, 2).value == 6);
    }
}

TEST_CASE("Times are differences, and those of the past are whole") {
    model::StringSink sink;
    TracePackets packets(sink, 1);
    packets.begin_sequence();
    const std::uint64_t track = packets.add_track(packets.add_process(7, "p", {}), "t");
    for (const std::uint64_t time : {std::uint64_t{100}, std::uint64_t{130}, std::uint64_t{50},
                                     std::uint64_t{131}, ~std::uint64_t{0}, std::uint64_t{131}}) {
        instant(packets, track, time);
    }
    packets.begin_sequence();
    instant(packets, track, 40);
    REQUIRE(packets.finish());
    const std::vector<std::string> events = events_of(sink.text);
    const std::vector<std::pair<std::uint64_t, bool>> expected = {
        {100, false},           {30, false}, {50, true}, {1, false},
        {largest - 131, false}, {131, true}, {40, false}};
    REQUIRE(events.size() == expected.size());
    for (std::size_t i = 0; i < events.size(); ++i) {
        CHECK(field_of(events[i], timestamp).value == expected[i].first);
        CHECK(has_field(events[i], timestamp_clock) == expected[i].second);
    }
    CHECK(field_of(events[5], sequence_id).value == 1);
    CHECK(field_of(events[6], sequence_id).value == 2);
}

TEST_CASE("A text is written once in a sequence, with the first event that has it") {
    model::StringSink sink;
    TracePackets packets(sink, 1);
    for (int sequence = 0; sequence < 2; ++sequence) {
        packets.begin_sequence();
        instant(packets, 1, 1, "a");
        instant(packets, 1, 2, "a");
        instant(packets, 1, 3, "b");
    }
    REQUIRE(packets.finish());
    const std::vector<std::string> events = events_of(sink.text);
    REQUIRE(events.size() == 6);
    for (std::size_t i = 0; i < events.size(); ++i) {
        CHECK(has_field(events[i], interned_data) == (i % 3 != 1));
        CHECK(field_of(field_of(events[i], track_event).text, 10).value == (i % 3 == 2 ? 2U : 1U));
    }
}

TEST_CASE("Equal call stacks have one number, whatever they are made of") {
    model::StringSink sink;
    TracePackets packets(sink, 1);
    packets.begin_sequence();
    const TracePackets::Frame main{"main", "a.cpp", 3};
    const TracePackets::Frame other{"main", "a.cpp", 4};
    const std::uint64_t first = packets.add_callstack({main, {"f", {}, 0}});
    CHECK(packets.add_callstack({main, {"f", {}, 9}}) == first);  // no line without a file
    CHECK(packets.add_callstack({other, {"f", {}, 0}}) != first);
    CHECK(packets.add_callstack({{"f", {}, 0}, main}) != first);
    packets.begin_sequence();
    CHECK(packets.add_callstack({other}) == 1);
}

TEST_CASE("Counters travel with the event of their time, at most eight") {
    model::StringSink sink;
    TracePackets packets(sink, 1);
    packets.begin_sequence();
    for (std::uint64_t track = 1; track <= 11; ++track) {
        packets.counter(track, 5, track == 3 ? ~std::uint64_t{0} : 100 * track);
    }
    instant(packets, 20, 5);
    packets.counter(1, 6, 7);  // no event of its time
    instant(packets, 20, 7);
    REQUIRE(packets.finish());
    const std::vector<std::string> events = events_of(sink.text);
    REQUIRE(events.size() == 6);
    const std::string first = field_of(events[0], track_event).text;
    CHECK(values(first, 31) == std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6, 7, 8});
    CHECK(values(first, 12) ==
          std::vector<std::uint64_t>{100, 200, largest, 400, 500, 600, 700, 800});
    for (std::size_t i = 1; i < 5; ++i) {
        CHECK(field_of(field_of(events[i], track_event).text, counter_value).value ==
              (i == 4 ? 7 : 100 * (i + 8)));
    }
}

TEST_CASE("Usual counters are not named where they change in their order") {
    model::StringSink sink;
    TracePackets packets(sink, 1);
    packets.begin_sequence();
    packets.usual_counters({4, 5, 6});
    const auto event = [&](const std::vector<std::uint64_t>& tracks) {
        for (const std::uint64_t track : tracks) {
            packets.counter(track, 1, track);
        }
        instant(packets, 20, 1);
    };
    const std::vector<std::vector<std::uint64_t>> all = {{4}, {4, 5}, {4, 5, 6},
                                                         {5}, {4, 6}, {4, 5, 6, 7}};
    for (const std::vector<std::uint64_t>& tracks : all) {
        event(tracks);
    }
    packets.begin_sequence();
    event({4});
    REQUIRE(packets.finish());
    const std::vector<std::string> events = events_of(sink.text);
    REQUIRE(events.size() == 7);
    for (std::size_t i = 0; i < events.size(); ++i) {
        const std::string of = field_of(events[i], track_event).text;
        CHECK(values(of, 12) == (i < 6 ? all[i] : all[0]));
        CHECK(values(of, 31).empty() == (i < 3));
    }
}

TEST_CASE("A sink that fails is told of at the end") {
    FullSink sink;
    TracePackets packets(sink, 1);
    packets.begin_sequence();
    instant(packets, 1, 1);
    CHECK_FALSE(packets.finish());
}
