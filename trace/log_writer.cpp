#include "trace/log_writer.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "trace/block_header.hpp"
#include "trace/definitions.hpp"
#include "trace/log_format.hpp"
#include "trace/prefetch.hpp"
#include "trace/record_codec.hpp"

namespace memlab::trace {
namespace {

/// Space always kept free for LogStopped, written when the log stops, and for End after it.
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
        std::uint8_t header[format::ring_file_header_size] = {};
        if (file_.can_move()) {
            ring_ = LogRing::plan(limit);
        }
        if (ring_.regions != 0) {
            file_.set_first_extent(ring_.beginning);
        }
        limit_ = limit;
        const std::size_t header_size = ring_.put_file_header(header);
        if (!file_.append(header, header_size, closing_reserve, 0)) {
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
            if (!has_room(record_size())) {
                if (!next_region()) {
                    drop<Record>();
                    return;
                }
                encode(record);  // anew: nothing before it is in its block
            }
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

    template <bool freed>
    [[gnu::always_inline]] bool on_short(const ShortEvent& event) noexcept {
        constexpr EventType type = freed ? EventType::free_requested : EventType::alloc;
        if ((types_in_block_ & type_bit(type)) == 0 || !definitions_.valid_stack(event.stack))
            [[unlikely]] {
            return false;
        }
        std::uint8_t* const target = file_.reserve_in_place(1 + max_short_size + closing_reserve);
        if (target == nullptr) [[unlikely]] {
            return false;
        }
        const std::uint8_t* const end = encode_short<!freed>(event, state_, target + 1);
        if (end == nullptr) [[unlikely]] {
            return false;
        }
        file_.commit_in_place(freed ? format::short_freed_tag : format::short_alloc_tag,
                              static_cast<std::size_t>(end - target));
        end_full_block();
        return true;
    }

    [[gnu::always_inline]] void prefetch_short() const noexcept {
        prefetch_to_write<1>(&types_in_block_);
        file_.prefetch_append();
    }

    [[gnu::hot]] void prefetch(EventType type) const noexcept {
        prefetch_to_write<event_fields>(&ended_);
        prefetch_to_write<sizeof state_.address + sizeof state_.bases>(&state_.address);
        prefetch_to_write<sizeof(Event)>(&state_.last[static_cast<std::size_t>(type)]);
        file_.prefetch_append();
    }

    void end(const End& record) noexcept {
        if (ended_) {
            return;
        }
        ended_ = true;
        types_in_block_ = 0;
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

    std::unique_ptr<CheckpointBlocks> begin_checkpoint() {
        wants_checkpoint_ = false;
        end_block();
        const std::uint64_t region = next_region_ - 1;
        const LogPosition position{region, file_.size() - ring_.offset(region)};
        return std::make_unique<CheckpointBlocks>(++checkpoint_number_, position);
    }

    CheckpointStep append_checkpoint(const CheckpointBlocks& checkpoint, std::size_t next) {
        if (ended_ || !stopped_because_.empty()) {
            return CheckpointStep::complete;
        }
        const std::uint64_t size = checkpoint.size();
        if (size > ring_.max_checkpoint()) {
            checkpoint_too_large_ = size;
            return CheckpointStep::complete;
        }
        const std::vector<std::uint8_t>& block = checkpoint.blocks()[next];
        if (!file_.has_room_for(block.size())) {
            return CheckpointStep::later;
        }
        end_block();
        try {
            if ((!has_room(block.size()) && !next_region()) ||
                !put(block.data(), block.size(), closing_reserve, file_.size(), 0)) {
                return CheckpointStep::complete;
            }
        } catch (const std::bad_alloc&) {  // of the message why the log is full
            return CheckpointStep::complete;
        }
        if (next + 1 < checkpoint.blocks().size()) {
            return CheckpointStep::more;
        }
        covered_regions_ = checkpoint.position().region;
        checkpoint_size_ = size;
        return CheckpointStep::complete;
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
                types_in_block_ = 0;  // the last event is not what the caller passed
                return;
            }
        } catch (const std::bad_alloc&) {  // for the copy
        }
        drop<Record>();
    }
    void write(const LogStopped& /*record*/) {}  // the writer makes its own
    void write(const Checkpoint& /*record*/) {}
    void write(const AggregateState& /*record*/) {}
    void write(const End& record) noexcept { end(record); }

