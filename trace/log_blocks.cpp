#include "trace/log_blocks.hpp"

#include <algorithm>
#include <cstring>

#include "trace/block_header.hpp"

namespace memlab::trace {

int LogBlocks::create(const char* path, std::uint64_t limit, LogStorage storage, unsigned mode) {
    const int error = file_.create(path, limit, storage, mode);
    if (error == 0) {
        limit_ = limit;
        if (file_.can_move()) {
            ring_ = LogRing::plan(limit);
        }
        if (ring_.regions != 0) {
            file_.set_first_extent(ring_.beginning);
        }
    }
    return error;
}

bool LogBlocks::append_file_header() {
    std::uint8_t header[format::ring_file_header_size] = {};
    const std::size_t size = ring_.put_file_header(header);
    return file_.append(header, size, closing_reserve, 0);
}

bool LogBlocks::append(std::uint8_t* record, std::size_t size, unsigned events, std::size_t spare) {
    if (block_open_) {
        if (!file_.append(record, size, spare, block_start_, events)) {
            return false;
        }
    } else {
        std::uint8_t* const header = record - format::block_header_size;
        std::memset(header, 0, format::block_header_size);
        header[0] = format::block_tag;
        const std::uint64_t block_start = file_.size();
        if (!file_.append(header, format::block_header_size + size, spare, block_start, events)) {
            return false;
        }
        block_open_ = true;
        takes_in_place_ = takes_records_;
        block_start_ = block_start;
    }
    end_full_block();
    return true;
}

bool LogBlocks::has_room(std::size_t size) const {
    return ring_.regions == 0 ||
           file_.size() + format::block_header_size + size + closing_reserve <= file_.extent().end;
}

bool LogBlocks::next_region() {
    end_block();
    // Everything since the latest complete checkpoint is kept, and everything before the first.
    ring_is_full_ = next_region_ >= covered_regions_ + ring_.regions;
    if (ring_is_full_ || !file_.can_move()) {
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

void LogBlocks::end_block() {
    latest_ns_ = std::max(latest_ns_, state_.bases.time_ns);
    state_ = CodecState{};
    types_in_block_ = 0;
    takes_in_place_ = false;
    if (block_open_) {
        seal();
    }
}

/// The checksum is computed here: between two records the program evicts the caches. A payload that
/// cannot be read back stays unsealed, which is readable.
void LogBlocks::seal() {
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

void LogBlocks::seal_for_end() {
    end_block();
    last_block_ = true;
    takes_records_ = false;
}

void LogBlocks::end_records() {
    types_in_block_ = 0;
    takes_in_place_ = false;
    takes_records_ = false;
}

std::string LogBlocks::why_full() const {
    if (!ring_is_full_) {
        return file_.why_full().empty() ? "the event log could not be written" : file_.why_full();
    }
    const std::string large = std::to_string(checkpoint_too_large_);
    return "the event log reached its limit of " + std::to_string(limit_) +
           " bytes (MEMLAB_LOG_LIMIT)" +
           (large == "0" ? " before a checkpoint was complete"
                         : ", too little to go on with checkpoints of " + large + " bytes");
}

void LogBlocks::on_checkpoint_wanted(void (*wanted)(void*), void* context) {
    checkpoint_wanted_ = wanted;
    checkpoint_context_ = context;
}

LogPosition LogBlocks::begin_checkpoint() {
    wants_checkpoint_ = false;
    end_block();
    const std::uint64_t region = next_region_ - 1;
    return {region, file_.size() - ring_.offset(region)};
}

bool LogBlocks::takes(const CheckpointBlocks& checkpoint) {
    const std::uint64_t size = checkpoint.size();
    if (size > ring_.max_checkpoint()) {
        checkpoint_too_large_ = size;
        return false;
    }
    return true;
}

bool LogBlocks::append_block(const std::uint8_t* block, std::size_t size) {
    end_block();
    return (has_room(size) || next_region()) &&
           file_.append(block, size, closing_reserve, file_.size());
}

void LogBlocks::complete(const CheckpointBlocks& checkpoint) {
    covered_regions_ = checkpoint.position().region;
    checkpoint_size_ = checkpoint.size();
}

void LogBlocks::close() {
    end_block();
    file_.close();
}

void LogBlocks::abandon() {
    file_.abandon();
    block_open_ = false;
}

}  // namespace memlab::trace
