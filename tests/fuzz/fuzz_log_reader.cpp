// libFuzzer: any bytes as an event log, through the reader, the aggregator and the JSON writer.
// Nothing may crash, hang or grow without bound, what comes out must be valid JSON, and the sums
// that the report promises must hold for whatever was delivered.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "profiler/trace/aggregator.hpp"
#include "profiler/trace/log_format.hpp"
#include "profiler/trace/log_reader.hpp"
#include "report/json_writer.hpp"

using namespace memlab::trace;

namespace {

void require(bool condition) {
    if (!condition) {
        __builtin_trap();
    }
}

void read(const std::uint8_t* data, std::size_t size) {
    Aggregator aggregator;
    const LogReadResult result = read_log(data, size, aggregator);
    require(result.offset <= size);
    require(result.message.empty() == (result.status == LogStatus::complete));
    require(result.status != LogStatus::not_a_log || result.records == 0);
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
    const std::string text = memlab::report::report_to_string(aggregator);
    require(!nlohmann::json::parse(text, nullptr, false).is_discarded());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    read(data, size);
    // The same bytes as records of an open block: no checksum keeps the fuzzer out.
    std::vector<std::uint8_t> open_log(format::magic, format::magic + sizeof format::magic);
    open_log.resize(format::file_header_size);
    open_log[sizeof format::magic] = format::version;
    open_log.push_back(format::block_tag);
    open_log.resize(format::file_header_size + format::block_header_size);
    open_log.insert(open_log.end(), data, data + size);
    read(open_log.data(), open_log.size());
    return 0;
}
