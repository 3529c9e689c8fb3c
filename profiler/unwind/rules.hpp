// What a walk needs to know about one return address, in 26 bits, kept in a table of words.
//
// Nearly every row of .eh_frame says the same three things: the CFA is so much above the stack or
// frame pointer, the return address lies just below the CFA, the caller's frame pointer is still
// there or so much below the CFA. Such a row is a word together with the address that it is for, so
// the table needs no lock: a word is read and written whole, for every thread and in signal
// handlers. Losing a word to another address costs a look into the tables and nothing else.
//
// The address is stored without its hash's twelve upper bits, which choose the cache line; as the
// hash can be undone, a match is exact. A line of eight words is a set of its own.
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
        none,       ///< not known yet
        plain,      ///< of the form above
        realigned,  ///< gcc's frames with a realigned stack: the CFA is in memory below rbp
        end,        ///< no caller
        general,    ///< anything else: ask the tables each time
        no_tables,  ///< code of which the tables say nothing
        no_code,    ///< no frame: what is there is not executed
    };
    static constexpr unsigned kind_shift = 23;
    static constexpr unsigned kind_bits = 3;
    static constexpr unsigned bits = kind_shift + kind_bits;

    constexpr Rule() = default;
    constexpr explicit Rule(std::uint32_t word) : word_(word & ((1U << bits) - 1)) {}
    constexpr explicit Rule(Kind kind) : word_(static_cast<std::uint32_t>(kind) << kind_shift) {}

    /// The rule that says the same as `row`; `general` when none does.
    static Rule of(const FrameRow& row, bool signal_frame);

    constexpr std::uint32_t word() const { return word_; }
    constexpr Kind kind() const { return static_cast<Kind>(word_ >> kind_shift); }
    constexpr bool is_plain() const { return word_ >> kind_shift == 1; }

    /// plain: whether the CFA is relative to rbp rather than rsp.
    constexpr bool from_frame_pointer() const { return (word_ & base_bit) != 0; }
    /// plain: bytes from there to the CFA. realigned: bytes from rbp down to where the CFA is kept.
    constexpr std::size_t distance() const { return (word_ >> distance_shift & 0xffffU) * 8; }
    /// plain: bytes from the CFA down to the caller's rbp; to the return address when rbp still
    /// holds it. The realigned frame's lies where its own rbp points.
    constexpr std::size_t saved_frame_pointer() const { return (word_ & 0x3fU) * 8; }
    constexpr bool keeps_frame_pointer() const { return (word_ & 0x3fU) == kept; }

  private:
    static constexpr std::uint32_t kept = 1;
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

struct Place {
    std::atomic<std::uint64_t>* line;
    std::uint64_t tag;
};

inline Place place_of(std::uintptr_t address) {
    // Multiplication by an odd number modulo a power of two: no two addresses give the same.
    const std::uint64_t hash =
        (address * 0x9e3779b97f4a7c15U) & ((std::uint64_t{1} << address_bits) - 1);
    return {lines[hash >> tag_bits].words.data(), hash & ((std::uint64_t{1} << tag_bits) - 1)};
}

/// Where the search in a line begins.
inline std::size_t first_word(std::uint64_t tag) {
    return tag & (line_words - 1);
}

}  // namespace rule_table

/// The rule kept for the code at `address`; Kind::none when there is none. Async-signal-safe.
inline Rule find_rule(std::uintptr_t address) {
    if (address >> rule_table::address_bits != 0) [[unlikely]] {
        return {};
    }
    const rule_table::Place place = rule_table::place_of(address);
    const std::size_t first = rule_table::first_word(place.tag);
    for (std::size_t i = 0; i < rule_table::line_words; ++i) {
        const std::uint64_t word =
            place.line[(first + i) % rule_table::line_words].load(std::memory_order_relaxed);
        if (word >> Rule::bits == place.tag) [[likely]] {
            return Rule(static_cast<std::uint32_t>(word));
        }
    }
    return {};
}

/// The same, but only looks where the search begins and only for a plain rule: else an empty one.
inline Rule find_plain_rule(std::uintptr_t address) {
    const rule_table::Place place = rule_table::place_of(address);
    const std::uint64_t word =
        place.line[rule_table::first_word(place.tag)].load(std::memory_order_relaxed);
    const std::uint64_t plain = static_cast<std::uint64_t>(Rule::Kind::plain);
    const bool found = word >> Rule::kind_shift == (place.tag << Rule::kind_bits | plain);
    return found && address >> rule_table::address_bits == 0
               ? Rule(static_cast<std::uint32_t>(word))
               : Rule();
}

/// Keeps a rule. Addresses above the lower half of the 48-bit address space are not kept.
/// Async-signal-safe.
void keep_rule(std::uintptr_t address, Rule rule);

/// Forgets all of them. Rules that other threads keep at the same time are those of code that is on
/// their stacks, so still loaded; it does not matter whether they stay.
void forget_rules();

}  // namespace memlab::profiler::unwind
