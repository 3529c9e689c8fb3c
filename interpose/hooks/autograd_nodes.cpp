#include "interpose/hooks/autograd_nodes.hpp"

#include "profiler/word_mix.hpp"

namespace memlab::interpose {
namespace {

std::uint64_t make_check(const AutogradNode* node, std::uint64_t value, std::uint32_t nn_modules) {
    return reinterpret_cast<std::uintptr_t>(node) ^
           profiler::mix(value, profiler::mix_factor + 2 * std::uint64_t{nn_modules});
}

}  // namespace

__attribute__((
    tls_model("initial-exec"))) constinit thread_local AutogradNodes::Newest AutogradNodes::newest;

constinit thread_local std::uint64_t AutogradNodes::own_thread = 0;

void AutogradNodes::vote(NodeLayout in_favour) {
    const auto count = [this](NodeLayout layout) -> std::atomic<std::uint32_t>& {
        return votes_for_[static_cast<std::size_t>(layout)];
    };
    count(in_favour).fetch_add(1, std::memory_order_relaxed);
    if (votes_.fetch_add(1, std::memory_order_relaxed) + 1 < votes) {
        return;
    }
    NodeLayout elected = NodeLayout::wrong;
    for (const NodeLayout each : {NodeLayout::shared, NodeLayout::intrusive}) {
        if (count(each).load(std::memory_order_relaxed) >= votes_for) {
            elected = each;
        }
    }
    NodeLayout expected = NodeLayout::unproved;
    layout_.compare_exchange_strong(expected, elected, std::memory_order_relaxed);
}

/// As what the node looks the thread's newest; wrong: as nothing.
NodeLayout AutogradNodes::fitting_layout(const AutogradEdge& edge, std::uint64_t next) {
    const auto& shared = static_cast<const SharedNode&>(*edge.node);
    const auto& intrusive = static_cast<const IntrusiveNode&>(*edge.node);
    NodeLayout layout = NodeLayout::wrong;
    if (shared.self == edge.node && shared.self_control == edge.control &&
        shared.numbers.sequence + 1 == next && next != 0) {
        layout = NodeLayout::shared;
    } else if (is_reference_count(intrusive.references) && intrusive.numbers.sequence + 1 == next &&
               next != 0) {
        layout = NodeLayout::intrusive;
    } else {
        return layout;
    }
    const std::uint64_t thread = numbers_of(*edge.node, layout).thread + 1;
    if (own_thread == 0) {
        own_thread = thread;
    }
    return thread == own_thread ? layout : NodeLayout::wrong;
}

/// The layout of the node, if it is the one that took the thread's newest number, else wrong.
/// Counts as one observation of the layout.
[[gnu::hot]] NodeLayout AutogradNodes::layout_if_newest(const AutogradEdge& edge,
                                                        std::uint64_t next) {
    const NodeLayout proved = layout();
    if (proved == NodeLayout::shared) [[likely]] {
        const auto& node = static_cast<const SharedNode&>(*edge.node);
        return node.self == edge.node && node.self_control == edge.control &&
                       node.numbers.sequence + 1 == next && next != 0
                   ? proved
                   : NodeLayout::wrong;
    }
    if (proved == NodeLayout::intrusive) {
        const auto& node = static_cast<const IntrusiveNode&>(*edge.node);
        return node.numbers.sequence + 1 == next && next != 0 ? proved : NodeLayout::wrong;
    }
    const NodeLayout fitting = fitting_layout(edge, next);
    vote(fitting);
    return fitting;
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

/// `value`, `nn_modules`: what was read of the entry, which another thread may replace.
[[gnu::hot]] bool AutogradNodes::is_of(const AutogradNode* node, const NodeNumbers& numbers,
                                       const Entry& entry, std::uint64_t value,
                                       std::uint32_t nn_modules) {
    return value != 0 && value >> 32 == (numbers.sequence & 0xffff'ffffU) &&
           entry.check.load(std::memory_order_relaxed) == make_check(node, value, nn_modules);
}

[[gnu::hot]] void AutogradNodes::insert(const AutogradNode* node, const NodeNumbers& numbers,
                                        profiler::CallSite site) {
    Entry& entry = entry_of(numbers);
    const std::uint64_t value = numbers.sequence << 32 | site.stack;
    entry.value.store(value, std::memory_order_relaxed);
    entry.nn_modules.store(site.nn_modules, std::memory_order_relaxed);
    entry.check.store(make_check(node, value, site.nn_modules), std::memory_order_relaxed);
}

[[gnu::hot]] void AutogradNodes::forget(const AutogradNode* node, const NodeNumbers& numbers) {
    Entry& entry = entry_of(numbers);
    if (is_of(node, numbers, entry, entry.value.load(std::memory_order_relaxed),
              entry.nn_modules.load(std::memory_order_relaxed))) {
        entry.value.store(0, std::memory_order_relaxed);
    }
}

[[gnu::hot]] profiler::CallSite AutogradNodes::find(const AutogradNode* node) {
    if (!proved() || node == nullptr) {
        return {};
    }
    const NodeNumbers& numbers = numbers_of(*node, layout());
    const Entry& entry = entry_of(numbers);
    const std::uint64_t value = entry.value.load(std::memory_order_relaxed);
    const std::uint32_t nn_modules = entry.nn_modules.load(std::memory_order_relaxed);
    const auto stack =
        is_of(node, numbers, entry, value, nn_modules) ? static_cast<std::uint32_t>(value) : 0;
    if (stack == 0 || (stack & captured) != 0) {
        if (Kind* const kind = find_kind(node->virtual_table)) {
            kind->asked.store(kind->asked.load(std::memory_order_relaxed) + 1,
                              std::memory_order_relaxed);
        }
    }
    return {stack & ~captured, stack != 0 ? nn_modules : 0};
}

}  // namespace memlab::interpose
