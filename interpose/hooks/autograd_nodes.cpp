#include "interpose/hooks/autograd_nodes.hpp"

#include "profiler/word_mix.hpp"

namespace memlab::interpose {
namespace {

std::uint64_t make_check(const AutogradNode* node, std::uint64_t value) {
    return reinterpret_cast<std::uintptr_t>(node) ^ profiler::mix(value, profiler::mix_factor);
}

}  // namespace

constinit thread_local AutogradNodes::Newest AutogradNodes::newest;

/// Whether the node is the one that took the thread's newest number. Votes for the layout.
[[gnu::hot]] bool AutogradNodes::is_newest(const AutogradEdge& edge, std::uint64_t next) {
    const bool is = edge.node->self == edge.node && edge.node->self_control == edge.control &&
                    edge.node->sequence + 1 == next && next != 0;
    if (layout_.load(std::memory_order_relaxed) == Layout::unproved) [[unlikely]] {
        const std::uint32_t in_favour =
            votes_for_.fetch_add(is ? 1 : 0, std::memory_order_relaxed) + (is ? 1 : 0);
        if (votes_.fetch_add(1, std::memory_order_relaxed) + 1 >= votes) {
            layout_.store(in_favour >= votes_for ? Layout::right : Layout::wrong,
                          std::memory_order_relaxed);
        }
    }
    return is;
}

AutogradNodes::Kind* AutogradNodes::find_kind(const void* virtual_table) {
    constexpr std::size_t most_tries = 16;
    const std::uint64_t hash =
        profiler::mix(reinterpret_cast<std::uintptr_t>(virtual_table), profiler::mix_factor);
    for (std::size_t i = 0; i < most_tries; ++i) {
        Kind& kind = kinds_[(hash + i) % kinds];
        const void* there = kind.virtual_table.load(std::memory_order_relaxed);
        if (there == nullptr && kind.virtual_table.compare_exchange_strong(
                                    there, virtual_table, std::memory_order_relaxed)) {
            return &kind;
        }
        if (there == virtual_table) {
            return &kind;
        }
    }
    return nullptr;
}

[[gnu::hot]] bool AutogradNodes::is_asked_for(const void* virtual_table) {
    Kind* const kind = find_kind(virtual_table);
    if (kind == nullptr) {
        return false;
    }
    std::uint32_t captures = kind->captures.load(std::memory_order_relaxed);
    if (captures == asked_for) {
        return true;
    }
    return captures < trial_captures && kind->captures.compare_exchange_strong(
                                            captures, captures + 1, std::memory_order_relaxed);
}

AutogradNodes::Entry* AutogradNodes::entry_of(const AutogradNode* node, std::uint64_t sequence) {
    for (Entry& entry : set_of(sequence).entries) {
        const std::uint64_t value = entry.value.load(std::memory_order_relaxed);
        if (value >> 32 == (sequence & 0xffff'ffffU) &&
            entry.check.load(std::memory_order_relaxed) == make_check(node, value)) {
            return &entry;
        }
    }
    return nullptr;
}

void AutogradNodes::forget(const AutogradNode* node, std::uint64_t sequence) {
    if (Entry* const entry = entry_of(node, sequence)) {
        entry->value.store(0, std::memory_order_relaxed);
    }
}

[[gnu::hot]] void AutogradNodes::insert(const AutogradNode* node, std::uint64_t sequence,
                                        std::uint32_t stack) {
    Entry* target = entry_of(node, sequence);
    std::uint32_t greatest_age = 0;
    if (target == nullptr) {
        for (Entry& entry : set_of(sequence).entries) {
            const std::uint64_t there = entry.value.load(std::memory_order_relaxed);
            const std::uint32_t age = there == 0 ? ~std::uint32_t{0}
                                                 : static_cast<std::uint32_t>(sequence) -
                                                       static_cast<std::uint32_t>(there >> 32);
            if (target == nullptr || age > greatest_age) {
                target = &entry;
                greatest_age = age;
            }
        }
    }
    const std::uint64_t value = sequence << 32 | stack;
    target->value.store(value, std::memory_order_relaxed);
    target->check.store(make_check(node, value), std::memory_order_relaxed);
}

[[gnu::hot]] std::uint32_t AutogradNodes::find(const AutogradNode* node) {
    if (!proved() || node == nullptr) {
        return 0;
    }
    Kind* const kind = find_kind(node->virtual_table);
    if (kind != nullptr && kind->captures.load(std::memory_order_relaxed) != asked_for) {
        kind->captures.store(asked_for, std::memory_order_relaxed);
    }
    const Entry* const entry = entry_of(node, node->sequence);
    const std::uint64_t value = entry == nullptr ? 0 : entry->value.load(std::memory_order_relaxed);
    // Another thread may have replaced it meanwhile.
    return entry != nullptr &&
                   entry->check.load(std::memory_order_relaxed) == make_check(node, value)
               ? static_cast<std::uint32_t>(value)
               : 0;
}

}  // namespace memlab::interpose
