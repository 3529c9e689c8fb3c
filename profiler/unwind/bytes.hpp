// A bounds-checked decoder of DWARF's number formats. Reading past the end gives zero and sets
// failed(), which callers check once, after the last read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace memlab::profiler::unwind {

/// [begin, end) of readable memory, by address.
struct Bytes {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;

    bool empty() const { return begin >= end; }
    bool contains(std::uintptr_t address) const { return address >= begin && address < end; }
};

class ByteReader {
  public:
    explicit ByteReader(Bytes bytes) : at_(bytes.begin), end_(bytes.end) {
        if (at_ > end_) {
            fail();
        }
    }

    bool failed() const { return failed_; }
    bool at_end() const { return at_ == end_; }
    std::uintptr_t position() const { return at_; }
    std::size_t left() const { return end_ - at_; }
    Bytes rest() const { return {at_, end_}; }

    void fail() {
        failed_ = true;
        at_ = end_;
    }

    template <class Number>
    Number number() {
        Number value{};
        if (left() < sizeof value) {
            fail();
            return 0;
        }
        std::memcpy(&value, reinterpret_cast<const void*>(at_), sizeof value);
        at_ += sizeof value;
        return value;
    }

    std::uint8_t byte() { return number<std::uint8_t>(); }

    std::uint64_t uleb() {
        std::uint64_t value = 0;
        for (unsigned shift = 0;; shift += 7) {
            const std::uint8_t next = byte();
            if (shift < 64) {
                value |= std::uint64_t{next & 0x7fU} << shift;
            }
            if ((next & 0x80U) == 0) {
                return value;
            }
        }
    }

    std::int64_t sleb() {
        std::uint64_t value = 0;
        for (unsigned shift = 0;;) {
            const std::uint8_t next = byte();
            if (shift < 64) {
                value |= std::uint64_t{next & 0x7fU} << shift;
            }
            shift += 7;
            if ((next & 0x80U) == 0) {
                if (shift < 64 && (next & 0x40U) != 0) {
                    value |= ~std::uint64_t{0} << shift;
                }
                return static_cast<std::int64_t>(value);
            }
        }
    }

    /// Skips and returns the next `size` bytes.
    Bytes take(std::uint64_t size) {
        if (size > left()) {
            fail();
            return {end_, end_};
        }
        const Bytes taken{at_, at_ + static_cast<std::size_t>(size)};
        at_ = taken.end;
        return taken;
    }

    /// Moves by `distance` bytes, forwards or backwards, within [first, end].
    void jump(std::uintptr_t first, std::int64_t distance) {
        const std::uintptr_t target = at_ + static_cast<std::uintptr_t>(distance);
        if (target < first || target > end_) {
            fail();
            return;
        }
        at_ = target;
    }

  private:
    std::uintptr_t at_;
    std::uintptr_t end_;
    bool failed_ = false;
};

}  // namespace memlab::profiler::unwind
