#include "trace/log_writer.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "trace/crc32c.hpp"
#include "trace/definitions.hpp"
#include "trace/log_format.hpp"
#include "trace/prefetch.hpp"
#include "trace/record_codec.hpp"

namespace memlab::trace {
namespace {

/// Space always kept free for LogStopped, written when the log stops since the process may be
/// killed later, and for the End record after it.
constexpr std::size_t end_reserve = 320;
constexpr std::size_t closing_reserve = 2 * end_reserve;
constexpr std::size_t max_reason = 200;

}  // namespace

class LogWriter::Impl {
  public:
    bool start(const std::string& path, std::uint64_t limit, LogStorage storage, unsigned mode,
               Result& result) {
        path_ = path;
        // So that the closing records need no heap: a signal handler may write them.
        bytes_.reserve(closing_reserve);
        const int error = file_.create(path.c_str(), limit, storage, mode);
        if (error != 0) {
            result.error = "cannot create the event log '" + path + "': " + describe_errno(error);
            result.error_number = error;
            return false;
        }
        std::uint8_t header[format::file_header_size] = {};
        std::memcpy(header, format::magic, sizeof format::magic);
        put_little_endian(header + sizeof format::magic, format::version);
        if (!file_.append(header, sizeof header, closing_reserve, 0)) {
            stop();
        }
        return true;
    }

    [[gnu::hot]] void append(const Event& event) noexcept {
        if (ended_) {
            return;
        }
        try {
            if (!stopped_because_.empty() || !append_event(make_tag(event.type), event)) {
                drop<Event>();
            }
        } catch (const std::bad_alloc&) {
            end_block();
            drop<Event>();
        }
    }

    template <typename Record>
    void append(const Record& record) noexcept {
        if (ended_) {
            return;
        }
        try {
            if (!stopped_because_.empty()) {
                drop<Record>();
                return;
            }
            encode(record);
            if (record_size() > format::max_record ||
                !append_bytes(record_begin(), record_size(), closing_reserve, 0)) {
                drop<Record>();
            }
        } catch (const std::bad_alloc&) {
            end_block();
            drop<Record>();
        }
    }

    [[gnu::hot]] void on_freed(const Event& free_requested) noexcept {
        if (ended_ || !stopped_because_.empty() || !definitions_.valid(free_requested)) {
            write(free_requested);
            write(completed_at_once(free_requested));
            return;
        }
        if (!append_event(format::freed_tag, free_requested)) {
            count_dropped(2);
        }
    }

    [[gnu::hot]] void prefetch(EventType type) const noexcept {
        prefetch_to_write<event_fields>(&ended_);
        prefetch_to_write<sizeof state_.bases + sizeof state_.address>(&state_.bases);
        prefetch_to_write<sizeof(Event)>(&state_.last[static_cast<std::size_t>(type)]);
        file_.prefetch_append();
    }

    void end(const End& record) noexcept {
        if (ended_) {
            return;
        }
        ended_ = true;
        if (file_.size() == 0) {
            return;  // the limit is too small for the file's header
        }
        try {
            End copy = record;
            copy.events_dropped = std::max(copy.events_dropped, dropped_);
            if (copy.log_stopped_because.size() > max_reason) {
                copy.log_stopped_because.resize(max_reason);
            }
            encode(copy);
            append_bytes(record_begin(), record_size(), 0, 0);
        } catch (const std::bad_alloc&) {
            // Without End the log reads as cut off.
        }
    }

    void close() {
        end_block();
        file_.close();
    }

    void abandon() {
        file_.abandon();
        block_open_ = false;
    }

    template <typename Record>
    void drop() {
        if (std::is_same_v<Record, Event>) {
            count_dropped(1);
        }
    }