    LogFile file_;
    std::string stopped_because_;
    std::uint64_t dropped_ = 0;
    std::string path_;
    bool wants_checkpoint_ = false;
    void (*checkpoint_wanted_)(void*) = nullptr;
    void* checkpoint_context_ = nullptr;

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
        types_in_block_ |= type_bit(event.type);
        end_full_block();
        return true;
    }
    [[gnu::noinline]] bool append_event_copied(std::uint8_t tag, const Event& event) noexcept {
        std::uint8_t bytes[format::block_header_size + max_event_size];
        std::uint8_t* const begin = bytes + format::block_header_size;
        begin[0] = tag;
        try {
            if (!has_room(max_event_size) && !next_region()) {
                return false;
            }
            const std::uint8_t* const end = encode_fields(event, state_, begin + 1);
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

    /// Whether a record of that size fits into the region or the beginning.
    bool has_room(std::size_t size) const {
        return ring_.regions == 0 ||
               file_.size() + format::block_header_size + size + closing_reserve <=
                   file_.extent().end;
    }

    /// Continues in the next region. Where that is not possible the log stops, where it is.
    [[gnu::noinline]] bool next_region() {
        end_block();
        // Everything since the latest complete checkpoint is kept, and everything before the first.
        if (next_region_ >= covered_regions_ + ring_.regions) {
            stop_in_ring();
            return false;
        }
        const LogFile::Extent here = file_.extent();
        const std::uint64_t offset = ring_.offset(next_region_);
        file_.move_to({offset, offset, offset + ring_.region_size});
        std::uint8_t header[format::region_header_size];
        put_region_header(header, next_region_);
        if (!file_.append(header, sizeof header, closing_reserve, offset)) {
            if (file_.size() == offset) {  // not where a failed write was cut back to
                file_.move_to(here);
            }
            stop();
            return false;
        }
        const std::uint64_t region = next_region_++;
        // Checkpoints take a fifth of the space at most, if they may.
        const std::uint64_t since = region - covered_regions_;
        if (region != 0 &&
            (since * ring_.region_size >= 4 * checkpoint_size_ || since >= ring_.regions / 2)) {
            wants_checkpoint_ = true;
            if (checkpoint_wanted_ != nullptr) {
                checkpoint_wanted_(checkpoint_context_);
            }
        }
        return true;
    }

    void stop_in_ring() {
        const std::string large = std::to_string(checkpoint_too_large_);
        stop("the event log reached its limit of " + std::to_string(limit_) +
             " bytes (MEMLAB_LOG_LIMIT)" +
             (large == "0" ? " before a checkpoint was complete"
                           : ", too little to go on with checkpoints of " + large + " bytes"));
    }

    std::uint64_t payload_start() const { return block_start_ + format::block_header_size; }

    void end_full_block() {
        if (file_.size() - payload_start() >= format::block_target) [[unlikely]] {
            end_block();
        }
    }

    /// Seals the open block, if any, and resets the codec's state; also after a record that was
    /// encoded but not appended, which the reader does not have as a base.
    void end_block() {
        latest_ns_ = std::max(latest_ns_, state_.bases.time_ns);
        state_ = CodecState{};
        types_in_block_ = 0;
        if (block_open_) {
            seal();
        }
    }

    /// The checksum is computed here: between two records the program evicts the caches. A payload
    /// that cannot be read back stays unsealed, which is readable.
    void seal() {
        block_open_ = false;
        if (last_block_ || file_.size() < payload_start()) {
            return;  // LogStopped is still patched; or the block was lost
        }
        const auto size = static_cast<std::uint32_t>(file_.size() - payload_start());
        if (const auto sum = file_.checksum(payload_start(), size)) {
            std::uint8_t header[format::block_header_size];
            put_block_header(header, format::block_tag, size, *sum);
            constexpr std::size_t from = format::block_sealed_offset;
            file_.patch(block_start_ + from, header + from, sizeof header - from, 0);
        }
    }

    /// Permanent. LogStopped gets a block of its own, which stays open.
    void stop() {
        stop(file_.why_full().empty() ? "the event log could not be written" : file_.why_full());
    }
    void stop(const std::string& reason) {
        if (!stopped_because_.empty()) {
            return;
        }
        stopped_because_ = reason;
        dropped_ += file_.lost_events();
        end_block();
        last_block_ = true;
        const LogStopped stopped{.time_ns = latest_ns_,
                                 .reason = stopped_because_.substr(0, max_reason),
                                 .events_dropped = dropped_};
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

    static constexpr std::uint16_t type_bit(EventType type) {
        static_assert(event_type_count == 16);
        return static_cast<std::uint16_t>(1U << static_cast<unsigned>(type));
    }

    // The fields that appending an event uses are adjacent, to be prefetched together.
    static constexpr std::size_t event_fields = 64;
    std::uint64_t count_at_ = 0;   ///< file offset of LogStopped's count
    std::uint64_t latest_ns_ = 0;  ///< of the records in the blocks before
    // From their last members on a short event needs one cache line.
    alignas(64) Definitions definitions_;
    bool ended_ = false;
    bool block_open_ = false;
    bool last_block_ = false;           ///< the log has stopped
    std::uint16_t types_in_block_ = 0;  ///< whose last event is in state_ as it was passed
    std::uint64_t block_start_ = 0;
    CodecState state_;
    std::vector<std::uint8_t> bytes_;
    LogRing ring_;
    std::uint64_t limit_ = 0;
    std::uint64_t next_region_ = 0;      ///< number of regions begun
    std::uint64_t covered_regions_ = 0;  ///< the latest complete checkpoint is of what was before
    std::uint64_t checkpoint_size_ = 0;  ///< of that one
    std::uint64_t checkpoint_too_large_ = 0;
    std::uint32_t checkpoint_number_ = 0;
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

[[gnu::hot]] bool LogWriter::on_short(const ShortEvent& event, bool freed) noexcept {
    return freed ? impl_->on_short<true>(event) : impl_->on_short<false>(event);
}

[[gnu::hot]] void LogWriter::prefetch(EventType type) const noexcept {
    impl_->prefetch(type);
}
[[gnu::hot]] void LogWriter::prefetch_short() const noexcept {
    impl_->prefetch_short();
}

void LogWriter::close() {
    impl_->close();
}
void LogWriter::abandon_after_fork() {
    impl_->abandon();
}

void LogWriter::on_checkpoint_wanted(void (*wanted)(void*), void* context) {
    impl_->checkpoint_wanted_ = wanted;
    impl_->checkpoint_context_ = context;
}
bool LogWriter::wants_checkpoint() const {
    return impl_->wants_checkpoint_;
}
std::unique_ptr<CheckpointBlocks> LogWriter::begin_checkpoint() {
    return impl_->begin_checkpoint();
}
LogWriter::CheckpointStep LogWriter::append_checkpoint(const CheckpointBlocks& checkpoint,
                                                       std::size_t next) {
    return impl_->append_checkpoint(checkpoint, next);
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
