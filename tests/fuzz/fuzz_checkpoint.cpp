// libFuzzer: any bytes as a log with a ring: its beginning, and blocks of events and of checkpoints
// in its regions, with right checksums, so that the fuzzer gets behind them. And any bytes as the
// state in a checkpoint, after which the recording goes on.
//
// Nothing may crash, hang or grow without bound, and what comes out must be valid JSON.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/json_writer.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/unit/trace/recording.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/block_header.hpp"
#include "trace/crc32c.hpp"
#include "trace/event_codec.hpp"
#include "trace/log_ring.hpp"
#include "trace/reading/log_reader.hpp"

using namespace memlab::trace;
using namespace memlab::fuzz;

namespace {

void check_json(const Aggregator& aggregator) {
    const std::string text = memlab::model::report_to_string(aggregator);
    require(!nlohmann::json::parse(text, nullptr, false).is_discarded());
}

/// Consumes the input.
class Bytes {
  public:
    Bytes(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
    bool empty() const { return at_ == end_; }
    std::uint8_t byte() { return empty() ? 0 : *at_++; }
    std::vector<std::uint8_t> take(std::size_t size) {
        size = std::min(size, static_cast<std::size_t>(end_ - at_));
        at_ += size;
        return {at_ - size, at_};
    }

  private:
    const std::uint8_t* at_;
    const std::uint8_t* end_;
};

/// A log of two or three regions, each step of the input one block.
std::vector<std::uint8_t> as_ring(Bytes bytes) {
    const LogRing ring{.regions = 2U + bytes.byte() % 2U,
                       .beginning = 4096,
                       .region_size = format::min_region_size};
    std::vector<std::uint8_t> log(ring.beginning + ring.regions * ring.region_size);
    ring.put_file_header(log.data());
    std::uint64_t at = format::ring_file_header_size;
    std::uint64_t end = ring.beginning;
    std::uint64_t region = bytes.byte() % 4;
    std::uint32_t part = 0;
    while (!bytes.empty()) {
        const std::uint8_t what = bytes.byte();
        if (what % 8 == 7) {
            at = ring.offset(region);
            end = at + ring.region_size;
            std::fill(log.begin() + static_cast<std::ptrdiff_t>(at),
                      log.begin() + static_cast<std::ptrdiff_t>(end), 0);
            put_region_header(log.data() + at, region);
            at += format::region_header_size;
            region += what == 255 ? 2 : 1;
            continue;
        }
        const bool checkpoint = what % 8 >= 4;
        std::vector<std::uint8_t> payload;
        if (checkpoint) {
            const std::uint8_t where = bytes.byte();
            payload.resize(format::checkpoint_prefix_size);
            part = where % 4 == 0 ? 0 : part;
            put_little_endian(payload.data(), std::uint32_t{where} / 64);
            put_little_endian(payload.data() + 4, part++);
            put_little_endian(payload.data() + 8, std::uint32_t{where} / 16 % 4);
            put_little_endian(payload.data() + 12, std::uint64_t{where} / 4 % 4);
            put_little_endian(payload.data() + 20, std::uint64_t{format::region_header_size});
        }
        const auto records = bytes.take(std::size_t{bytes.byte()} * (what >= 128 ? 64 : 1));
        payload.insert(payload.end(), records.begin(), records.end());
        const std::size_t size = format::block_header_size + payload.size();
        if (at + size > end) {
            break;
        }
        const std::uint8_t tag = checkpoint ? format::checkpoint_tag : format::block_tag;
        if (what % 8 == 0) {
            log[at] = tag;  // open
        } else {
            put_block_header(log.data() + at, tag, static_cast<std::uint32_t>(payload.size()),
                             crc32c(0, payload.data(), payload.size()));
        }
        std::copy(payload.begin(), payload.end(),
                  log.begin() + static_cast<std::ptrdiff_t>(at + format::block_header_size));
        at += size;
    }
    return log;
}

void read_ring(const std::uint8_t* data, std::size_t size) {
    const std::vector<std::uint8_t> log = as_ring({data, size});
    for (const LogPart part : {LogPart::everything, LogPart::sums, LogPart::beginning}) {
        Aggregator aggregator;
        const LogReadResult result = read_log(log.data(), log.size(), aggregator, part);
        require(result.offset <= log.size());
        require(result.message.empty() == (result.status == LogStatus::complete));
        check_json(aggregator);
    }
}

/// Everything but the state is that of a checkpoint in the middle of a recording.
class WithState final : public GenericSink<WithState> {
  public:
    WithState(RecordSink& to, std::string state) : to_(to), state_(std::move(state)) {}

    void take(const AggregateState& part) {
        if (part.last) {
            to_.on(AggregateState{.last = true, .bytes = state_});
        }
    }
    void take(const auto& record) { to_.on(record); }

  private:
    RecordSink& to_;
    std::string state_;
};

void restore(const std::uint8_t* data, std::size_t size) {
    using namespace memlab::test;
    static const Records records = PlausibleRecords::make(1, 400);
    Aggregator before;
    for (std::size_t i = 0; i < records.size() / 2; ++i) {
        feed(records[i], before);
    }
    Aggregator after;
    WithState state(after, {reinterpret_cast<const char*>(data), size});
    before.checkpoint(state);
    check_json(after);
    for (std::size_t i = records.size() / 2; i < records.size(); ++i) {
        feed(records[i], after);
    }
    check_json(after);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    restore(data, size);
    read_ring(data, size);
    return 0;
}
