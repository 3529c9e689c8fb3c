// Which call made a node of PyTorch's backward graph: the stack of what the operator allocated, or,
// of an operator that allocates nothing, of the end of its forward.
//
// The code that PyTorch generates for an operator (VariableType) makes its node first, which takes
// the thread's next sequence number; then runs the kernel, which allocates; then makes the node the
// outputs' grad_fn by torch::autograd::impl::set_gradient_edge(). So what the thread allocated in
// between, while no other node took a number, the operator allocated, and nobody else.
//
// A node is known by its address *and* its number, since addresses are reused; where both are, by
// threads that begin to count anew, the newest node is the one that is known. The number is read
// from the node, as releases from 1.13 to 2.11 lay it out (torch/csrc/autograd/function.h): behind
// the virtual table's address and the weak pointer to itself of std::enable_shared_from_this.
// Nothing is believed until the layout has proved right: the weak pointer leads back to the node,
// and the numbers of new nodes are those that the thread's counter handed out.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "trace/prefetch.hpp"

namespace memlab::interpose {

/// What of torch::autograd::Node is read.
struct AutogradNode {
    const void* virtual_table;
    const AutogradNode* self;
    const void* self_control;  ///< of the weak pointer
    std::uint64_t sequence;
    std::uint64_t topological;
    std::uint64_t has_parent;
    std::uint64_t thread;  ///< by PyTorch's count; only tells nodes of equal numbers apart
};

/// torch::autograd::Edge: a shared pointer to a node, and a number.
struct AutogradEdge {
    const AutogradNode* node;
    const void* control;
    std::uint32_t input;
};

/// Thread-safety: all member functions, from any thread; without a lock or an allocation. The
/// newest `capacity` nodes of a thread are known, fewer where several threads make so many.
class AutogradNodes {
  public:
    static constexpr std::size_t capacity = 16384;

    constexpr AutogradNodes() = default;
    AutogradNodes(const AutogradNodes&) = delete;
    AutogradNodes& operator=(const AutogradNodes&) = delete;

    /// The calling thread allocated with this stack while the next sequence number was `next`.
    static void allocated(std::uint64_t next, std::uint32_t stack) {
        if (newest.next != next) {
            newest = {next, stack};
        }
    }

    /// The calling thread gives a tensor its grad_fn, while the next sequence number is `next`.
    /// `capture` returns the id of the thread's stack; it is called where the operator allocated
    /// nothing, for the first nodes of a kind, and while backward allocates for most of a kind.
    template <class Capture>
    void attached(const AutogradEdge& edge, std::uint64_t next, const Capture& capture) {
        const AutogradNode* const node = edge.node;
        if (node == nullptr || refuted() || !is_newest(edge, next)) {
            return;
        }
        std::uint32_t stack = 0;
        if (newest.next == next) {
            if (newest.stack == attached_already) {
                return;  // an operator with several outputs
            }
            stack = newest.stack;
        }
        newest = {next, attached_already};
        prefetch_entries(*node);
        if (stack == 0 && is_asked_for(node->virtual_table)) {
            stack = capture();
            stack |= stack != 0 ? captured : 0;
        }
        if (stack != 0) {
            insert(*node, stack);
        } else {
            forget(*node);
        }
    }

    /// The stack of the call that made the node, which backward is evaluating; 0: unknown.
    std::uint32_t find(const AutogradNode* node);

    /// Whether nodes are as they are read here; both are false until enough of them were seen.
    bool proved() const { return layout_.load(std::memory_order_relaxed) == Layout::right; }
    bool refuted() const { return layout_.load(std::memory_order_relaxed) == Layout::wrong; }
    bool none_seen() const { return votes_.load(std::memory_order_relaxed) == 0; }

  private:
    enum class Layout : std::uint8_t { unproved, right, wrong };
    /// Votes of the first nodes; a few may be against, of operators that make several nodes.
    static constexpr std::uint32_t votes = 8;
    static constexpr std::uint32_t votes_for = 6;

    /// Not the id of a stack.
    static constexpr std::uint32_t attached_already = ~std::uint32_t{0};

    /// The first allocation since the thread's newest node took its number.
    struct Newest {
        std::uint64_t next = 0;
        std::uint32_t stack = 0;
    };
    // Initial-exec: see profiler/thread_id.cpp.
    __attribute__((tls_model("initial-exec"))) static constinit thread_local Newest newest;

    struct Entry {
        std::atomic<std::uint64_t> check;  ///< the node's address, mixed with `value`
        std::atomic<std::uint64_t> value;  ///< upper half: of the number; lower: the stack
    };
    /// In Entry::value: the operator allocated nothing.
    static constexpr std::uint32_t captured = std::uint32_t{1} << 31;
    /// A kind of nodes whose operators allocate nothing.
    struct Kind {
        std::atomic<const void*> virtual_table;
        std::atomic<std::uint32_t> made;
        std::atomic<std::uint32_t> asked;  ///< allocations of backward
    };
    static constexpr std::size_t kinds = 512;
    /// So many of a kind are captured whether or not backward allocates for it.
    static constexpr std::uint32_t trial = 16;

    bool is_newest(const AutogradEdge& edge, std::uint64_t next);
    bool is_asked_for(const void* virtual_table);
    Kind* find_kind(const void* virtual_table);
    void insert(const AutogradNode& node, std::uint32_t stack);
    void forget(const AutogradNode& node);
    static bool is_of(const AutogradNode& node, const Entry& entry, std::uint64_t value);

    /// Numbers that follow each other lie together; those of another thread elsewhere.
    static std::uint64_t index_of(const AutogradNode& node) {
        constexpr std::uint64_t stride = 4099;
        return node.sequence + node.thread * stride;
    }
    Entry& entry_of(const AutogradNode& node) { return entries_[index_of(node) % capacity]; }

    /// Of the nodes that follow soon: it was long ago that entries there were used.
    void prefetch_entries(const AutogradNode& node) {
        constexpr std::uint64_t ahead = 8;
        trace::prefetch_to_write<1>(&entries_[(index_of(node) + ahead) % capacity]);
    }

    std::atomic<Layout> layout_{Layout::unproved};
    std::atomic<std::uint32_t> votes_{0};
    std::atomic<std::uint32_t> votes_for_{0};
    std::array<Kind, kinds> kinds_{};
    std::array<Entry, capacity> entries_{};
};

}  // namespace memlab::interpose
