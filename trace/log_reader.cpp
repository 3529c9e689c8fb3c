// A sealed block is verified as a whole before any of its records is delivered; an open block (the
// last one, or one that was truncated) is decoded record by record up to the first zero byte.
//
// A log with a ring is read in parts: its beginning, and the regions. If regions between them were
// overwritten, a checkpoint is delivered for what is missing.
#include "trace/log_reader.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "trace/crc32c.hpp"
#include "trace/definitions.hpp"
#include "trace/log_file.hpp"
#include "trace/log_format.hpp"
#include "trace/log_input.hpp"
#include "trace/record_codec.hpp"
#include "trace/ring_scan.hpp"

// Not in libmemlab.so: its stack frames may be large.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wframe-larger-than="

namespace memlab::trace {
namespace {

class Reader {
  public:
    Reader(LogInput& input, std::string name, RecordSink& sink, LogPart part)
        : input_(input), name_(std::move(name)), sink_(sink), part_(part) {}

    LogReadResult read() {
        if (header()) {
            if (ring_.regions == 0) {
                read_blocks();
            } else {
                read_ring();
            }
        }
        result_.offset = input_.offset();
        return result_;
    }

  private:
    enum class Step : std::uint8_t { delivered, no_more, truncated, bad, ended };

    bool finish(LogStatus status, const std::string& what) {
        result_.status = status;
        result_.message = name_ + ": " + what;
        return false;
    }
    std::string here() const { return "byte " + std::to_string(input_.offset()); }
    void read_blocks() {
        while (block()) {
        }
    }

    void read_ring() {
        result_.has_ring = true;
        const RingContents ring = scan_ring(input_, ring_);
        const bool gap = ring.count != 0 && ring.first != 0;
        result_.lacks_events = gap;
        if (part_ == LogPart::sums && !ring.checkpoints.empty()) {
            for (std::size_t i = ring.checkpoints.size(); i-- > 0;) {
                if (checkpoint_time(input_, ring.checkpoints[i])) {
                    const auto missing = gap ? find_gap(ring) : std::nullopt;
                    read_from(ring, ring.checkpoints[i]);
                    result_.gap = missing;
                    return;
                }
            }
        }
        more_follows_ = ring.count != 0;
        input_.seek(format::ring_file_header_size, ring_.beginning);
        read_blocks();
        if (!more_follows_ || stopped_) {
            return;
        }
        if (!gap) {
            read_regions(ring, {0, format::region_header_size});
            return;
        }
        if (part_ == LogPart::beginning) {
            result_.gap = {.from_ns = latest_ns_, .to_ns = latest_ns_};
            finish(LogStatus::cut_off, "the part after " + here() + " was left out");
            return;
        }
        for (const FoundCheckpoint& checkpoint : ring.checkpoints) {
            if (checkpoint_time(input_, checkpoint)) {
                result_.gap = {.from_ns = latest_ns_, .to_ns = latest_ns_};
                read_from(ring, checkpoint);
                return;
            }
        }
        damaged("the checkpoint that the newest part begins with is missing");
    }

    /// What reading everything would find missing.
    std::optional<LogReadResult::Gap> find_gap(const RingContents& ring) {
        for (const FoundCheckpoint& checkpoint : ring.checkpoints) {
            if (const auto to_ns = checkpoint_time(input_, checkpoint)) {
                return LogReadResult::Gap{.from_ns = end_of_beginning(), .to_ns = *to_ns};
            }
        }
        return std::nullopt;
    }

    /// The time of the beginning's last record; only the last blocks are decoded.
    std::uint64_t end_of_beginning() {
        RecordSink ignored;
        Reader skimmer(input_, name_, ignored, part_);
        skimmer.skims_ = true;
        skimmer.more_follows_ = true;
        input_.seek(last_blocks_of_beginning(input_, ring_), ring_.beginning);
        skimmer.read_blocks();
        return skimmer.latest_ns_;
    }

    /// Delivers the checkpoint and what was recorded after it.
    void read_from(const RingContents& ring, const FoundCheckpoint& checkpoint) {
        for (const std::uint64_t offset : checkpoint.blocks) {
            input_.seek(offset, std::numeric_limits<std::uint64_t>::max());
            input_.need(format::block_header_size);
            const BlockHeader header = BlockHeader::parse(input_.data());
            const std::size_t size = format::block_header_size + std::size_t{header.length};
            if (input_.need(size) < size) {
                damaged("the checkpoint cannot be read");
                return;
            }
            input_.consume(format::block_header_size + format::checkpoint_prefix_size);
            state_ = CodecState{};
            in_checkpoint_ = true;
            if (!sealed_block(header.length - format::checkpoint_prefix_size)) {
                return;
            }
            in_checkpoint_ = false;
        }
        read_regions(ring, checkpoint.position);
    }

    void read_regions(const RingContents& ring, LogPosition from) {
        const std::uint64_t end = ring.first + ring.count;
        for (region_ = from.region; region_ != end && !stopped_; ++region_) {
            const std::uint64_t begin = ring_.offset(region_);
            const bool first = region_ == from.region;
            more_follows_ = region_ + 1 != end;
            in_region_ = true;
            input_.seek(begin + (first ? from.offset : format::region_header_size),
                        begin + ring_.region_size);
            read_blocks();
        }
    }

    /// The end of the data, or of this part of it.
    bool end_of_part() { return more_follows_ ? false : cut_off(); }

