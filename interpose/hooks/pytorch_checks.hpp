// Validates arguments and results of PyTorch's functions before they are used: a release may change
// what a function passes without changing its name. What does not look as expected is not read from
// then on, and the report says so (Memory::pytorch_not_read).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "interpose/driver/function_ref.hpp"
#include "interpose/hooks/autograd_nodes.hpp"

namespace memlab::interpose {

/// A block that PyTorch's cache hands out (`bytes` above 0) or takes back, and what it says that it
/// has then allocated and reserved on that GPU.
struct BlockReport {
    int gpu;
    std::uint64_t address;
    std::int64_t bytes;
    std::uint64_t allocated;
    std::uint64_t reserved;
};

/// Whether reports of blocks are what memlab takes them for. Thread-safe; without a lock.
class ReportCheck {
  public:
    constexpr ReportCheck() = default;
    ReportCheck(const ReportCheck&) = delete;
    ReportCheck& operator=(const ReportCheck&) = delete;

    /// Whether to record it. The first `enough` are checked: sizes and totals are possible, the
    /// block lies in that GPU's memory (`is_memory`, which is only asked then), and the totals
    /// change as the blocks do. One that fails is the last that is looked at.
    bool believes(
        const BlockReport& report,
        FunctionRef<bool(int gpu, std::uint64_t address, std::uint64_t bytes)> is_memory) {
        return state_.load(std::memory_order_relaxed) == State::right ||
               believes_unproved(report, is_memory);
    }

    /// Whether a failure's figures are possible; each is checked, since they are rare.
    static bool is_possible_failure(int gpu, std::int64_t bytes, std::uint64_t allocated,
                                    std::uint64_t reserved);

    static constexpr std::uint32_t enough = 8;
    /// Totals that are not the sum: more of them than a start in the middle explains.
    static constexpr std::uint32_t wrong_sums = 3;

  private:
    enum class State : std::uint8_t { unproved, right, wrong };
    static constexpr std::size_t gpus = 64;

    bool believes_unproved(const BlockReport& report,
                           FunctionRef<bool(int, std::uint64_t, std::uint64_t)> is_memory);

    std::atomic<State> state_{State::unproved};
    std::atomic<std::uint32_t> believed_{0};
    std::atomic<std::uint32_t> wrong_sums_{0};
    std::array<std::atomic<std::uint64_t>, gpus> totals_{};  ///< plus 1; 0: none seen
};

/// Calls torch::autograd::get_current_node(). Its return type is not part of its name: until a call
/// has proved that it returns a pointer of the kind that nodes have, what it returns is only looked
/// at. Thread-safe; without a lock.
class CurrentNode {
  public:
    /// As the compiler calls a function that returns a smart pointer: it gets the address of the
    /// result, and returns it.
    using Function = void*(void* result);

    constexpr CurrentNode() = default;
    CurrentNode(const CurrentNode&) = delete;
    CurrentNode& operator=(const CurrentNode&) = delete;

    /// The node that the calling thread evaluates, which the engine keeps meanwhile; null: none, or
    /// what was returned is nothing that is known. `layout`: shared or intrusive, of nodes.
    const AutogradNode* get(Function* function, NodeLayout layout);
    bool refuted() const { return state_.load(std::memory_order_relaxed) == State::wrong; }

  private:
    enum class State : std::uint8_t { unproved, right, wrong };
    const AutogradNode* get_unproved(Function* function, NodeLayout layout);
    const AutogradNode* release(std::uintptr_t* result, NodeLayout layout);

    std::atomic<State> state_{State::unproved};
};

/// Whether all of the object can be read. System calls.
bool can_be_read(const void* object, std::size_t bytes);

/// Whether it can be read as a node, and its virtual table is a loaded library's. System calls.
bool looks_like_node(const AutogradNode* node);

}  // namespace memlab::interpose
