#include "interpose/hooks/pytorch_checks.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <new>

#include "profiler/unwind/stack_memory.hpp"

namespace memlab::interpose {
namespace {

/// More than addresses have room for.
constexpr std::uint64_t too_many_bytes = std::uint64_t{1} << 47;

bool is_in_loaded_object(const void* address) {
    dl_find_object found{};
    return _dl_find_object(const_cast<void*>(address), &found) == 0;
}

}  // namespace

bool can_be_read(const void* object, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(object);
    constexpr std::uintptr_t word = sizeof(std::uintptr_t);
    return begin != 0 && begin % word == 0 && begin < too_many_bytes &&
           profiler::unwind::is_readable(begin) &&
           (bytes <= word || profiler::unwind::is_readable(begin + bytes - word));
}

bool looks_like_node(const AutogradNode* node) {
    constexpr std::size_t bytes = std::max(sizeof(SharedNode), sizeof(IntrusiveNode));
    return can_be_read(node, bytes) && is_in_loaded_object(node->virtual_table);
}

bool ReportCheck::believes_unproved(
    const BlockReport& report, FunctionRef<bool(int, std::uint64_t, std::uint64_t)> is_memory) {
    if (state_.load(std::memory_order_relaxed) == State::wrong) {
        return false;
    }
    const std::uint64_t bytes = report.bytes < 0 ? 0 - static_cast<std::uint64_t>(report.bytes)
                                                 : static_cast<std::uint64_t>(report.bytes);
    const bool possible = report.gpu >= 0 && static_cast<std::size_t>(report.gpu) < gpus &&
                          bytes != 0 && bytes < too_many_bytes && report.address != 0 &&
                          report.allocated <= report.reserved && report.reserved < too_many_bytes &&
                          (report.bytes < 0 || bytes <= report.allocated) &&
                          is_memory(report.gpu, report.address, bytes);
    if (possible) {
        const std::uint64_t before =
            totals_[static_cast<std::size_t>(report.gpu)].exchange(report.allocated + 1);
        if (before != 0 &&
            before - 1 + static_cast<std::uint64_t>(report.bytes) != report.allocated) {
            wrong_sums_.fetch_add(1, std::memory_order_relaxed);
        }
    }
    if (!possible || wrong_sums_.load(std::memory_order_relaxed) >= wrong_sums) {
        state_.store(State::wrong, std::memory_order_relaxed);
        return false;
    }
    if (believed_.fetch_add(1, std::memory_order_relaxed) + 1 >= enough) {
        State expected = State::unproved;
        state_.compare_exchange_strong(expected, State::right, std::memory_order_relaxed);
    }
    return true;
}

bool ReportCheck::is_possible_failure(int gpu, std::int64_t bytes, std::uint64_t allocated,
                                      std::uint64_t reserved) {
    return gpu >= 0 && static_cast<std::size_t>(gpu) < gpus && bytes > 0 &&
           static_cast<std::uint64_t>(bytes) < too_many_bytes && allocated <= reserved &&
           reserved < too_many_bytes;
}

/// Drops the reference that a call returned, which is never the last one, since the engine keeps
/// the node itself; returns the node.
const AutogradNode* CurrentNode::release(std::uintptr_t* result, NodeLayout layout) {
    const auto* const node = reinterpret_cast<const AutogradNode*>(result[0]);
    if (layout == NodeLayout::shared) {
        using Pointer = std::shared_ptr<const AutogradNode>;
        static_assert(sizeof(Pointer) == 2 * sizeof(std::uintptr_t));
        std::destroy_at(std::launder(reinterpret_cast<Pointer*>(result)));
        return node;
    }
    if (node == nullptr) {
        return nullptr;
    }
    // The engine has two: its task's, and the thread's. With fewer PyTorch would have to run code
    // of its own, for the Python object that goes with the node; then the reference is left.
    constexpr std::uint64_t pointers = 0xffff'ffff;
    constexpr std::uint64_t engines = 2;
    const std::atomic_ref<std::uint64_t> count(
        const_cast<std::uint64_t&>(static_cast<const IntrusiveNode*>(node)->references));
    std::uint64_t before = count.load(std::memory_order_relaxed);
    do {
        if ((before & pointers) <= engines) [[unlikely]] {
            state_.store(State::wrong, std::memory_order_relaxed);
            return nullptr;
        }
    } while (!count.compare_exchange_weak(before, before - 1, std::memory_order_acq_rel));
    return node;
}

[[gnu::hot]] const AutogradNode* CurrentNode::get(Function* function, NodeLayout layout) {
    if (state_.load(std::memory_order_relaxed) != State::right) [[unlikely]] {
        return get_unproved(function, layout);
    }
    alignas(16) std::uintptr_t result[2];
    function(result);
    return release(result, layout);
}

/// The result has room for a larger one than expected. Where it is not a pointer of that layout's,
/// it is left as it is: what it holds may be kept alive once too often, never once too rarely.
const AutogradNode* CurrentNode::get_unproved(Function* function, NodeLayout layout) {
    if (refuted()) {
        return nullptr;
    }
    constexpr std::uintptr_t untouched = 0x5a5a'5a5a'5a5a'5a5a;
    alignas(16) std::uintptr_t result[32];
    std::fill(std::begin(result), std::end(result), untouched);
    const void* const returned = function(result);
    const std::ptrdiff_t words = layout == NodeLayout::shared ? 2 : 1;
    const bool is_pointer = returned == result &&
                            std::all_of(std::begin(result), std::begin(result) + words,
                                        [](std::uintptr_t word) { return word != untouched; }) &&
                            std::all_of(std::begin(result) + words, std::end(result),
                                        [](std::uintptr_t word) { return word == untouched; });
    if (is_pointer && result[0] == 0) {
        return nullptr;  // no node: of what it returns nothing was learnt
    }
    const auto* const node = reinterpret_cast<const AutogradNode*>(result[0]);
    bool is_node = is_pointer && looks_like_node(node);
    if (is_node && layout == NodeLayout::shared) {
        const auto& shared = static_cast<const SharedNode&>(*node);
        is_node =
            shared.self == node && shared.self_control == reinterpret_cast<const void*>(result[1]);
    } else if (is_node) {
        is_node = is_reference_count(static_cast<const IntrusiveNode&>(*node).references);
    }
    if (!is_node) {
        state_.store(State::wrong, std::memory_order_relaxed);
        return nullptr;
    }
    const AutogradNode* const found = release(result, layout);
    State expected = State::unproved;
    state_.compare_exchange_strong(expected, State::right, std::memory_order_relaxed);
    return found;
}

}  // namespace memlab::interpose
