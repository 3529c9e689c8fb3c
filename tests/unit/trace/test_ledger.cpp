// The ledger: what the rows have, and that all parts are the driver's figure at each sample.
#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "trace/aggregate/aggregator.hpp"

using namespace memlab::test;
using namespace memlab::trace;

namespace {

constexpr std::uint64_t ledger_mib = 1 << 20;

/// A GPU, and the records of one process on it.
class LedgerGpu {
  public:
    LedgerGpu() {
        aggregator_.on(DeviceInfo{0, "GPU", "GPU-0", 80'000 * ledger_mib, 13000});
        aggregator_.on(ContextInfo{1, 0, true});
        for (std::uint32_t id = 1; id <= 3; ++id) {
            aggregator_.on(StringDef{id, "name " + std::to_string(id)});
            aggregator_.on(ModuleDef{id, "/opt/app", "", 0, 0, 1 << 20});
            aggregator_.on(StackDef{id, false, {{1, 64 * id}}});
        }
    }

    void call(LedgerKind kind, std::uint64_t before, std::uint64_t after, std::uint32_t stack = 1,
              std::uint64_t context = 7, bool ended = false) {
        LedgerEntry entry;
        entry.time_ns = ++now_;
        entry.kind = kind;
        entry.stack = stack;
        entry.context = context;
        entry.before = before * ledger_mib;
        entry.after = after * ledger_mib;
        entry.ended = ended;
        aggregator_.on(entry);
        if (after != 0) {
            sample(after);
        }
    }
    /// Calls without a record of their own, as they are recorded before a sample.
    void calls(LedgerKind kind, std::uint64_t skipped, std::uint64_t returns = 0,
               std::uint64_t unchanged = 0) {
        LedgerEntry entry;
        entry.time_ns = ++now_;
        entry.kind = kind;
        entry.skipped = skipped;
        entry.skipped_returns = returns;
        entry.unchanged = unchanged;
        aggregator_.on(entry);
    }
    /// What is estimated of a kind, in MiB.
    std::uint64_t estimated(LedgerKind kind) const {
        std::uint64_t bytes = 0;
        for (const LedgerRow& each : ledger().rows()) {
            bytes += each.estimated && each.kind == kind ? each.bytes : 0;
        }
        return bytes / ledger_mib;
    }
    void sample(std::uint64_t used, bool worked = false, std::uint64_t pools = 0) {
        aggregator_.on(DeviceSample{++now_, 0, used * ledger_mib, 80'000 * ledger_mib,
                                    pools * ledger_mib, worked});
        const LedgerMoment moment = *ledger().latest();
        CHECK(moment.used == used * ledger_mib);
    }
    void memory(EventType type, std::uint64_t bytes, MemoryKind kind = MemoryKind::device) {
        Event event;
        event.type = type;
        event.time_ns = ++now_;
        event.kind = kind;
        event.origin = Origin::driver;
        event.context = 1;
        event.address = 0x1000;
        event.requested = event.size = bytes * ledger_mib;
        aggregator_.on(event);
    }

    const Ledger& ledger() const { return aggregator_.devices()[0]->ledger; }
    std::uint64_t row(std::size_t index) const {
        return ledger().rows().at(index).bytes / ledger_mib;
    }
    std::uint64_t growth() const { return ledger().latest()->growth / ledger_mib; }
    /// What no part of the latest moment explains.
    std::uint64_t rest() const {
        const LedgerMoment moment = *ledger().latest();
        std::uint64_t known = moment.recorded.reserved + moment.growth;
        for (const std::uint64_t row : moment.rows) {
            known += row;
        }
        return (moment.used - known) / ledger_mib;
    }
    Aggregator& aggregator() { return aggregator_; }

  private:
    Aggregator aggregator_;
    std::uint64_t now_ = 0;
};

}  // namespace

TEST_CASE("each call moves its row by what it took") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500);
    CHECK(gpu.row(0) == 500);
    CHECK(gpu.ledger().rows()[0].whole);
    gpu.call(LedgerKind::module, 500, 560);
    gpu.call(LedgerKind::module, 560, 570);
    gpu.call(LedgerKind::module, 570, 575, 2);
    CHECK(gpu.row(1) == 70);
    CHECK(gpu.ledger().rows()[1].count == 2);
    CHECK(gpu.row(2) == 5);
    CHECK(gpu.rest() == 0);
    CHECK(gpu.growth() == 0);
}

