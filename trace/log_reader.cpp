// Blocks in, records out. A sealed block is checked as a whole before any record of it is
// delivered; the open block (the last one, or one whose end was cut off) is decoded record by
// record up to the first zero byte.
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

using format::Tag;

template <typename Integer>
Integer little_endian(const std::uint8_t* from) {
    Integer value = 0;
    for (std::size_t i = 0; i < sizeof(Integer); ++i) {
        value = static_cast<Integer>(value | static_cast<Integer>(from[i]) << (8 * i));
    }
    return value;
}

/// A window on the bytes: of memory as it is, or of a file through a buffer that holds one block.
class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size) : data_(data), available_(size) {}
    Input(int descriptor, std::atomic<std::uint64_t>* bytes_read)
        : descriptor_(descriptor), bytes_read_(bytes_read) {}

    /// Makes `wanted` bytes available, or all that is left. Returns how many are.
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
        // In steps, so that a wild length costs no memory that the file does not have.
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
            return finish(LogStatus::not_a_log,
                          "is an event log of version " + std::to_string(version) +
                              "; this memlab reads version " + std::to_string(format::version));
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
            // Length and checksum may be there already: the seal itself comes last.
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
        RecordDecoder decoder(begin + 1, begin + size);
        const auto tag = static_cast<Tag>(*begin);
        switch (tag) {
            case Tag::process_info:
                return deliver<ProcessInfo>(decoder);
            case Tag::option_value:
                return deliver<OptionValue>(decoder);
            case Tag::device_info_plain: {
                DeviceInfo device;
                return accept(decoder.decode_plain(device), decoder, device);
            }
            case Tag::device_info:
                return deliver<DeviceInfo>(decoder);
            case Tag::context_info:
                return deliver<ContextInfo>(decoder);
            case Tag::context_lost:
                return deliver<ContextLost>(decoder);
            case Tag::thread_info:
                return deliver<ThreadInfo>(decoder);
            case Tag::string_def:
                return deliver<StringDef>(decoder);
            case Tag::module_def:
                return deliver<ModuleDef>(decoder);
            case Tag::python_frame_def:
                return deliver<PythonFrameDef>(decoder);
            case Tag::stack_def: {
                StackDef stack;
                return accept(decoder.decode_native(stack), decoder, stack);
            }
            case Tag::mixed_stack_def: {
                StackDef stack;
                return accept(decoder.decode_mixed(stack), decoder, stack);
            }
            case Tag::oom_event_plain: {
                OomEvent oom;
                return accept(decoder.decode_plain(oom, state_), decoder, oom);
            }
            case Tag::oom_event:
                return deliver<OomEvent>(decoder);
            case Tag::device_sample:
                return deliver<DeviceSample>(decoder);
            case Tag::missed:
                return deliver<Missed>(decoder);
            case Tag::coverage:
                return deliver<Coverage>(decoder);
            case Tag::bypass:
                return deliver<Bypass>(decoder);
            case Tag::work:
                return deliver<Work>(decoder);
            case Tag::log_stopped: {
                LogStopped stopped;
                return accept(decoder.decode(stopped, state_), decoder, stopped,
                              [this](const LogStopped& record) {
                                  sink_.on(record);
                                  stopped_because_ = record.reason;
                              });
            }
            case Tag::end: {
                End end;
                return last(accept(decoder.decode_plain(end, state_), decoder, end));
            }
            case Tag::end_with_code:
                return last(deliver<End>(decoder));
            case Tag::freed: {
                Event event;
                return accept(decoder.decode(EventType::free_requested, event, state_), decoder,
                              event, [this](const Event& freed) {
                                  sink_.on_freed(freed);
                                  ++result_.records;  // two of them
                              });
            }
            default:
                break;
        }
        Event event;
        EventType type{};
        if (is_event(*begin, Tag::event, type)) {
            return accept(decoder.decode(type, event, state_), decoder, event);
        }
        if (is_event(*begin, Tag::event_plain, type)) {
            return accept(decoder.decode_plain(type, event, state_), decoder, event);
        }
        return Step::bad;
    }

    /// What follows from delivering the last record.
    Step last(Step step) {
        if (step != Step::delivered) {
            return step;
        }
        result_.status = LogStatus::complete;
        return Step::ended;
    }

    static bool is_event(std::uint8_t tag, Tag first, EventType& type) {
        const std::size_t index = tag - static_cast<std::size_t>(first);  // below it wraps
        type = static_cast<EventType>(index);
        return index < event_type_count;
    }

    template <typename Record>
    Step deliver(RecordDecoder& decoder) {
        Record record;
        if constexpr (requires { decoder.decode(record, state_); }) {
            return accept(decoder.decode(record, state_), decoder, record);
        } else {
            return accept(decoder.decode(record), decoder, record);
        }
    }

    template <typename Record>
    Step accept(DecodeStatus status, const RecordDecoder& decoder, const Record& record) {
        return accept(status, decoder, record, [this](const Record& one) { sink_.on(one); });
    }

    template <typename Record, typename Give>
    Step accept(DecodeStatus status, const RecordDecoder& decoder, const Record& record,
                const Give& give) {
        if (status != DecodeStatus::ok) {
            return status == DecodeStatus::truncated ? Step::truncated : Step::bad;
        }
        if (!known(record)) {
            return Step::bad;
        }
        const std::size_t size = static_cast<std::size_t>(decoder.position() - input_.data());
        give(record);
        ++result_.records;
        input_.consume(size);
        return Step::delivered;
    }

    /// Defines what the record defines; false when it refers to something undefined.
    template <typename Record>
    bool known(const Record& record) {
        if constexpr (requires { definitions_.define(record); }) {
            return definitions_.define(record);
        } else if constexpr (requires { definitions_.valid(record); }) {
            return definitions_.valid(record);
        } else {
            return true;
        }
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
