// The report of a moment is the same whether it is made while the log is aggregated or by reading
// it again.
#include <optional>

#include "model/json_writer.hpp"
#include "report/timeline/moments.hpp"
#include "tests/unit/report/recorded.hpp"

using namespace memlab::test;
namespace model = memlab::model;
namespace report = memlab::report;

namespace {

Event event(EventType type, std::uint64_t time_ns, std::uint64_t address) {
    Event out;
    out.type = type;
    out.context = 1;
    out.thread = 7;
    out.time_ns = time_ns;
    out.address = address;
    out.requested = out.size = 4096;
    return out;
}

}  // namespace

TEST_CASE("a moment's report has the names of nn.Modules that came later, as text") {
    Records records;
    records.emplace_back(ProcessInfo{.pid = 42, .executable = "/usr/bin/python3"});
    records.emplace_back(DeviceInfo{0, "GPU", "GPU-0", 1ULL << 40, 13000});
    records.emplace_back(ContextInfo{1, 0, true});
    records.emplace_back(NnModuleStackDef{1, 0, 5});
    Event made = event(EventType::alloc, 10, 0x10000);
    made.nn_modules = 1;
    records.emplace_back(made);
    records.emplace_back(event(EventType::free_requested, 30, 0x10000));
    records.emplace_back(StringDef{1, "layers.\xff"});
    records.emplace_back(StringDef{2, "Linear\xc3"});
    records.emplace_back(NnModuleName{5, 1, 2});
    records.emplace_back(End{40, EndKind::exit, 0, ""});
    const Recorded recorded(records);

    report::MomentCollector collected({"20ns"});
    REQUIRE(report::read_report(recorded.log(), collected.sink_factory()).report);
    REQUIRE(collected.at(recorded.log(), 20));
    const auto now = report::report_at(recorded.log(), 20, recorded.report, collected);
    const auto again = report::report_at(recorded.log(), 20, recorded.report);
    REQUIRE(now);
    REQUIRE(again);
    REQUIRE(now->nn_modules.size() == 1);
    CHECK(now->nn_modules.front().name == "layers.\xef\xbf\xbd");
    CHECK(now->nn_modules.front().class_name == "Linear\xef\xbf\xbd");
    CHECK(now->nn_modules == again->nn_modules);
    CHECK(now->sites == again->sites);
}
