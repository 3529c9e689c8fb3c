#include "interpose/hooks/autograd_nodes.hpp"

#include "profiler/word_mix.hpp"

namespace memlab::interpose {
namespace {

std::uint64_t make_check(const AutogradNode* node, std::uint64_t value) {
    return reinterpret_cast<std::uintptr_t>(node) ^ profiler::mix(value, profiler::mix_factor);
}

}  // namespace

__attribute__((
    tls_model("initial-exec"))) constinit thread_local AutogradNodes::Newest AutogradNodes::newest;

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

[[gnu::hot]] AutogradNodes::Kind* AutogradNodes::find_kind(const void* virtual_table) {
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
    constexpr std::uint32_t most = 1 << 20;
    Kind* const kind = find_kind(virtual_table);
    if (kind == nullptr) {
        return false;
    }
    std::uint32_t made = kind->made.load(std::memory_order_relaxed) + 1;
    std::uint32_t asked = kind->asked.load(std::memory_order_relaxed);
    if (made >= most) [[unlikely]] {  // newer ones weigh more
        made /= 2;
        asked /= 2;
        kind->asked.store(asked, std::memory_order_relaxed);
    }
    kind->made.store(made, std::memory_order_relaxed);
    return made <= trial || asked >= made / 2;
}

/// `value`: what was read of the entry, which another thread may replace.
[[gnu::hot]] bool AutogradNodes::is_of(const AutogradNode& node, const Entry& entry,
                                       std::uint64_t value) {
    return value != 0 && value >> 32 == (node.sequence & 0xffff'ffffU) &&
           entry.check.load(std::memory_order_relaxed) == make_check(&node, value);
}

[[gnu::hot]] void AutogradNodes::insert(const AutogradNode& node, std::uint32_t stack) {
    Entry& entry = entry_of(node);
    const std::uint64_t value = node.sequence << 32 | stack;
    entry.value.store(value, std::memory_order_relaxed);
    entry.check.store(make_check(&node, value), std::memory_order_relaxed);
}

[[gnu::hot]] void AutogradNodes::forget(const AutogradNode& node) {
    Entry& entry = entry_of(node);
    if (is_of(node, entry, entry.value.load(std::memory_order_relaxed))) {
        entry.value.store(0, std::memory_order_relaxed);
    }
}

[[gnu::hot]] std::uint32_t AutogradNodes::find(const AutogradNode* node) {
    if (!proved() || node == nullptr) {
        return 0;
    }
    const Entry& entry = entry_of(*node);
    const std::uint64_t value = entry.value.load(std::memory_order_relaxed);
    const auto stack = is_of(*node, entry, value) ? static_cast<std::uint32_t>(value) : 0;
    if (stack == 0 || (stack & captured) != 0) {
        if (Kind* const kind = find_kind(node->virtual_table)) {
            kind->asked.store(kind->asked.load(std::memory_order_relaxed) + 1,
                              std::memory_order_relaxed);
        }
    }
    return stack & ~captured;
}

}  // namespace memlab::interpose
