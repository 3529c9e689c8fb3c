#include "trace/reading/log_decoder.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "trace/crc32c.hpp"
#include "trace/log_file.hpp"
#include "trace/log_format.hpp"
#include "trace/record_codec.hpp"

// Not in libmemlab.so: its stack frames may be large.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wframe-larger-than="

namespace memlab::trace {

LogDecoder::LogDecoder(LogInput& input, std::string name, RecordSink& sink, bool waits)
    : input_(input), name_(std::move(name)), sink_(sink), waits_(waits) {}

bool LogDecoder::finish(LogStatus status, const std::string& what) {
    result_.status = status;
    result_.message = name_ + ": " + what;
    return false;
}

void LogDecoder::read_blocks() {
    while (in_open_block_ ? open_block() : block()) {
    }
}

bool LogDecoder::checkpoint(const FoundCheckpoint& checkpoint) {
    for (const std::uint64_t offset : checkpoint.blocks) {
        input_.seek(offset, std::numeric_limits<std::uint64_t>::max());
        const bool there = input_.need(format::block_header_size) >= format::block_header_size;
        const BlockHeader header = there ? BlockHeader::parse(input_.data()) : BlockHeader{};
        const std::size_t size = format::block_header_size + std::size_t{header.length};
        if (header.length < format::checkpoint_prefix_size || input_.need(size) < size) {
            return damaged("the checkpoint cannot be read");
        }
        input_.consume(format::block_header_size + format::checkpoint_prefix_size);
        state_ = CodecState{};
        in_checkpoint_ = true;
        const bool read = sealed_block(header.length - format::checkpoint_prefix_size);
        in_checkpoint_ = false;
        if (!read) {
            return false;
        }
    }
    in_open_block_ = false;
    return true;
}

std::uint64_t LogDecoder::end_of_beginning() {
    RecordSink ignored;
    LogDecoder skimmer(input_, name_, ignored);
    skimmer.skims_ = true;
    skimmer.more_follows_ = true;
    input_.seek(last_blocks_of_beginning(input_, ring_), ring_.beginning);
    skimmer.read_blocks();
    return skimmer.latest_ns_;
}

/// The end of the data, or of this part of it.
bool LogDecoder::end_of_part() {
    return more_follows_ || waits_ ? false : cut_off();
}

bool LogDecoder::cut_off() {
    if (waits_) {
        return false;
    }
    stopped_ = true;
    if (input_.error() != 0) {
        return finish(LogStatus::damaged,
                      "cannot be read beyond " + here() + ": " + describe_errno(input_.error()));
    }
    const std::string without_end =
        " without an end: the process was killed, or ended by _exit or exec";
    if (!stopped_because_.empty()) {
        return finish(LogStatus::cut_off, "the event log stopped early (" + stopped_because_ +
                                              "), and the recording" + without_end);
    }
    return finish(LogStatus::cut_off, "the recording stops at " + here() + without_end);
}

bool LogDecoder::was_overwritten() {
    stopped_ = true;
    return finish(LogStatus::damaged,
                  "was overwritten by its process while it was read; read it again");
}

bool LogDecoder::damaged(const std::string& what) {
    stopped_ = true;
    std::uint64_t number = 0;
    if (in_region_ && (!read_region_header(input_, ring_, region_, &number) || number != region_)) {
        return was_overwritten();
    }
    return finish(LogStatus::damaged,
                  "damaged at " + here() + ": " + what + "; everything before it was read");
}

bool LogDecoder::header() {
    const std::size_t size = input_.need(format::file_header_size);
    if (input_.error() != 0) {
        return finish(LogStatus::not_a_log, "cannot be read: " + describe_errno(input_.error()));
    }
    const std::uint8_t* const data = input_.data();
    if (size == 0 || data[0] == 0) {
        return finish(LogStatus::cut_off,
                      "holds no record: the process ended before its first one");
    }
    if (std::memcmp(data, format::magic, std::min(size, sizeof format::magic)) != 0) {
        return finish(LogStatus::not_a_log, "is not a memlab event log");
    }
    if (size < format::file_header_size) {
        return cut_off();
    }
    const auto version = little_endian<std::uint32_t>(data + sizeof format::magic);
    if (version == format::ring_version) {
        return ring_header();
    }
    if (version != format::version) {
        return finish(LogStatus::other_version,
                      "an event log of format version " + std::to_string(version) +
                          ", this memlab reads version " + std::to_string(format::version) +
                          " and " + std::to_string(format::ring_version) +
                          "; use the memlab-report of the memlab that recorded it");
    }
    input_.consume(format::file_header_size);
    return true;
}

bool LogDecoder::ring_header() {
    if (input_.need(format::ring_file_header_size) < format::ring_file_header_size) {
        return cut_off();
    }
    const std::uint8_t* const data = input_.data();
    ring_ = {.regions = little_endian<std::uint32_t>(data + 12),
             .beginning = little_endian<std::uint64_t>(data + 16),
             .region_size = little_endian<std::uint64_t>(data + 24)};
    return ring_.valid() || damaged("the file's header is wrong");
}

bool LogDecoder::block() {
    const std::size_t size = input_.need(format::block_header_size);
    const std::uint8_t* const data = input_.data();
    if (size == 0 || data[0] == 0) {
        return end_of_part();
    }
    const bool checkpoint = data[0] == format::checkpoint_tag && in_region_;
    if (data[0] != format::block_tag && !checkpoint) {
        return damaged("no block begins here");
    }
    if (size < format::block_header_size) {
        return cut_off();
    }
    state_ = CodecState{};
    const BlockHeader header = BlockHeader::parse(data);
    const std::size_t length = header.length;
    if (header.kind == BlockHeader::Kind::bad ||
        (checkpoint && header.kind == BlockHeader::Kind::open)) {
        return damaged("the block's header is wrong");
    }
    if (header.kind == BlockHeader::Kind::open) {
        input_.consume(format::block_header_size);
        in_open_block_ = true;
        return open_block();
    }
    if (input_.need(format::block_header_size + length) < format::block_header_size + length) {
        if (checkpoint) {
            return cut_off();
        }
        input_.consume(format::block_header_size);
        in_open_block_ = true;
        return open_block();
    }
    if (checkpoint) {
        if (passed_ != nullptr && length >= format::checkpoint_prefix_size) {
            passed_->add(input_.data() + format::block_header_size, input_.offset());
        }
        input_.consume(format::block_header_size + length);  // what it says was read before
        return true;
    }
    if (crc32c(0, input_.data() + format::block_header_size, length) != header.crc) {
        return damaged("the block's checksum is wrong");
    }
    input_.consume(format::block_header_size);
    return sealed_block(length);
}

bool LogDecoder::sealed_block(std::size_t length) {
    const std::uint64_t end = input_.offset() + length;
    while (input_.offset() < end) {
        switch (record(static_cast<std::size_t>(end - input_.offset()))) {
            case Step::delivered:
                break;
            case Step::ended:
                return false;
            case Step::no_more:
            case Step::truncated:
            case Step::bad:
                return damaged("the record is wrong, though the checksum is right");
        }
    }
    return true;
}

bool LogDecoder::open_block() {
    std::size_t wanted = std::size_t{64} << 10;
    for (;;) {
        const std::size_t available = input_.need(wanted);
        if (available != 0 &&
            (*input_.data() == format::block_tag || *input_.data() == format::checkpoint_tag)) {
            in_open_block_ = false;  // it could not be sealed; no record has these tags
            return true;
        }
        switch (record(available)) {
            case Step::delivered:
                wanted = std::size_t{64} << 10;
                break;
            case Step::ended:
                return false;
            case Step::no_more:
                return end_of_part();
            case Step::bad:
                return damaged("no such record");
            case Step::truncated:
                if (available < wanted) {
                    return cut_off();
                }
                if (wanted > format::max_record) {
                    return damaged("the record is too long");
                }
                wanted *= 2;
                break;
        }
    }
}

/// Decodes and delivers the record at the input's position, within `size` bytes.
LogDecoder::Step LogDecoder::record(std::size_t size) {
    const std::uint8_t* const begin = input_.data();
    if (size == 0 || *begin == 0) {
        return Step::no_more;
    }
    ByteReader from(begin + 1, begin + size);
    switch (*begin) {
#define MEMLAB_CASE(Record, name, tag) \
    case tag:                          \
        return read_record<Record>(from);
        MEMLAB_RECORD_KINDS(MEMLAB_CASE)
#undef MEMLAB_CASE
        default:
            return read_event(*begin, from);
    }
}

template <typename Record>
LogDecoder::Step LogDecoder::read_record(ByteReader& from) {
    Record record;
    if constexpr (std::is_same_v<Record, Checkpoint> || std::is_same_v<Record, AggregateState>) {
        if (!in_checkpoint_) {
            return Step::bad;
        }
    }
    const Step step = check(RecordDecoder(from, state_.bases).decode(record), record);
    if (step != Step::delivered) {
        return step;
    }
    if constexpr (std::is_same_v<Record, Checkpoint>) {
        definitions_ = Definitions();  // they are repeated
        if (result_.gap) {
            result_.gap->to_ns = record.time_ns;
        }
    } else if constexpr (std::is_same_v<Record, LogStopped>) {
        stop_offset_ = input_.offset();
    }
    if constexpr (requires { record.time_ns; }) {
        latest_ns_ = std::max(latest_ns_, record.time_ns);
    }
    sink_.on(record);
    ++result_.records;
    consume(from);
    return handle(record);
}

template <typename Record>
LogDecoder::Step LogDecoder::handle(const Record& /*record*/) {
    return Step::delivered;
}
LogDecoder::Step LogDecoder::handle(const LogStopped& record) {
    stopped_because_ = record.reason;
    dropped_ = record.events_dropped;
    return Step::delivered;
}
LogDecoder::Step LogDecoder::handle(const End& /*record*/) {
    stopped_ = true;
    result_.status = LogStatus::complete;
    return Step::ended;
}

LogDecoder::Step LogDecoder::read_event(std::uint8_t tag, ByteReader& from) {
    const std::optional<EventTag> known = parse_event_tag(tag);
    if (!known) {
        return Step::bad;
    }
    if (known->is_short) {
        Event event;
        const DecodeStatus status = decode_short(from, *known, state_, event);
        return deliver(check(status, event), event, known->freed, from);
    }
    const Event& event = state_.last[static_cast<std::size_t>(known->type)];
    const DecodeStatus status = decode_fields(from, known->type, state_);
    return deliver(check(status, event), event, known->freed, from);
}

LogDecoder::Step LogDecoder::deliver(Step step, const Event& event, bool freed,
                                     const ByteReader& from) {
    if (step != Step::delivered) {
        return step;
    }
    latest_ns_ = std::max(latest_ns_, event.time_ns);
    if (freed) {
        sink_.on_freed(event);
    } else {
        sink_.on(event);
    }
    result_.records += freed ? 2 : 1;
    consume(from);
    return Step::delivered;
}

void LogDecoder::consume(const ByteReader& from) {
    input_.consume(static_cast<std::size_t>(from.position() - input_.data()));
}

/// `delivered` when the record is valid.
template <typename Record>
LogDecoder::Step LogDecoder::check(DecodeStatus status, const Record& record) {
    if (status != DecodeStatus::ok) {
        return status == DecodeStatus::truncated ? Step::truncated : Step::bad;
    }
    return skims_ || definitions_.accept(record) ? Step::delivered : Step::bad;
}

}  // namespace memlab::trace

#pragma GCC diagnostic pop