TEST_CASE("allocations between are none of the rows'") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500);
    gpu.memory(EventType::alloc, 100);
    gpu.sample(600, true);
    CHECK(gpu.growth() == 0);
    CHECK(gpu.rest() == 0);
    // 4 MiB grew before the call took 10.
    gpu.sample(604, true);
    gpu.call(LedgerKind::graph, 604, 614);
    CHECK(gpu.row(1) == 10);
    CHECK(gpu.growth() == 4);
    CHECK(gpu.rest() == 0);
}

TEST_CASE("growth without work of the process is the rest") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500);
    gpu.sample(530, true);
    CHECK(gpu.growth() == 30);
    gpu.sample(1530, false);
    CHECK(gpu.growth() == 30);
    CHECK(gpu.rest() == 1000);
    gpu.sample(530, false);  // the other process has gone
    CHECK(gpu.growth() == 30);
    CHECK(gpu.rest() == 0);
    gpu.sample(510, true);
    CHECK(gpu.growth() == 10);
}

TEST_CASE("what goes back is taken from the row that has it") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500);
    gpu.call(LedgerKind::stream, 500, 510, 1);
    gpu.call(LedgerKind::stream, 510, 530, 2);
    gpu.call(LedgerKind::stream, 530, 505, 3);
    CHECK(gpu.row(1) == 5);
    CHECK(gpu.row(2) == 0);
    CHECK(gpu.rest() == 0);
    gpu.call(LedgerKind::module, 505, 565);
    gpu.call(LedgerKind::kernel, 565, 566);
    gpu.call(LedgerKind::module, 566, 505);  // unloaded, with its kernel
    CHECK(gpu.row(3) == 0);
    CHECK(gpu.row(4) == 0);
}

TEST_CASE("a context's end is that of its rows") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500, 1, 7);
    gpu.call(LedgerKind::context, 500, 900, 2, 8);
    gpu.call(LedgerKind::module, 900, 950, 3, 8);
    CHECK(gpu.ledger().rows()[1].whole == false);
    gpu.call(LedgerKind::context, 0, 500, 0, 8, true);
    CHECK(gpu.row(0) == 500);
    CHECK(gpu.row(1) == 0);
    CHECK(gpu.row(2) == 0);
    CHECK(gpu.rest() == 0);
    gpu.call(LedgerKind::context, 500, 900, 2, 9);  // made again: the same row
    CHECK(gpu.row(1) == 400);
    CHECK(gpu.ledger().rows().size() == 3);
    gpu.sample(920, true);
    gpu.call(LedgerKind::context, 0, 0, 0, 9, true);
    gpu.call(LedgerKind::context, 0, 0, 0, 7, true);
    gpu.call(LedgerKind::context, 0, 480, 1, 7);
    CHECK(gpu.row(0) == 480);
    CHECK(gpu.rest() == 0);
}

TEST_CASE("the driver's pools count with what they keep") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500);
    gpu.memory(EventType::alloc, 10, MemoryKind::async_pool);
    gpu.sample(532, true, 32);
    CHECK(gpu.growth() == 0);
    CHECK(gpu.ledger().latest()->pools == 32 * ledger_mib);
}

TEST_CASE("the peak keeps what the rows had") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500);
    gpu.call(LedgerKind::module, 500, 600);
    gpu.call(LedgerKind::module, 600, 500);
    gpu.call(LedgerKind::graph, 500, 520);
    REQUIRE(gpu.ledger().peak());
    CHECK(gpu.ledger().peak()->used == 600 * ledger_mib);
    CHECK(gpu.ledger().peak()->rows ==
          std::vector<std::uint64_t>{500 * ledger_mib, 100 * ledger_mib});
    CHECK(gpu.row(1) == 0);
    CHECK(gpu.row(2) == 20);
}

