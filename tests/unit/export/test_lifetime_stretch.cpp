// A stretch of a recording: when it is entered, what is told before and after it, and gaps.
#include <string>
#include <vector>

#include "report/exports/lifetime_sink.hpp"
#include "tests/catch.hpp"

using namespace memlab;
using report::exports::Allocation;
using report::exports::LifetimeSink;
using report::exports::Stretch;
using trace::EventType;

namespace {

/// Writes down what it is told: + allocated, - freed, > entered, with the time; ~ is before.
class Told final : public LifetimeSink {
  public:
    explicit Told(const Stretch& stretch) : LifetimeSink(stretch) { on(trace::DeviceInfo{}); }
    using LifetimeSink::for_each_live;

    std::vector<std::string> told;

    void event(EventType type, std::uint64_t time_ns, std::uint64_t address) {
        trace::Event event;
        event.type = type;
        event.time_ns = time_ns;
        event.address = address;
        event.requested = event.size = 8;
        on(event);
    }
    void allocate(std::uint64_t time_ns, std::uint64_t address) {
        event(EventType::alloc, time_ns, address);
    }
    void free(std::uint64_t time_ns, std::uint64_t address) {
        event(EventType::free_requested, time_ns, address);
    }

  protected:
    void entered() override { note(">"); }
    void allocated(const Allocation& /*allocation*/) override { note("+"); }
    void freed(const Allocation& /*allocation*/, const trace::Event* by) override {
        note(by == nullptr ? "lost" : "-");
    }
    void completed(const Allocation& /*allocation*/, const trace::Event* /*by*/) override {}
    void worked(const trace::Work& work) override { note("work " + string(work.name) + " "); }

  private:
    void note(const std::string& what) {
        told.push_back((within() ? "" : "~") + what + std::to_string(now()));
    }
};

using Notes = std::vector<std::string>;

}  // namespace

TEST_CASE("A stretch is entered before its first record, and left after its last") {
    Told told({.from_ns = 20, .until_ns = 30});
    told.allocate(10, 1);
    told.allocate(19, 2);
    told.free(20, 1);  // both ends are in it
    told.allocate(30, 3);
    told.free(31, 2);
    told.allocate(29, 4);  // the clock does not go back
    told.finish();
    CHECK(told.told == Notes{"~+10", "~+19", ">20", "-20", "+30"});
    CHECK(told.is_over());
}

TEST_CASE("A stretch without a record is entered") {
    Told between({.from_ns = 20, .until_ns = 30});
    between.allocate(10, 1);
    between.allocate(40, 2);
    between.finish();
    CHECK(between.told == Notes{"~+10", ">20"});

    Told behind({.from_ns = 20, .until_ns = 30});
    behind.allocate(10, 1);
    behind.finish();
    CHECK(behind.told == Notes{"~+10", ">20"});
}

TEST_CASE("Without a stretch all is told") {
    Told told({});
    told.allocate(0, 1);
    told.free(5, 1);
    told.finish();
    CHECK(told.told == Notes{">0", "+0", "-5"});
}

TEST_CASE("Records missing before the stretch end what was live outside of it") {
    trace::Aggregator until_gap_end;
    until_gap_end.on(trace::DeviceInfo{});
    trace::Event lives_on;
    lives_on.address = 1;
    lives_on.time_ns = 60;
    until_gap_end.on(lives_on);

    Told told({.from_ns = 50, .until_ns = 90});
    told.allocate(10, 1);
    until_gap_end.checkpoint(told);
    told.allocate(70, 2);
    told.free(71, 1);  // of what the checkpoint brought
    told.free(72, 2);
    CHECK(told.told == Notes{"~+10", "~lost10", ">50", "+70", "-72"});
}

TEST_CASE("Records missing after the stretch leave it alone") {
    Told told({.from_ns = 5, .until_ns = 20});
    told.on(trace::StringDef{1, "kernel"});
    told.allocate(10, 1);
    told.allocate(30, 2);
    trace::Work work;
    work.name = 1;
    told.on(work);  // recorded after it ended
    told.on(trace::Checkpoint{.time_ns = 60});
    told.on(trace::StringDef{1, "another"});
    told.on(work);  // of numbers that mean something else
    CHECK(told.told == Notes{">5", "+10", "work kernel 20"});
    std::size_t live = 0;
    told.for_each_live([&](const Allocation&) { ++live; });
    CHECK(live == 1);
}
