#include "trace/reading/ring_scan.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "trace/crc32c.hpp"
#include "trace/event_codec.hpp"
#include "trace/log_format.hpp"
#include "trace/record_codec.hpp"

// Not in libmemlab.so: its stack frames may be large.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wframe-larger-than="

namespace memlab::trace {
namespace {

/// Decodes the records of an open block without looking at what they say.
class OpenBlock {
  public:
    OpenBlock(const LogInput& input, std::uint64_t offset, std::uint64_t end)
        : input_(input), offset_(offset), end_(end) {}

    /// The offset of the block that follows; `end` when none does.
    std::uint64_t skip() {
        for (;;) {
            if (at_ + format::max_record / 128 > filled_ && !at_end_) {
                fill();
            }
            const std::uint8_t* const begin = bytes_.data() + at_;
            const std::uint8_t* const end = bytes_.data() + filled_;
            if (begin == end || *begin == 0) {
                return end_;
            }
            if (*begin == format::block_tag || *begin == format::checkpoint_tag) {
                return offset_ + at_;
            }
            ByteReader from(begin + 1, end);
            if (!skip_record(*begin, from)) {
                return end_;
            }
            at_ = static_cast<std::size_t>(from.position() - bytes_.data());
        }
    }

  private:
    void fill() {
        constexpr std::size_t step = std::size_t{256} << 10;
        bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(at_));
        offset_ += at_;
        filled_ -= at_;
        at_ = 0;
        const std::uint64_t left = end_ - offset_ - filled_;
        const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(step, left));
        bytes_.resize(filled_ + size);
        std::size_t got = size;
        while (got != 0 && !input_.peek(offset_ + filled_, bytes_.data() + filled_, got)) {
            got /= 2;  // the file ends before
        }
        filled_ += got;
        bytes_.resize(filled_);
        at_end_ = got == 0;
    }

    bool skip_record(std::uint8_t tag, ByteReader& from) {
        switch (tag) {
#define MEMLAB_CASE(Record, name, value) \
    case value:                          \
        return skip_as<Record>(from);
            MEMLAB_RECORD_KINDS(MEMLAB_CASE)
#undef MEMLAB_CASE
            default:
                break;
        }
        const std::optional<EventTag> known = parse_event_tag(tag);
        if (!known) {
            return false;
        }
        Event event;
        return (known->is_short ? decode_short(from, *known, state_, event)
                                : decode_fields(from, known->type, state_)) == DecodeStatus::ok;
    }
    template <typename Record>
    bool skip_as(ByteReader& from) {
        Record record;
        return RecordDecoder(from, state_.bases).decode(record) == DecodeStatus::ok;
    }

    const LogInput& input_;
    std::uint64_t offset_;  ///< of bytes_
    std::uint64_t end_;
    std::vector<std::uint8_t> bytes_;
    std::size_t filled_ = 0;
    std::size_t at_ = 0;
    bool at_end_ = false;
    CodecState state_;
};

void scan_region(const LogInput& input, std::uint64_t begin, std::uint64_t end,
                 CheckpointIndex& checkpoints) {
    std::uint64_t at = begin + format::region_header_size;
    std::array<std::uint8_t, format::block_header_size> bytes{};
    while (at + bytes.size() <= end && input.peek(at, bytes.data(), bytes.size())) {
        const bool checkpoint = bytes[0] == format::checkpoint_tag;
        if (bytes[0] != format::block_tag && !checkpoint) {
            return;
        }
        const BlockHeader header = BlockHeader::parse(bytes.data());
        const std::uint64_t payload = at + bytes.size();
        if (header.kind == BlockHeader::Kind::open && !checkpoint) {
            at = OpenBlock(input, payload, end).skip();
            continue;
        }
        if (header.kind != BlockHeader::Kind::sealed || header.length > end - payload) {
            return;
        }
        std::array<std::uint8_t, format::checkpoint_prefix_size> prefix{};
        if (checkpoint) {
            if (header.length < prefix.size() ||
                !input.peek(payload, prefix.data(), prefix.size())) {
                return;
            }
            checkpoints.add(prefix.data(), at);
        }
        at = payload + header.length;
    }
}

}  // namespace

void CheckpointIndex::add(const std::uint8_t* payload, std::uint64_t offset) {
    const auto number = little_endian<std::uint32_t>(payload);
    const auto index = little_endian<std::uint32_t>(payload + 4);
    const auto count = little_endian<std::uint32_t>(payload + 8);
    const LogPosition position{.region = little_endian<std::uint64_t>(payload + 12),
                               .offset = little_endian<std::uint64_t>(payload + 20)};
    Partial& partial = partial_[number];
    if (index < partial.found.blocks.size() && partial.found.blocks[index] == offset) {
        return;  // it was found before
    }
    if (index != partial.found.blocks.size() ||
        (index != 0 &&
         (partial.count != count || partial.found.position.region != position.region ||
          partial.found.position.offset != position.offset))) {
        partial.broken = true;  // its start was overwritten
        return;
    }
    partial.count = count;
    partial.found.number = number;
    partial.found.position = position;
    partial.found.blocks.push_back(offset);
}

