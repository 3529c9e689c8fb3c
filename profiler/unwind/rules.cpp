#include "profiler/unwind/rules.hpp"

namespace memlab::profiler::unwind {
namespace {

using How = RegisterRule::How;

constexpr std::uint64_t max_words = 0xffff;
constexpr std::uint64_t max_saved_words = 0x3f;

// Converts `bytes` to words. False unless it is a multiple of 8 in [0, 8 * max].
bool as_words(std::int64_t bytes, std::uint64_t max, std::uint32_t* words) {
    if (bytes < 0 || bytes % 8 != 0 || static_cast<std::uint64_t>(bytes) / 8 > max) {
        return false;
    }
    *words = static_cast<std::uint32_t>(bytes / 8);
    return true;
}

constexpr std::uint8_t breg_rbp = 0x70 + column::rbp;
constexpr std::uint8_t deref = 0x06;

// Whether the expression is rbp + offset, followed by nothing but the operation `tail` (0: none).
bool is_from_rbp(const RegisterRule& rule, std::uint8_t tail, std::int64_t* offset) {
    ByteReader reader(rule.expression());
    if (reader.byte() != breg_rbp) {
        return false;
    }
    *offset = reader.sleb();
    if (tail != 0 && reader.byte() != tail) {
        return false;
    }
    return reader.at_end() && !reader.failed();
}

}  // namespace

namespace rule_table {
alignas(64) constinit std::array<Line, std::size_t{1} << line_bits> lines{};
}

Rule Rule::from_row(const FrameRow& row, bool signal_frame) {
    const RegisterRule& rip = row.registers[column::rip];
    const RegisterRule& rbp = row.registers[column::rbp];
    const auto word = [](Kind kind, std::uint32_t base, std::uint32_t distance,
                         std::uint32_t saved) {
        return Rule(Rule(kind).word() | base | distance << distance_shift | saved);
    };
    if (rip.how == How::undefined) {
        return Rule(Kind::end);
    }
    if (signal_frame || rip.how != How::at_offset || rip.offset != -8 ||
        row.registers[column::rsp].how != How::same) {
        return Rule(Kind::general);
    }
    std::uint32_t distance = 0;
    if (row.cfa.how == How::is_expression) {
        std::int64_t offset = 0;
        std::int64_t saved = 0;
        if (is_from_rbp(row.cfa, deref, &offset) && rbp.how == How::at_expression &&
            is_from_rbp(rbp, 0, &saved) && saved == 0 && offset > INT64_MIN &&
            as_words(-offset, max_words, &distance)) {
            return word(Kind::realigned, 0, distance, 0);
        }
        return Rule(Kind::general);
    }
    const bool from_rbp = row.cfa.offset == column::rbp;
    if (row.cfa.how != How::in_register || (!from_rbp && row.cfa.offset != column::rsp) ||
        !as_words(row.cfa_offset, max_words, &distance) || distance == 0) {
        return Rule(Kind::general);
    }
    std::uint32_t saved = rbp_unchanged;
    if (rbp.how == How::at_offset) {
        // Only within the frame, never below the base register, so that a walk need not check it.
        if (rbp.offset == INT64_MIN || !as_words(-rbp.offset, max_saved_words, &saved) ||
            saved <= rbp_unchanged || saved > distance) {
            return Rule(Kind::general);
        }
    } else if (rbp.how != How::same) {
        return Rule(Kind::general);
    }
    return word(Kind::plain, from_rbp ? base_bit : 0, distance, saved);
}

void insert_rule(std::uintptr_t address, Rule rule) {
    if (address >> rule_table::address_bits != 0) {
        return;
    }
    const rule_table::Bucket bucket = rule_table::find_bucket(address);
    const std::size_t first = rule_table::first_word(bucket.tag);
    const std::uint64_t word = bucket.tag << Rule::bits | rule.word();
    for (std::size_t i = 0; i < rule_table::line_words; ++i) {
        std::atomic<std::uint64_t>& entry = bucket.line[(first + i) % rule_table::line_words];
        const std::uint64_t there = entry.load(std::memory_order_relaxed);
        if (there == 0 || there >> Rule::bits == bucket.tag) {
            entry.store(word, std::memory_order_relaxed);
            return;
        }
    }
    bucket.line[first].store(word, std::memory_order_relaxed);
}

void clear_rules() {
    for (rule_table::Line& line : rule_table::lines) {
        for (std::atomic<std::uint64_t>& entry : line.words) {
            if (entry.load(std::memory_order_relaxed) != 0) {
                entry.store(0, std::memory_order_relaxed);
            }
        }
    }
}

}  // namespace memlab::profiler::unwind