TEST_CASE("rows are bounded, and their sum is not lost") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500);
    std::uint64_t used = 500;
    for (std::uint64_t context = 10; context < 10 + Ledger::max_rows + 100; ++context) {
        gpu.call(LedgerKind::stream, used, used + 1, 1, context);
        ++used;
    }
    CHECK(gpu.ledger().rows().size() <= Ledger::max_rows);
    CHECK(gpu.rest() == 0);
}

TEST_CASE("calls that were not measured are counted") {
    LedgerGpu gpu;
    LedgerEntry skipped;
    skipped.kind = LedgerKind::event;
    skipped.skipped = 5;
    gpu.aggregator().on(skipped);
    gpu.aggregator().on(skipped);
    CHECK(gpu.ledger().skipped()[static_cast<std::size_t>(LedgerKind::event)] == 10);
    CHECK(gpu.ledger().kept());
    CHECK(gpu.ledger().rows().empty());
}

TEST_CASE("calls that were not measured are estimated by the mean of their kind") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500);
    gpu.call(LedgerKind::stream, 500, 504);
    gpu.call(LedgerKind::stream, 504, 508);
    gpu.calls(LedgerKind::stream, 10, 0, 2);  // 8 MiB in 4 calls, two of which took nothing
    gpu.sample(568, true);
    CHECK(gpu.estimated(LedgerKind::stream) == 20);
    CHECK(gpu.growth() == 40);
    CHECK(gpu.rest() == 0);
    const LedgerRow& row = gpu.ledger().rows().back();
    CHECK(row.count == 10);
    CHECK(row.stack == 0);
    CHECK(gpu.ledger().skipped()[static_cast<std::size_t>(LedgerKind::stream)] == 10);
    // Not twice.
    gpu.sample(600, true);
    CHECK(gpu.estimated(LedgerKind::stream) == 20);
    CHECK(gpu.growth() == 72);
}

TEST_CASE("an estimate is no more than what the figure grew by") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500);
    gpu.call(LedgerKind::stream, 500, 510);
    gpu.call(LedgerKind::graph, 510, 540);
    gpu.calls(LedgerKind::stream, 6);  // 60 MiB
    gpu.calls(LedgerKind::graph, 4);   // 120 MiB
    gpu.sample(570, false);
    CHECK(gpu.estimated(LedgerKind::stream) == 10);
    CHECK(gpu.estimated(LedgerKind::graph) == 20);
    CHECK(gpu.rest() == 0);
    gpu.calls(LedgerKind::stream, 5);
    gpu.sample(570, true);
    CHECK(gpu.estimated(LedgerKind::stream) == 10);
    gpu.memory(EventType::alloc, 50);
    gpu.calls(LedgerKind::stream, 5);
    gpu.sample(620, true);  // the allocation's
    CHECK(gpu.estimated(LedgerKind::stream) == 10);
}

TEST_CASE("a log of an earlier memlab does not tell what calls take on average") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500);
    LedgerEntry entry;
    entry.kind = LedgerKind::stream;
    entry.before = 500 * ledger_mib;
    entry.after = 504 * ledger_mib;
    entry.skipped = 10;  // beside a measured call
    gpu.aggregator().on(entry);
    gpu.sample(540, true);
    CHECK(gpu.estimated(LedgerKind::stream) == 0);
    CHECK(gpu.growth() == 36);
    CHECK(gpu.ledger().skipped()[static_cast<std::size_t>(LedgerKind::stream)] == 10);
}

TEST_CASE("what two threads measured at the same time is in one row only") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500);
    for (const std::uint32_t stack : {1U, 2U}) {  // 10 MiB each, which both calls saw
        LedgerEntry entry;
        entry.kind = LedgerKind::launch;
        entry.stack = stack;
        entry.before = 500 * ledger_mib;
        entry.after = 520 * ledger_mib;
        entry.uncertain = true;
        gpu.aggregator().on(entry);
        gpu.sample(520, true);
    }
    CHECK(gpu.row(1) == 20);
    CHECK(gpu.ledger().rows().size() == 2);
    CHECK(gpu.growth() == 0);
    CHECK(gpu.rest() == 0);
}

