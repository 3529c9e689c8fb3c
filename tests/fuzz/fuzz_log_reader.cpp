// libFuzzer: any bytes as an event log, through the reader, the aggregator and the JSON writer.
// Nothing may crash, hang or grow without bound, what comes out must be valid JSON, and the sums
// that the report promises must hold for whatever was delivered.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "model/json_writer.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/reading/log_reader.hpp"

using namespace memlab::trace;
using namespace memlab::fuzz;

namespace {

void read(const std::uint8_t* data, std::size_t size) {
    Aggregator aggregator;
    const LogReadResult result = read_log(data, size, aggregator);
    require(result.offset <= size);
    require(result.message.empty() == (result.status == LogStatus::complete));
    require(result.is_log() || result.records == 0);
    require(!aggregator.integrity().incomplete);
    for (const auto& device : aggregator.devices()) {
        if (device == nullptr) {
            continue;
        }
        const std::uint32_t index = device->info.index;
        require(device->timeline.buckets().size() <= Timeline::max_buckets);
        require(aggregator.composition_at_peak(index, 3).bytes ==
                device->curve(CurveName::allocated).peak);
        require(aggregator.composition_now(index, 3).bytes ==
                device->curve(CurveName::allocated).current);
        const MemoryStats& stats = device->pool.stats;
        for (const StatByPool* stat :
             {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split,
              &stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
              &stats.inactive_split_bytes, &stats.requested_bytes}) {
            require(stat->all.current == stat->small_pool.current + stat->large_pool.current);
            require(stat->all.current == stat->all.allocated - stat->all.freed);
        }
    }
    const std::string text = memlab::model::report_to_string(aggregator);
    require(!nlohmann::json::parse(text, nullptr, false).is_discarded());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    read(data, size);
    const auto log = as_open_log(data, size);
    read(log.data(), log.size());
    return 0;
}
