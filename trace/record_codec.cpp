#include "trace/record_codec.hpp"

#include <iterator>
#include <limits>

namespace memlab::trace {
namespace {

#define MEMLAB_TAG(Record, name, tag) tag,
constexpr std::uint8_t tags[] = {MEMLAB_RECORD_KINDS(MEMLAB_TAG)};
#undef MEMLAB_TAG

constexpr bool tags_differ() {
    for (std::size_t i = 0; i < std::size(tags); ++i) {
        if (tags[i] == 0 || tags[i] >= format::event_tag) {
            return false;
        }
        for (std::size_t other = 0; other < i; ++other) {
            if (tags[other] == tags[i]) {
                return false;
            }
        }
    }
    return true;
}
static_assert(tags_differ(), "each kind has its own tag, below those of events");
static_assert(sizeof(DifferenceBases) <= 32, "copied for every record that is read");

}  // namespace

// ---- encoding

void RecordEncoder::put(std::uint64_t value) {
    std::uint8_t number[max_number_size];
    const std::uint8_t* const begin = number;
    bytes_.insert(bytes_.end(), begin, static_cast<const std::uint8_t*>(put_number(number, value)));
}

/// Inserts the length of what was written since `begin` before it.
void RecordEncoder::put_length(std::size_t begin) {
    std::uint8_t length[max_number_size];
    std::uint8_t* const end = put_number(length, bytes_.size() - begin);
    bytes_.insert(bytes_.begin() + static_cast<std::ptrdiff_t>(begin), length, end);
}

void RecordEncoder::time(const char* /*name*/, std::uint64_t value) {
    put(zigzag(value - bases_.time_ns));
    bases_.time_ns = value;
}

void RecordEncoder::text(const char* /*name*/, const std::string& value) {
    put(value.size());
    bytes_.insert(bytes_.end(), value.begin(), value.end());
}

void RecordEncoder::correlation(const char* /*name*/, std::uint32_t value) {
    put(zigzag(std::uint64_t{value} - bases_.work_correlation));
    bases_.work_correlation = value;
}

void RecordEncoder::period(const char* /*start*/, const char* /*duration*/, std::uint64_t start,
                           std::uint64_t end) {
    put(zigzag(start - bases_.work_end_ns));
    put(end - start);
    bases_.work_end_ns = end;
}

void RecordEncoder::overwritten(const char* /*name*/, std::uint64_t value) {
    bytes_.resize(bytes_.size() + sizeof value);
    put_little_endian(&bytes_[bytes_.size() - sizeof value], value);
}

void RecordEncoder::frame(const Frame& frame) {
    if (frame.python != 0) {
        put(std::uint64_t{frame.python} << 1 | 1);
    } else {
        put(std::uint64_t{frame.module} << 1);
        put(frame.address);
    }
}

// ---- decoding

const std::uint8_t* RecordDecoder::begin() {
    input_end_ = from_.end();
    const std::size_t size = from_.count();
    from_.set_end(from_.position() + size);
    return from_.end();
}

void RecordDecoder::end(const std::uint8_t* record_end) {
    if (from_.status() == DecodeStatus::truncated) {
        from_.mark_bad();  // the record is complete, so its length is wrong
    }
    from_.resume(record_end, input_end_);
    if (from_.status() == DecodeStatus::ok) {
        bases_ = next_;
    }
}

void RecordDecoder::time(const char* /*name*/, std::uint64_t& value) {
    if (more()) {
        from_.difference(value, next_.time_ns);
        next_.time_ns = value;
    }
}

void RecordDecoder::text(const char* /*name*/, std::string& value) {
    if (more()) {
        from_.text(value);
    }
}

void RecordDecoder::flag(const char* /*name*/, bool& value) {
    std::uint8_t bits = value ? 1 : 0;
    if (more() && from_.byte(bits) && bits > 1) {
        from_.fail(DecodeStatus::bad);
    }
    value = bits != 0;
}

void RecordDecoder::correlation(const char* /*name*/, std::uint32_t& value) {
    if (more()) {
        from_.difference(value, next_.work_correlation);
        next_.work_correlation = value;
    }
}

void RecordDecoder::period(const char* /*start*/, const char* /*duration*/, std::uint64_t& start,
                           std::uint64_t& end) {
    if (!more()) {
        return;
    }
    from_.difference(start, next_.work_end_ns);
    from_.number(end);
    end += start;
    next_.work_end_ns = end;
    if (end < start) {
        from_.fail(DecodeStatus::bad);
    }
}

void RecordDecoder::overwritten(const char* /*name*/, std::uint64_t& value) {
    if (!more()) {
        return;
    }
    std::uint8_t bytes[sizeof value] = {};
    for (std::uint8_t& byte : bytes) {
        from_.byte(byte);
    }
    value = little_endian<std::uint64_t>(bytes);
}

void RecordDecoder::frame(Frame& frame) {
    std::uint64_t which = 0;
    from_.number(which);
    if ((which >> 1) > std::numeric_limits<std::uint32_t>::max()) {
        from_.fail(DecodeStatus::bad);
    } else if ((which & 1) != 0) {
        frame.python = static_cast<std::uint32_t>(which >> 1);
    } else {
        frame.module = static_cast<std::uint32_t>(which >> 1);
        from_.number(frame.address);
    }
}

}  // namespace memlab::trace
