#include "trace/log_writer.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <utility>

#include "trace/log_format.hpp"
#include "trace/record_codec.hpp"

namespace memlab::trace {
namespace {

constexpr std::size_t max_reason = 200;

}  // namespace

LogWriter::LogWriter(std::string path) : path_(std::move(path)) {
    // So that the closing records need no heap: a signal handler may write them.
    bytes_.reserve(LogBlocks::closing_reserve);
}

LogWriter::~LogWriter() {
    close();
}

LogWriter::Result LogWriter::create(const std::string& path, std::uint64_t limit,
                                    LogStorage storage, unsigned mode) {
    Result result;
    try {
        std::unique_ptr<LogWriter> writer(new LogWriter(path));
        result.error_number = writer->start(limit, storage, mode);
        if (result.error_number == 0) {
            result.writer = std::move(writer);
        } else {
            result.error = "cannot create the event log '" + path +
                           "': " + describe_errno(result.error_number);
        }
    } catch (const std::bad_alloc&) {
        result.error = "no host memory";  // short enough to need none
        result.error_number = ENOMEM;
    }
    return result;
}

int LogWriter::start(std::uint64_t limit, LogStorage storage, unsigned mode) {
    const int error = blocks_.create(path_.c_str(), limit, storage, mode);
    if (error == 0 && !blocks_.append_file_header()) {
        stop();
    }
    return error;
}

[[gnu::hot]] void LogWriter::on(const Event& record) {
    append_event(make_tag(record.type), record);
}

[[gnu::hot]] void LogWriter::on_freed(const Event& free_requested) {
    append_event(format::freed_tag, free_requested);
}

#define MEMLAB_ON(Record, name, tag)           \
    void LogWriter::on(const Record& record) { \
        append(record);                        \
    }
MEMLAB_RECORD_KINDS(MEMLAB_ON)
#undef MEMLAB_ON

[[gnu::hot]] bool LogWriter::on_short(const ShortEvent& event, bool freed) noexcept {
    return freed ? append_short<true>(event) : append_short<false>(event);
}

template <bool freed>
[[gnu::always_inline]] inline bool LogWriter::append_short(const ShortEvent& event) noexcept {
    constexpr EventType type = freed ? EventType::free_requested : EventType::alloc;
    if (!blocks_.has_latest(type)) [[unlikely]] {
        return false;
    }
    std::uint8_t* const target = blocks_.reserve_in_place(1 + max_short_size);
    if (target == nullptr) [[unlikely]] {
        return false;
    }
    const std::uint8_t* const end = encode_short<!freed>(event, blocks_.state(), target + 1);
    if (end == nullptr) [[unlikely]] {
        return false;
    }
    constexpr std::uint8_t short_tag = freed ? format::short_freed_tag : format::short_alloc_tag;
    blocks_.commit_in_place(event.nn_modules != 0 ? format::short_nn_alloc_tag : short_tag,
                            static_cast<std::size_t>(end - target), type);
    return true;
}

/// The hot path: encodes directly into the mapped file where possible.
[[gnu::always_inline]] inline void LogWriter::append_event(std::uint8_t tag,
                                                           const Event& event) noexcept {
    std::uint8_t* const target =
        blocks_.takes_in_place() ? blocks_.reserve_in_place(max_event_size) : nullptr;
    if (target != nullptr) [[likely]] {
        const std::uint8_t* const end = encode_fields(event, blocks_.state(), target + 1);
        blocks_.commit_in_place(tag, static_cast<std::size_t>(end - target), event.type);
    } else if (!append_event_copied(tag, event) && !ended_) {
        count_dropped(tag == format::freed_tag ? 2 : 1);
    }
}

[[gnu::noinline]] bool LogWriter::append_event_copied(std::uint8_t tag,
                                                      const Event& event) noexcept {
    if (!blocks_.takes_records()) {
        return false;
    }
    std::uint8_t bytes[format::block_header_size + max_event_size];
    std::uint8_t* const begin = bytes + format::block_header_size;
    begin[0] = tag;
    try {
        if (!blocks_.has_room(max_event_size) && !blocks_.next_region()) {
            return stop();
        }
        const std::uint8_t* const end = encode_fields(event, blocks_.state(), begin + 1);
        return blocks_.append(begin, static_cast<std::size_t>(end - begin),
                              tag == format::freed_tag ? 2 : 1) ||
               stop();
    } catch (const std::bad_alloc&) {  // of the message why the log is full
        blocks_.end_block();
        return false;
    }
}

template <typename Record>
void LogWriter::append(const Record& record) noexcept {
    if (!blocks_.takes_records()) {
        return;
    }
    try {
        encode(record);
        if (!blocks_.has_room(record_size())) {
            if (!blocks_.next_region()) {
                stop();
                return;
            }
            encode(record);
        }
        if (record_size() > format::max_record) {
            blocks_.end_block();  // it was encoded
        } else if (!blocks_.append(record_begin(), record_size(), 0)) {
            stop();
        }
    } catch (const std::bad_alloc&) {
        blocks_.end_block();
    }
}

void LogWriter::append(const End& record) noexcept {
    if (ended_) {
        return;
    }
    ended_ = true;
    blocks_.end_records();
    if (blocks_.file().size() == 0) {
        return;  // the limit is too small for the file's header
    }
    try {
        if (!append_end(record)) {
            // A thread may have failed to write the records before this one.
            stop();
            append_end(record);
        }
    } catch (const std::bad_alloc&) {
        // Without End the log reads as cut off.
    }
}

bool LogWriter::append_end(const End& record) {
    End copy = record;
    copy.events_dropped = std::max(copy.events_dropped, dropped_);
    if (copy.log_stopped_because.empty() && count_at_ == 0) {  // no LogStopped says it
        copy.log_stopped_because = stopped_because_;
    }
    if (copy.log_stopped_because.size() > max_reason) {
        copy.log_stopped_because.resize(max_reason);
    }
    encode(copy);
    return blocks_.append(record_begin(), record_size(), 0, 0);
}

/// Into bytes_, after space for a block's header.
template <typename Record>
void LogWriter::encode(const Record& record) {
    bytes_.assign(format::block_header_size, 0);
    RecordEncoder(bytes_, blocks_.state().bases).encode(record);
}

std::unique_ptr<CheckpointBlocks> LogWriter::begin_checkpoint() {
    const LogPosition position = blocks_.begin_checkpoint();
    return std::make_unique<CheckpointBlocks>(++checkpoint_number_, position);
}

LogWriter::CheckpointStep LogWriter::append_checkpoint(const CheckpointBlocks& checkpoint,
                                                       std::size_t next) {
    if (!blocks_.takes_records() || !blocks_.takes(checkpoint)) {
        return CheckpointStep::complete;
    }
    const std::vector<std::uint8_t>& block = checkpoint.blocks()[next];
    if (!blocks_.has_room_for_block(block.size())) {
        return CheckpointStep::later;
    }
    try {
        if (!blocks_.append_block(block.data(), block.size())) {
            stop();
            return CheckpointStep::complete;
        }
    } catch (const std::bad_alloc&) {  // of the message why the log is full
        return CheckpointStep::complete;
    }
    if (next + 1 < checkpoint.blocks().size()) {
        return CheckpointStep::more;
    }
    blocks_.complete(checkpoint);
    return CheckpointStep::complete;
}

/// Permanent. LogStopped gets a block of its own, which stays open. Returns false: not appended.
bool LogWriter::stop() {
    if (stopped_because_.empty()) {
        stopped_because_ = blocks_.why_full();
    }
    dropped_ += blocks_.file().lost_events() - std::exchange(lost_, blocks_.file().lost_events());
    blocks_.seal_for_end();
    append_stop(blocks_.latest_ns());
    return false;
}

void LogWriter::stop_as(const LogStopped& original) {
    if (!blocks_.takes_records()) {
        return;
    }
    stopped_because_ = original.reason;
    dropped_ = original.events_dropped;
    blocks_.seal_for_end();
    append_stop(original.time_ns);
}

void LogWriter::append_stop(std::uint64_t time_ns) {
    count_at_ = 0;
    if (blocks_.file().size() == 0) {
        return;  // not even the file's header fits
    }
    const LogStopped stopped{.time_ns = time_ns,
                             .reason = stopped_because_.substr(0, max_reason),
                             .events_dropped = dropped_};
    encode(stopped);
    if (blocks_.append(record_begin(), record_size(), 0, LogBlocks::end_reserve)) {
        count_at_ = blocks_.file().size() - sizeof dropped_;
    }
}

void LogWriter::count_dropped(unsigned events) {
    const std::uint64_t before = dropped_;
    dropped_ += events;
    if (count_at_ != 0 &&
        (blocks_.file().is_mapped() || std::bit_width(before) != std::bit_width(dropped_))) {
        std::uint8_t count[sizeof dropped_];
        put_little_endian(count, dropped_);
        blocks_.file().patch(count_at_, count, sizeof count, sizeof count);
    }
}

}  // namespace memlab::trace
