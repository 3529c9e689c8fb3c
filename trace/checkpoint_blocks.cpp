#include "trace/checkpoint_blocks.hpp"

#include "trace/block_header.hpp"
#include "trace/crc32c.hpp"
#include "trace/log_format.hpp"

namespace memlab::trace {

void CheckpointBlocks::begin_block() {
    blocks_.emplace_back();
    blocks_.back().reserve(target + target / 2);
    blocks_.back().resize(format::block_header_size + format::checkpoint_prefix_size);
    bases_ = {};
}

void CheckpointBlocks::finish() {
    std::uint32_t index = 0;
    for (std::vector<std::uint8_t>& block : blocks_) {
        std::uint8_t* const header = block.data();
        std::uint8_t* const prefix = header + format::block_header_size;
        put_little_endian(prefix, number_);
        put_little_endian(prefix + 4, index++);
        put_little_endian(prefix + 8, static_cast<std::uint32_t>(blocks_.size()));
        put_little_endian(prefix + 12, position_.region);
        put_little_endian(prefix + 20, position_.offset);
        const auto size = static_cast<std::uint32_t>(block.size() - format::block_header_size);
        put_block_header(header, format::checkpoint_tag, size, crc32c(0, prefix, size));
    }
}

std::uint64_t CheckpointBlocks::size() const {
    std::uint64_t size = 0;
    for (const std::vector<std::uint8_t>& block : blocks_) {
        size += block.size();
    }
    return size;
}

}  // namespace memlab::trace