    bool cut_off() {
        stopped_ = true;
        if (input_.error() != 0) {
            return finish(LogStatus::damaged, "cannot be read beyond " + here() + ": " +
                                                  describe_errno(input_.error()));
        }
        const std::string without_end =
            " without an end: the process was killed, or ended by _exit or exec";
        if (!stopped_because_.empty()) {
            return finish(LogStatus::cut_off, "the event log stopped early (" + stopped_because_ +
                                                  "), and the recording" + without_end);
        }
        return finish(LogStatus::cut_off, "the recording stops at " + here() + without_end);
    }
    bool damaged(const std::string& what) {
        stopped_ = true;
        std::uint64_t number = 0;
        if (in_region_ &&
            (!read_region_header(input_, ring_, region_, &number) || number != region_)) {
            return finish(LogStatus::damaged,
                          "was overwritten by its process while it was read; read it again");
        }
        return finish(LogStatus::damaged,
                      "damaged at " + here() + ": " + what + "; everything before it was read");
    }

    bool header() {
        const std::size_t size = input_.need(format::file_header_size);
        if (input_.error() != 0) {
            return finish(LogStatus::not_a_log,
                          "cannot be read: " + describe_errno(input_.error()));
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

    bool ring_header() {
        if (input_.need(format::ring_file_header_size) < format::ring_file_header_size) {
            return cut_off();
        }
        const std::uint8_t* const data = input_.data();
        ring_ = {.regions = little_endian<std::uint32_t>(data + 12),
                 .beginning = little_endian<std::uint64_t>(data + 16),
                 .region_size = little_endian<std::uint64_t>(data + 24)};
        return ring_.valid() || damaged("the file's header is wrong");
    }

    bool block() {
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
            return open_block();
        }
        if (input_.need(format::block_header_size + length) < format::block_header_size + length) {
            if (checkpoint) {
                return cut_off();
            }
            input_.consume(format::block_header_size);
            return open_block();
        }
        if (checkpoint) {
            input_.consume(format::block_header_size + length);  // what it says was read before
            return true;
        }
        if (crc32c(0, input_.data() + format::block_header_size, length) != header.crc) {
            return damaged("the block's checksum is wrong");
        }
        input_.consume(format::block_header_size);
        return sealed_block(length);
    }

    bool sealed_block(std::size_t length) {
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

    bool open_block() {
        std::size_t wanted = std::size_t{64} << 10;
        for (;;) {
            const std::size_t available = input_.need(wanted);
            if (available != 0 &&
                (*input_.data() == format::block_tag || *input_.data() == format::checkpoint_tag)) {
                return true;  // a block that could not be sealed; no record has these tags
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
    Step record(std::size_t size) {
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
    Step read_record(ByteReader& from) {
        Record record;
        if constexpr (std::is_same_v<Record, Checkpoint> ||
                      std::is_same_v<Record, AggregateState>) {
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
    Step handle(const Record& /*record*/) {
        return Step::delivered;
    }
    Step handle(const LogStopped& record) {
        stopped_because_ = record.reason;
        return Step::delivered;
    }
    Step handle(const End& /*record*/) {
        stopped_ = true;
        result_.status = LogStatus::complete;
        return Step::ended;
    }

    Step read_event(std::uint8_t tag, ByteReader& from) {
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

    Step deliver(Step step, const Event& event, bool freed, const ByteReader& from) {
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

    void consume(const ByteReader& from) {
        input_.consume(static_cast<std::size_t>(from.position() - input_.data()));
    }

    /// `delivered` when the record is valid.
    template <typename Record>
    Step check(DecodeStatus status, const Record& record) {
        if (status != DecodeStatus::ok) {
            return status == DecodeStatus::truncated ? Step::truncated : Step::bad;
        }
        return skims_ || definitions_.accept(record) ? Step::delivered : Step::bad;
    }

    LogInput& input_;
    std::string name_;
    RecordSink& sink_;
    LogPart part_;
    LogRing ring_;
    bool more_follows_ = false;  ///< behind this part of the log
    bool stopped_ = false;       ///< nothing more is to be read
    bool in_checkpoint_ = false;
    bool in_region_ = false;
    bool skims_ = false;  ///< what records refer to was not read
    std::uint64_t region_ = 0;
    std::uint64_t latest_ns_ = 0;
    Definitions definitions_;
    CodecState state_;
    std::string stopped_because_;
    LogReadResult result_;
};

LogReadResult read_input(LogInput& input, const std::string& name, RecordSink& sink, LogPart part) {
    try {
        return Reader(input, name, sink, part).read();
    } catch (const std::bad_alloc&) {
        LogReadResult result;
        result.status = LogStatus::damaged;
        result.offset = input.offset();
        result.message = name + ": no host memory to read it with";
        return result;
    }
}

}  // namespace

LogReadResult read_log(const std::string& path, RecordSink& sink,
                       std::atomic<std::uint64_t>* bytes_read, LogPart part) {
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        LogReadResult result;
        result.message = path + ": cannot be opened: " + describe_errno(errno);
        return result;
    }
    struct Closer {  // a sink may throw
        int descriptor;
        ~Closer() { close(descriptor); }
    };
    const Closer closer{descriptor};
    LogInput input(descriptor, bytes_read);
    return read_input(input, path, sink, part);
}

LogReadResult read_log(const void* data, std::uint64_t size, RecordSink& sink, LogPart part) {
    LogInput input(static_cast<const std::uint8_t*>(data), static_cast<std::size_t>(size));
    return read_input(input, "event log", sink, part);
}

}  // namespace memlab::trace

#pragma GCC diagnostic pop