std::vector<FoundCheckpoint> CheckpointIndex::complete(const RingContents& contents,
                                                       const LogRing& ring) const {
    std::vector<FoundCheckpoint> all;
    for (const auto& [number, partial] : partial_) {
        const LogPosition& position = partial.found.position;
        if (!partial.broken && partial.count == partial.found.blocks.size() &&
            position.region >= contents.first &&
            position.region < contents.first + contents.count &&
            position.offset >= format::region_header_size && position.offset <= ring.region_size) {
            all.push_back(partial.found);
        }
    }
    return all;
}

void CheckpointIndex::forget_before(std::uint64_t region) {
    std::erase_if(partial_, [region](const auto& each) {
        return each.second.found.position.region < region;
    });
}

bool read_region_header(const LogInput& input, const LogRing& ring, std::uint64_t region,
                        std::uint64_t* number) {
    std::array<std::uint8_t, format::region_header_size> header{};
    if (!input.peek(ring.offset(region), header.data(), header.size()) ||
        header[0] != format::region_tag ||
        little_endian<std::uint32_t>(header.data() + 4) != crc32c(0, header.data() + 8, 8)) {
        return false;
    }
    *number = little_endian<std::uint64_t>(header.data() + 8);
    return *number % ring.regions == region % ring.regions;
}

RingContents find_regions(const LogInput& input, const LogRing& ring) {
    RingContents contents;
    std::uint64_t newest = 0;
    bool any = false;
    for (std::uint32_t slot = 0; slot < ring.regions; ++slot) {
        std::uint64_t number = 0;
        if (read_region_header(input, ring, slot, &number)) {
            newest = any ? std::max(newest, number) : number;
            any = true;
        }
    }
    if (!any) {
        return contents;
    }
    contents.first = newest + 1;
    std::uint64_t number = 0;
    while (contents.count < ring.regions && contents.first != 0 &&
           read_region_header(input, ring, contents.first - 1, &number) &&
           number == contents.first - 1) {
        --contents.first;
        ++contents.count;
    }
    return contents;
}

RingContents scan_ring(const LogInput& input, const LogRing& ring, CheckpointIndex* index) {
    RingContents contents = find_regions(input, ring);
    CheckpointIndex own;
    CheckpointIndex& checkpoints = index != nullptr ? *index : own;
    for (std::uint64_t region = contents.first; region < contents.first + contents.count;
         ++region) {
        const std::uint64_t begin = ring.offset(region);
        scan_region(input, begin, begin + ring.region_size, checkpoints);
    }
    contents.checkpoints = checkpoints.complete(contents, ring);
    return contents;
}

namespace {

std::optional<std::uint64_t> time_if_readable(ByteReader from) {
    std::uint8_t tag = 0;
    Checkpoint begin;
    DifferenceBases bases;
    const bool readable = from.byte(tag) && tag == record_tag<Checkpoint> &&
                          RecordDecoder(from, bases).decode(begin) == DecodeStatus::ok &&
                          begin.version != 0 && begin.version <= Checkpoint::state_version;
    return readable ? std::optional(begin.time_ns) : std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> checkpoint_time(const LogInput& input,
                                             const FoundCheckpoint& checkpoint) {
    std::optional<std::uint64_t> time_ns;
    std::vector<std::uint8_t> block(format::block_header_size);
    for (const std::uint64_t offset : checkpoint.blocks) {
        block.resize(format::block_header_size);
        if (!input.peek(offset, block.data(), block.size())) {
            return std::nullopt;
        }
        const BlockHeader header = BlockHeader::parse(block.data());
        block.resize(format::block_header_size + header.length);
        std::uint8_t* const payload = block.data() + format::block_header_size;
        if (header.kind != BlockHeader::Kind::sealed ||
            !input.peek(offset + format::block_header_size, payload, header.length) ||
            crc32c(0, payload, header.length) != header.crc) {
            return std::nullopt;
        }
        if (offset == checkpoint.blocks.front()) {
            time_ns = time_if_readable(
                {payload + format::checkpoint_prefix_size, payload + header.length});
            if (!time_ns) {
                return std::nullopt;
            }
        }
    }
    return time_ns;
}

std::uint64_t last_blocks_of_beginning(const LogInput& input, const LogRing& ring) {
    std::uint64_t last = format::ring_file_header_size;
    std::uint64_t before = last;
    for (std::uint64_t at = last; at < ring.beginning;) {
        std::array<std::uint8_t, format::block_header_size> head{};
        if (!input.peek(at, head.data(), head.size()) || head[0] != format::block_tag) {
            break;
        }
        before = std::exchange(last, at);
        const BlockHeader header = BlockHeader::parse(head.data());
        if (header.kind != BlockHeader::Kind::sealed) {
            break;  // what follows has no length
        }
        at += head.size() + header.length;
    }
    return before;
}

}  // namespace memlab::trace

#pragma GCC diagnostic pop