TEST_CASE("an allocation of another thread is not the call's") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500);
    gpu.memory(EventType::alloc, 50);
    LedgerEntry entry;
    entry.kind = LedgerKind::module;
    entry.stack = 1;
    entry.before = 500 * ledger_mib;
    entry.after = 553 * ledger_mib;
    entry.uncertain = true;
    gpu.aggregator().on(entry);
    gpu.sample(553, true);
    CHECK(gpu.row(1) == 3);
    CHECK(gpu.rest() == 0);
}

TEST_CASE("of a kind that was never measured nothing is estimated") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500);
    gpu.calls(LedgerKind::event, 100);
    gpu.sample(520, true);
    CHECK(gpu.estimated(LedgerKind::event) == 0);
    CHECK(gpu.growth() == 20);
}

TEST_CASE("calls that give back are no calls that take") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500);
    gpu.call(LedgerKind::stream, 500, 504);
    gpu.calls(LedgerKind::stream, 20, 10);  // ten made, ten destroyed
    gpu.sample(520, true);
    CHECK(gpu.estimated(LedgerKind::stream) == 0);
    CHECK(gpu.growth() == 16);
}

TEST_CASE("what went back in calls that were not measured is taken from estimates, then rows") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500);
    gpu.call(LedgerKind::stream, 500, 504);
    gpu.call(LedgerKind::stream, 504, 508);
    gpu.calls(LedgerKind::stream, 10);
    gpu.sample(548, true);
    CHECK(gpu.estimated(LedgerKind::stream) == 40);
    gpu.calls(LedgerKind::stream, 11, 11);
    gpu.sample(504, true);
    CHECK(gpu.estimated(LedgerKind::stream) == 0);
    CHECK(gpu.row(1) == 4);
    CHECK(gpu.row(0) == 500);
    CHECK(gpu.rest() == 0);
}

TEST_CASE("measured calls that give back take from the estimate, too") {
    LedgerGpu gpu;
    gpu.call(LedgerKind::context, 0, 500);
    gpu.call(LedgerKind::graph, 500, 510);
    gpu.calls(LedgerKind::graph, 2);
    gpu.sample(530, true);
    CHECK(gpu.estimated(LedgerKind::graph) == 20);
    gpu.call(LedgerKind::graph, 530, 505);
    CHECK(gpu.estimated(LedgerKind::graph) == 5);
    CHECK(gpu.rest() == 0);
    gpu.call(LedgerKind::context, 0, 0, 0, 7, true);  // the last context
    CHECK(gpu.estimated(LedgerKind::graph) == 0);
}

TEST_CASE("each communicator has what NCCL said last, and the most") {
    LedgerGpu gpu;
    const auto told = [&](std::uint32_t communicator, std::uint64_t total, bool ended = false) {
        gpu.aggregator().on(CommunicatorMemory{.communicator = communicator,
                                               .rank = 1,
                                               .ranks = 4,
                                               .total = total,
                                               .persistent = total,
                                               .ended = ended});
    };
    told(2, 10);
    told(1, 5);
    told(2, 30);
    told(2, 20, true);
    REQUIRE(gpu.ledger().communicators().size() == 2);
    CHECK(gpu.ledger().communicators()[0].latest.communicator == 2);
    CHECK(gpu.ledger().communicators()[0].latest.total == 20);
    CHECK(gpu.ledger().communicators()[0].latest.ended);
    CHECK(gpu.ledger().communicators()[0].max_total == 30);
    CHECK(gpu.ledger().communicators()[1].max_total == 5);
    for (std::uint32_t i = 3; i < 3000; ++i) {
        told(i, i);
    }
    CHECK(gpu.ledger().communicators().size() == Ledger::max_communicators);
}
