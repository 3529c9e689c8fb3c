// A lock-free hash table of unwind rules by return address, each a 26-bit encoding of an .eh_frame
// row.
//
// Nearly every row of .eh_frame has the same form: the CFA is at a constant offset from the stack
// or frame pointer, the return address is just below the CFA, and the caller's frame pointer is
// unchanged or saved at a constant offset below the CFA. Such a row and its address fit one word,
// which is read and written atomically: no lock, and safe in signal handlers. An evicted word only
// costs another lookup in .eh_frame.
//
// The hash is invertible: its upper twelve bits choose the cache line, the others are stored as the
// tag, so a match is exact. A line of eight words is one set.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "profiler/unwind/frame_row.hpp"

namespace memlab::profiler::unwind {

class Rule {
  public:
    enum class Kind : std::uint8_t {
        none,       ///< unknown
        plain,      ///< of the form above
        realigned,  ///< gcc's frames with a realigned stack: the CFA is in memory below rbp
        end,        ///< no caller
        general,    ///< anything else: evaluate the tables each time
        no_tables,  ///< code without unwind tables
        no_code,    ///< not executable, so not a frame
    };
    static constexpr unsigned kind_shift = 23;
    static constexpr unsigned kind_bits = 3;
    static constexpr unsigned bits = kind_shift + kind_bits;

    constexpr Rule() = default;
    constexpr explicit Rule(std::uint32_t word) : word_(word & ((1U << bits) - 1)) {}
    constexpr explicit Rule(Kind kind) : word_(static_cast<std::uint32_t>(kind) << kind_shift) {}

    /// The encoding of `row`; `general` if it has none.
    static Rule from_row(const FrameRow& row, bool signal_frame);

    constexpr std::uint32_t word() const { return word_; }
    constexpr Kind kind() const { return static_cast<Kind>(word_ >> kind_shift); }
    constexpr bool is_plain() const { return word_ >> kind_shift == 1; }

    /// plain: whether the CFA is relative to rbp rather than rsp.
    constexpr bool from_frame_pointer() const { return (word_ & base_bit) != 0; }
    /// plain: bytes from the base register to the CFA. realigned: bytes from rbp down to the saved
    /// CFA.
    constexpr std::size_t distance() const { return (word_ >> distance_shift & 0xffffU) * 8; }
    /// plain: bytes from the CFA down to the saved rbp, or to the return address if rbp is
    /// unchanged. (A realigned frame saves it where its own rbp points.)
    constexpr std::size_t saved_frame_pointer() const { return (word_ & 0x3fU) * 8; }
    constexpr bool keeps_frame_pointer() const { return (word_ & 0x3fU) == rbp_unchanged; }

  private:
    static constexpr std::uint32_t rbp_unchanged = 1;
    static constexpr unsigned distance_shift = 6;
    static constexpr std::uint32_t base_bit = 1U << 22;

    std::uint32_t word_ = 0;
};

namespace rule_table {

constexpr unsigned address_bits = 47;
constexpr unsigned line_bits = 12;
constexpr unsigned tag_bits = address_bits - line_bits;
constexpr std::size_t line_words = 8;
static_assert(tag_bits + Rule::bits <= 64);

struct alignas(64) Line {
    std::array<std::atomic<std::uint64_t>, line_words> words;
};
extern std::array<Line, std::size_t{1} << line_bits> lines;

struct Bucket {
    std::atomic<std::uint64_t>* line;
    std::uint64_t tag;
};

inline Bucket find_bucket(std::uintptr_t address) {
    // Multiplication by an odd number modulo a power of two is a bijection.
    const std::uint64_t hash =
        (address * 0x9e3779b97f4a7c15U) & ((std::uint64_t{1} << address_bits) - 1);
    return {lines[hash >> tag_bits].words.data(), hash & ((std::uint64_t{1} << tag_bits) - 1)};
}

/// The word of a line at which a search begins.
inline std::size_t first_word(std::uint64_t tag) {
    return tag & (line_words - 1);
}

}  // namespace rule_table

/// The cached rule of the code at `address`, or Kind::none. Async-signal-safe.
inline Rule find_rule(std::uintptr_t address) {
    if (address >> rule_table::address_bits != 0) [[unlikely]] {
        return {};
    }
    const rule_table::Bucket bucket = rule_table::find_bucket(address);
    const std::size_t first = rule_table::first_word(bucket.tag);
    for (std::size_t i = 0; i < rule_table::line_words; ++i) {
        const std::uint64_t word =
            bucket.line[(first + i) % rule_table::line_words].load(std::memory_order_relaxed);
        if (word >> Rule::bits == bucket.tag) [[likely]] {
            return Rule(static_cast<std::uint32_t>(word));
        }
    }
    return {};
}

/// The same, but probes the first word only, and only for a plain rule; else an empty one.
inline Rule find_plain_rule(std::uintptr_t address) {
    const rule_table::Bucket bucket = rule_table::find_bucket(address);
    const std::uint64_t word =
        bucket.line[rule_table::first_word(bucket.tag)].load(std::memory_order_relaxed);
    const std::uint64_t plain = static_cast<std::uint64_t>(Rule::Kind::plain);
    const bool found = word >> Rule::kind_shift == (bucket.tag << Rule::kind_bits | plain);
    return found && address >> rule_table::address_bits == 0
               ? Rule(static_cast<std::uint32_t>(word))
               : Rule();
}

/// Caches a rule. Addresses above the lower half of the 48-bit address space are ignored.
/// Async-signal-safe.
void insert_rule(std::uintptr_t address, Rule rule);

/// Removes all rules. Rules that other threads insert meanwhile may survive: they are of code on
/// those threads' stacks, which is still loaded.
void clear_rules();

}  // namespace memlab::profiler::unwind