    template <typename Record>
    [[gnu::hot]] void write(const Record& record) noexcept {
        if (definitions_.accept(record)) {
            append(record);
            return;
        }
        try {
            Record copy = record;
            if (definitions_.repair(copy) && definitions_.accept(copy)) {
                append(copy);
                return;
            }
        } catch (const std::bad_alloc&) {  // for the copy
        }
        drop<Record>();
    }
    void write(const LogStopped& /*record*/) {}
    void write(const End& record) noexcept { end(record); }

    LogFile file_;
    std::string stopped_because_;
    std::uint64_t dropped_ = 0;
    std::string path_;

  private:
    /// Into bytes_, after space for a block's header.
    template <typename Record>
    void encode(const Record& record) {
        bytes_.assign(format::block_header_size, 0);
        RecordEncoder(bytes_, state_.bases).encode(record);
    }
    std::uint8_t* record_begin() { return bytes_.data() + format::block_header_size; }
    std::size_t record_size() const { return bytes_.size() - format::block_header_size; }

    /// The hot path: encodes directly into the mapped file where possible.
    bool append_event(std::uint8_t tag, const Event& event) noexcept {
        std::uint8_t* const target =
            block_open_ ? file_.reserve_in_place(max_event_size + closing_reserve) : nullptr;
        if (target == nullptr) [[unlikely]] {
            return append_event_copied(tag, event);
        }
        const std::uint8_t* const end = encode_fields(event, state_, target + 1);
        file_.commit_in_place(tag, static_cast<std::size_t>(end - target));
        end_full_block();
        return true;
    }
    [[gnu::noinline]] bool append_event_copied(std::uint8_t tag, const Event& event) noexcept {
        std::uint8_t bytes[format::block_header_size + max_event_size];
        std::uint8_t* const begin = bytes + format::block_header_size;
        begin[0] = tag;
        const std::uint8_t* const end = encode_fields(event, state_, begin + 1);
        try {
            return append_bytes(begin, static_cast<std::size_t>(end - begin), closing_reserve,
                                tag == format::freed_tag ? 2 : 1);
        } catch (const std::bad_alloc&) {  // of the message why the log is full
            end_block();
            return false;
        }
    }

    /// Appends a record to the open block, opening and sealing blocks as needed. Before `record`
    /// there must be space for a block's header: header and first record are one atomic append.
    bool append_bytes(std::uint8_t* record, std::size_t size, std::size_t spare, unsigned events) {
        if (block_open_) {
            if (!put(record, size, spare, block_start_, events)) {
                return false;
            }
        } else {
            std::uint8_t* const header = record - format::block_header_size;
            std::memset(header, 0, format::block_header_size);
            header[0] = format::block_tag;
            const std::uint64_t block_start = file_.size();
            if (!put(header, format::block_header_size + size, spare, block_start, events)) {
                return false;
            }
            block_open_ = true;
            block_start_ = block_start;
        }
        end_full_block();
        return true;
    }

    bool put(const std::uint8_t* data, std::size_t size, std::size_t spare, std::uint64_t keep_from,
             unsigned events) {
        if (file_.append(data, size, spare, keep_from, events)) {
            return true;
        }
        stop();
        return false;
    }

    std::uint64_t payload_start() const { return block_start_ + format::block_header_size; }

    void end_full_block() {
        if (file_.size() - payload_start() >= format::block_target) [[unlikely]] {
            end_block();
        }
    }

    /// Seals the open block, if any, and resets the codec's state. That is also needed after a
    /// record that was encoded but not appended: the reader does not have it as a base.
    void end_block() {
        state_ = CodecState{};
        if (block_open_) {
            seal();
        }
    }

