#include "profiler/python/line_table.hpp"

namespace memlab::profiler::python {
namespace {

// The first byte of an entry is 1 cccc lll: a code and the number of instructions minus one.
// Further bytes have the top bit clear.
enum Code : unsigned {
    one_line_first = 10,  // 10 to 12: line delta 0 to 2, then two bytes of columns
    no_columns = 13,
    long_form = 14,
    no_location = 15,
};

constexpr std::ptrdiff_t instruction_bytes = 2;

class Reader {
  public:
    explicit Reader(std::span<const unsigned char> table) : table_(table) {}

    bool at_end() const { return at_ >= table_.size(); }
    std::size_t position() const { return at_; }
    unsigned byte() { return at_end() ? 0 : table_[at_++]; }

    /// A varint: six bits per byte, lowest first; the seventh bit marks continuation.
    std::uint32_t number() {
        std::uint32_t value = 0;
        unsigned part = 0;
        unsigned shift = 0;
        do {
            part = byte();
            value |= shift < 32 ? static_cast<std::uint32_t>(part & 63) << shift : 0;
            shift += 6;
        } while ((part & 64) != 0);
        return value;
    }

    /// A signed varint, whose lowest bit is the sign.
    std::int64_t signed_number() {
        const std::uint32_t value = number();
        const std::int64_t magnitude = value >> 1;
        return (value & 1) != 0 ? -magnitude : magnitude;
    }

    /// Moves to the first byte of the next entry.
    void skip_entry() {
        while (!at_end() && (table_[at_] & 128) == 0) {
            ++at_;
        }
    }

  private:
    std::span<const unsigned char> table_;
    std::size_t at_ = 0;
};

LineAt line_in_locations(std::span<const unsigned char> table, int first_line,
                         std::ptrdiff_t offset) {
    Reader reader(table);
    std::int64_t line = first_line;
    std::ptrdiff_t end = 0;
    while (!reader.at_end()) {
        const unsigned head = reader.byte();
        const unsigned code = (head >> 3) & 15;
        end += (static_cast<std::ptrdiff_t>(head & 7) + 1) * instruction_bytes;
        if (code == no_columns || code == long_form) {
            line += reader.signed_number();
        } else if (code >= one_line_first && code < no_columns) {
            line += code - one_line_first;
        }
        reader.skip_entry();
        if (offset < end) {
            const bool known = code != no_location && line > 0 && line <= INT32_MAX;
            return {.line = known ? static_cast<int>(line) : 0, .bytes = reader.position()};
        }
    }
    return {.line = 0, .bytes = table.size()};
}

int signed_byte(unsigned char byte) {
    return byte < 128 ? byte : byte - 256;
}

LineAt line_in_pairs(std::span<const unsigned char> table, int first_line, std::ptrdiff_t offset) {
    constexpr int no_line = -128;
    // Pairs: a number of bytes of code, and by how many lines theirs is after the last one's.
    std::int64_t line = first_line;
    std::ptrdiff_t end = 0;
    for (std::size_t at = 0; at + 2 <= table.size(); at += 2) {
        end += table[at];
        const int delta = signed_byte(table[at + 1]);
        line += delta == no_line ? 0 : delta;
        if (offset < end) {
            const bool known = delta != no_line && line > 0 && line <= INT32_MAX;
            return {.line = known ? static_cast<int>(line) : 0, .bytes = at + 2};
        }
    }
    return {.line = 0, .bytes = table.size()};
}

LineAt line_in_changes(std::span<const unsigned char> table, int first_line,
                       std::ptrdiff_t offset) {
    // Pairs: how many bytes further the line changes, and by how much.
    std::int64_t line = first_line;
    std::ptrdiff_t begin = 0;
    std::size_t at = 0;
    for (; at + 2 <= table.size(); at += 2) {
        begin += table[at];
        if (begin > offset) {
            at += 2;
            break;
        }
        line += signed_byte(table[at + 1]);
    }
    const bool known = line > 0 && line <= INT32_MAX;
    return {.line = known ? static_cast<int>(line) : 0, .bytes = at};
}

}  // namespace

LineAt line_at(LineTable format, std::span<const unsigned char> table, int first_line,
               std::ptrdiff_t offset) {
    if (offset < 0) {
        return {.line = first_line, .bytes = 0};
    }
    switch (format) {
        case LineTable::changes:
            return line_in_changes(table, first_line, offset);
        case LineTable::pairs:
            return line_in_pairs(table, first_line, offset);
        case LineTable::locations:
            break;
    }
    return line_in_locations(table, first_line, offset);
}

}  // namespace memlab::profiler::python
