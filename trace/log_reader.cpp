// A sealed block is verified as a whole before any of its records is delivered; an open block (the
// last one, or one that was truncated) is decoded record by record up to the first zero byte.
#include "trace/log_reader.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "trace/crc32c.hpp"
#include "trace/definitions.hpp"
#include "trace/log_file.hpp"
#include "trace/log_format.hpp"
#include "trace/record_codec.hpp"

namespace memlab::trace {
namespace {

/// A sliding window over the input: memory directly, or a file through a buffer.
class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size) : data_(data), available_(size) {}
    Input(int descriptor, std::atomic<std::uint64_t>* bytes_read)
        : descriptor_(descriptor), bytes_read_(bytes_read) {}

    /// Makes `wanted` bytes available, or all that is left. Returns the number available.
    std::size_t need(std::size_t wanted) {
        while (descriptor_ >= 0 && available_ < wanted && !at_end_) {
            fill(wanted);
        }
        return available_;
    }
    const std::uint8_t* data() const { return data_; }
    void consume(std::size_t size) {
        data_ += size;
        available_ -= size;
        offset_ += size;
    }
    std::uint64_t offset() const { return offset_; }
    int error() const { return error_; }

  private:
    void fill(std::size_t wanted) {
        constexpr std::size_t step = std::size_t{64} << 10;
        if (available_ != 0) {
            std::memmove(buffer_.data(), data_, available_);
        }
        // In steps, so that a corrupt length allocates no more than the file has.
        const std::size_t goal = std::min(wanted, available_ + step);
        if (buffer_.size() < goal) {
            buffer_.resize(std::max(goal, std::min(buffer_.size() * 2, wanted)));
        }
        data_ = buffer_.data();
        const ssize_t got =
            read(descriptor_, buffer_.data() + available_, buffer_.size() - available_);
        if (got > 0) {
            available_ += static_cast<std::size_t>(got);
            if (bytes_read_ != nullptr) {
                bytes_read_->fetch_add(static_cast<std::uint64_t>(got), std::memory_order_relaxed);
            }
        } else if (got == 0 || errno != EINTR) {
            error_ = got == 0 ? 0 : errno;
            at_end_ = true;
        }
    }

    const std::uint8_t* data_ = nullptr;
    std::size_t available_ = 0;
    std::uint64_t offset_ = 0;
    int descriptor_ = -1;
    std::atomic<std::uint64_t>* bytes_read_ = nullptr;
    bool at_end_ = false;
    int error_ = 0;
    std::vector<std::uint8_t> buffer_;
};

class Reader {
  public:
    Reader(Input& input, std::string name, RecordSink& sink)
        : input_(input), name_(std::move(name)), sink_(sink) {}

    LogReadResult read() {
        if (header()) {
            while (block()) {
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
    bool cut_off() {
        if (input_.error() != 0) {
            return finish(LogStatus::damaged, "cannot be read beyond " + here() + ": " +
                                                  describe_errno(input_.error()));
        }
        const std::string without_end =
            " without an end: the process was killed, or left by _exit or exec";
        if (!stopped_because_.empty()) {
            return finish(LogStatus::cut_off, "the event log stopped early (" + stopped_because_ +
                                                  "), and the recording" + without_end);
        }
        return finish(LogStatus::cut_off, "the recording stops at " + here() + without_end);
    }
    bool damaged(const std::string& what) {
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
        if (version != format::version) {
            return finish(LogStatus::other_version,
                          "an event log of format version " + std::to_string(version) +
                              ", this memlab reads version " + std::to_string(format::version) +
                              "; use the memlab-report of the memlab that recorded it");
        }
        input_.consume(format::file_header_size);
        return true;
    }

    bool block() {
        const std::size_t size = input_.need(format::block_header_size);
        const std::uint8_t* const data = input_.data();
        if (size == 0 || data[0] == 0) {
            return cut_off();
        }
        if (data[0] != format::block_tag) {
            return damaged("no block begins here");
        }
        if (size < format::block_header_size) {
            return cut_off();
        }
        state_ = CodecState{};
        const std::uint8_t sealed = data[format::block_sealed_offset];
        const std::uint8_t* const length_at = data + format::block_length_offset;
        if (sealed == 0) {
            // Length and checksum may be present already: the seal is written last.
            input_.consume(format::block_header_size);
            return open_block();
        }
        const auto length = little_endian<std::uint32_t>(length_at);
        const auto crc = little_endian<std::uint32_t>(length_at + 4);
        const auto check = little_endian<std::uint16_t>(length_at + 8);
        if (sealed != format::block_sealed ||
            check != static_cast<std::uint16_t>(crc32c(0, length_at, 8)) ||
            length > format::max_block) {
            return damaged("the block's header is wrong");
        }
        if (input_.need(format::block_header_size + length) <
            format::block_header_size + std::size_t{length}) {
            input_.consume(format::block_header_size);
            return open_block();
        }
        if (crc32c(0, input_.data() + format::block_header_size, length) != crc) {
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
            if (available != 0 && *input_.data() == format::block_tag) {
                return true;  // a block that could not be sealed; no record has this tag
            }
            switch (record(available)) {
                case Step::delivered:
                    wanted = std::size_t{64} << 10;
                    break;
                case Step::ended:
                    return false;
                case Step::no_more:
                    return cut_off();
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
        const Step step = check(RecordDecoder(from, state_.bases).decode(record), record);
        if (step != Step::delivered) {
            return step;
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
        result_.status = LogStatus::complete;
        return Step::ended;
    }

    Step read_event(std::uint8_t tag, ByteReader& from) {
        const bool freed = tag == format::freed_tag;
        const auto type =
            freed ? EventType::free_requested : static_cast<EventType>(tag - format::event_tag);
        if (!freed && (tag < format::event_tag || tag >= format::event_tag + event_type_count)) {
            return Step::bad;
        }
        Event event;
        const Step step = check(decode_fields(from, type, event, state_), event);
        if (step != Step::delivered) {
            return step;
        }
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
        return definitions_.accept(record) ? Step::delivered : Step::bad;
    }

    Input& input_;
    std::string name_;
    RecordSink& sink_;
    Definitions definitions_;
    CodecState state_;
    std::string stopped_because_;
    LogReadResult result_;
};

LogReadResult read_input(Input& input, const std::string& name, RecordSink& sink) {
    try {
        return Reader(input, name, sink).read();
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
                       std::atomic<std::uint64_t>* bytes_read) {
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
    Input input(descriptor, bytes_read);
    return read_input(input, path, sink);
}

LogReadResult read_log(const void* data, std::uint64_t size, RecordSink& sink) {
    Input input(static_cast<const std::uint8_t*>(data), static_cast<std::size_t>(size));
    return read_input(input, "event log", sink);
}

}  // namespace memlab::trace