    /// The checksum is computed here, not record by record: between two records the program evicts
    /// the caches. A payload that cannot be read back stays unsealed, which is readable.
    void seal() {
        block_open_ = false;
        if (last_block_ || file_.size() < payload_start()) {
            return;  // LogStopped is still patched; or the block was lost
        }
        const auto size = static_cast<std::uint32_t>(file_.size() - payload_start());
        const std::optional<std::uint32_t> sum = file_.checksum(payload_start(), size);
        if (!sum) {
            return;
        }
        std::uint8_t header[format::block_header_size] = {format::block_tag, format::block_sealed};
        std::uint8_t* const length = header + format::block_length_offset;
        put_little_endian(length, size);
        put_little_endian(length + 4, *sum);
        put_little_endian(length + 8, static_cast<std::uint16_t>(crc32c(0, length, 8)));
        file_.patch(block_start_ + format::block_sealed_offset,
                    header + format::block_sealed_offset,
                    sizeof header - format::block_sealed_offset, 0);
    }

    /// Permanent. LogStopped gets a block of its own, which stays open.
    void stop() {
        if (!stopped_because_.empty()) {
            return;
        }
        stopped_because_ =
            file_.why_full().empty() ? "the event log could not be written" : file_.why_full();
        dropped_ += file_.lost_events();
        LogStopped stopped;
        stopped.time_ns = state_.bases.time_ns;
        stopped.reason = stopped_because_.substr(0, max_reason);
        stopped.events_dropped = dropped_;
        end_block();
        last_block_ = true;
        if (file_.size() == 0) {
            return;  // not even the file's header fits
        }
        encode(stopped);
        if (append_bytes(record_begin(), record_size(), end_reserve, 0)) {
            count_at_ = file_.size() - sizeof dropped_;
        }
    }

    void count_dropped(unsigned events) {
        const std::uint64_t before = dropped_;
        dropped_ += events;
        if (count_at_ != 0 &&
            (file_.is_mapped() || std::bit_width(before) != std::bit_width(dropped_))) {
            std::uint8_t count[sizeof dropped_];
            put_little_endian(count, dropped_);
            file_.patch(count_at_, count, sizeof count, 0);
        }
    }

    // The fields that appending an event uses are adjacent, to be prefetched together.
    static constexpr std::size_t event_fields = 128;
    bool ended_ = false;
    bool block_open_ = false;
    bool last_block_ = false;  ///< the log has stopped
    std::uint64_t block_start_ = 0;
    std::uint64_t count_at_ = 0;  ///< file offset of LogStopped's count
    Definitions definitions_;
    CodecState state_;
    std::vector<std::uint8_t> bytes_;
};

LogWriter::LogWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

LogWriter::~LogWriter() {
    close();
}

LogWriter::Result LogWriter::create(const std::string& path, std::uint64_t limit,
                                    LogStorage storage, unsigned mode) {
    Result result;
    try {
        auto impl = std::make_unique<Impl>();
        if (impl->start(path, limit, storage, mode, result)) {
            result.writer.reset(new LogWriter(std::move(impl)));
        }
    } catch (const std::bad_alloc&) {
        result.error = "no host memory";  // short enough to need none
        result.error_number = ENOMEM;
    }
    return result;
}

[[gnu::hot]] void LogWriter::on(const Event& record) {
    impl_->write(record);
}
[[gnu::hot]] void LogWriter::on_freed(const Event& free_requested) {
    impl_->on_freed(free_requested);
}
#define MEMLAB_ON(Record, name, tag)           \
    void LogWriter::on(const Record& record) { \
        impl_->write(record);                  \
    }
MEMLAB_RECORD_KINDS(MEMLAB_ON)
#undef MEMLAB_ON

[[gnu::hot]] void LogWriter::prefetch(EventType type) const noexcept {
    impl_->prefetch(type);
}

void LogWriter::close() {
    impl_->close();
}
void LogWriter::abandon_after_fork() {
    impl_->abandon();
}

const std::string& LogWriter::path() const {
    return impl_->path_;
}
std::uint64_t LogWriter::bytes_written() const {
    return impl_->file_.size();
}
std::uint64_t LogWriter::events_dropped() const {
    return impl_->dropped_;
}
const std::string& LogWriter::stopped_because() const {
    return impl_->stopped_because_;
}
std::string LogWriter::incomplete_because() const {
    return impl_->file_.why_incomplete();
}

}  // namespace memlab::trace
