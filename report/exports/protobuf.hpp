// Messages of protocol buffers, written field by field: what pprof and Perfetto read. Numbers are
// varints, nested messages are made before the message that they are in.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memlab::report::exports {

/// A message under construction. Fields are written in the order of the calls. Thread-safety: none.
class Message {
  public:
    /// Of type uint64, int64, uint32, int32 (not negative), bool or an enumeration.
    void number(std::uint32_t field, std::uint64_t value) {
        key(field, 0);
        varint(value);
    }
    void real(std::uint32_t field, double value) {
        key(field, 1);
        auto bits = std::bit_cast<std::uint64_t>(value);
        for (int byte = 0; byte < 8; ++byte, bits >>= 8) {  // little endian
            bytes_ += static_cast<char>(bits & 0xff);
        }
    }
    /// `value` must be well-formed UTF-8 unless the field is of type bytes.
    void text(std::uint32_t field, std::string_view value) {
        key(field, 2);
        varint(value.size());
        bytes_ += value;
    }
    void message(std::uint32_t field, const Message& value) { text(field, value.bytes_); }
    void packed(std::uint32_t field, const std::vector<std::uint64_t>& values) {
        Message list;
        for (const std::uint64_t value : values) {
            list.varint(value);
        }
        message(field, list);
    }

    const std::string& bytes() const { return bytes_; }
    bool empty() const { return bytes_.empty(); }
    void clear() { bytes_.clear(); }

  private:
    void key(std::uint32_t field, std::uint32_t wire_type) {
        varint(std::uint64_t{field} << 3 | wire_type);
    }
    void varint(std::uint64_t value) {
        for (; value >= 0x80; value >>= 7) {
            bytes_ += static_cast<char>(value | 0x80);
        }
        bytes_ += static_cast<char>(value);
    }

    std::string bytes_;
};

}  // namespace memlab::report::exports
