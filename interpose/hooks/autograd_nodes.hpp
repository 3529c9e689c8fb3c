// Which call made a node of PyTorch's backward graph: the stack and the nn.Modules of what the
// operator allocated, or, of an operator that allocates nothing, of the end of its forward.
//
// The code that PyTorch generates for an operator (VariableType) makes its node first, which takes
// the thread's next sequence number; then runs the kernel, which allocates; then makes the node the
// outputs' grad_fn by torch::autograd::impl::set_gradient_edge(). So what the thread allocated in
// between, while no other node took a number, was allocated by the operator.
//
// A node is known by its address *and* its number, since addresses are reused; where both are, by
// threads that begin to count again, the newest node is the one that is known. The number is read
// from the node, as its header has it: function.h of PyTorch 1.13 to 2.11, where nodes are held by
// shared pointers, or node.h of 2.14, where they count their references themselves. Nothing is
// believed until one of the two has proved right: the weak pointer leads back to the node, or the
// count of references is one; the numbers of new nodes are those that the thread's counter handed
// out, and those of one thread are all of the same thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "profiler/call_site.hpp"
#include "trace/prefetch.hpp"

namespace memlab::interpose {

/// What every torch::autograd::Node begins with.
struct AutogradNode {
    const void* virtual_table;
};

/// What of a node's own members is read.
struct NodeNumbers {
    std::uint64_t sequence;
    std::uint64_t topological;
    std::uint64_t flags;   ///< its first byte: whether it has a parent
    std::uint64_t thread;  ///< by PyTorch's count; only tells nodes of equal numbers apart
};

/// A node with std::enable_shared_from_this: its weak pointer to itself.
struct SharedNode : AutogradNode {
    const AutogradNode* self;
    const void* self_control;
    NodeNumbers numbers;
};

/// A node that is a c10::intrusive_ptr_target.
struct IntrusiveNode : AutogradNode {
    /// Lower half: pointers to it; upper half: weak ones, and in the highest bit whether there is
    /// a Python object of it.
    std::uint64_t references;
    NodeNumbers numbers;
};

enum class NodeLayout : std::uint8_t { unproved, shared, intrusive, wrong };

/// torch::autograd::Edge: a pointer to a node, and a number behind it.
struct AutogradEdge {
    const AutogradNode* node;
    const void* control;  ///< of a shared pointer; of an intrusive one the number is here
};

/// `layout`: shared or intrusive.
inline const NodeNumbers& numbers_of(const AutogradNode& node, NodeLayout layout) {
    return layout == NodeLayout::intrusive ? static_cast<const IntrusiveNode&>(node).numbers
                                           : static_cast<const SharedNode&>(node).numbers;
}

/// Whether a count of references can be that of a node that somebody holds.
inline bool is_reference_count(std::uint64_t references) {
    constexpr std::uint64_t most = std::uint64_t{1} << 24;
    const std::uint64_t strong = references & 0xffff'ffffU;
    const std::uint64_t weak = references << 1 >> 33;
    return strong != 0 && strong < most && weak != 0 && weak < most;
}

/// Thread-safety: all member functions, from any thread; without a lock or an allocation. The
/// newest `capacity` nodes of a thread are known, fewer where several threads make so many.
class AutogradNodes {
  public:
    static constexpr std::size_t capacity = 16384;

    constexpr AutogradNodes() = default;
    AutogradNodes(const AutogradNodes&) = delete;
    AutogradNodes& operator=(const AutogradNodes&) = delete;

    /// The calling thread allocated there while the next sequence number was `next`.
    static void allocated(std::uint64_t next, profiler::CallSite site) {
        if (newest.next != next) {
            newest = {next, site};
        }
    }

    /// The calling thread gives a tensor its grad_fn, while the next sequence number is `next`.
    /// `capture` returns where the thread is; it is called where the operator allocated
    /// nothing, for the first nodes of a kind, and while backward allocates for most of a kind.
    template <class Capture>
    void attached(const AutogradEdge& edge, std::uint64_t next, const Capture& capture) {
        const AutogradNode* const node = edge.node;
        const NodeLayout layout =
            node == nullptr || refuted() ? NodeLayout::wrong : layout_if_newest(edge, next);
        if (layout == NodeLayout::wrong) {
            return;
        }
        const NodeNumbers& numbers = numbers_of(*node, layout);
        profiler::CallSite site;
        if (newest.next == next) {
            if (newest.site.stack == attached_already) {
                return;  // an operator with several outputs
            }
            site = newest.site;
        }
        newest = {next, {attached_already}};
        prefetch_entries(numbers);
        if (site.stack == 0 && is_asked_for(node->virtual_table)) {
            site = capture();
            site.stack |= site.stack != 0 ? captured : 0;
        }
        if (site.stack != 0) {
            insert(node, numbers, site);
        } else {
            forget(node, numbers);
        }
    }

    /// As attached(), of an edge whose node cannot be read or is nothing like one.
    void unlike_a_node() { vote(NodeLayout::wrong); }

    /// The call that made the node, which backward is evaluating; no stack: unknown.
    profiler::CallSite find(const AutogradNode* node);

    /// Whether nodes are as they are read here; both are false until enough of them were seen.
    bool proved() const {
        const NodeLayout now = layout();
        return now == NodeLayout::shared || now == NodeLayout::intrusive;
    }
    bool refuted() const { return layout() == NodeLayout::wrong; }
    NodeLayout layout() const { return layout_.load(std::memory_order_relaxed); }
    bool none_seen() const { return votes_.load(std::memory_order_relaxed) == 0; }

  private:
    /// Votes of the first nodes; a few may be against, of operators that make several nodes.
    static constexpr std::uint32_t votes = 8;
    static constexpr std::uint32_t votes_for = 6;

    /// Not the id of a stack.
    static constexpr std::uint32_t attached_already = ~std::uint32_t{0};

    /// The first allocation since the thread's newest node took its number.
    struct Newest {
        std::uint64_t next = 0;
        profiler::CallSite site;
    };
    // Initial-exec: see profiler/thread_id.cpp.
    __attribute__((tls_model("initial-exec"))) static constinit thread_local Newest newest;
    /// What the calling thread's first node said of its thread, plus 1; 0: there was none.
    __attribute__((
        tls_model("initial-exec"))) static constinit thread_local std::uint64_t own_thread;

    struct Entry {
        std::atomic<std::uint64_t> check;  ///< the node's address, mixed with what follows
        std::atomic<std::uint64_t> value;  ///< upper half: of the number; lower: the stack
        std::atomic<std::uint32_t> nn_modules;
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

    void vote(NodeLayout in_favour);
    static NodeLayout fitting_layout(const AutogradEdge& edge, std::uint64_t next);
    NodeLayout layout_if_newest(const AutogradEdge& edge, std::uint64_t next);
    bool is_asked_for(const void* virtual_table);
    Kind* find_kind(const void* virtual_table);
    void insert(const AutogradNode* node, const NodeNumbers& numbers, profiler::CallSite site);
    void forget(const AutogradNode* node, const NodeNumbers& numbers);
    static bool is_of(const AutogradNode* node, const NodeNumbers& numbers, const Entry& entry,
                      std::uint64_t value, std::uint32_t nn_modules);

    /// Numbers that follow each other lie together; those of another thread elsewhere.
    static std::uint64_t index_of(const NodeNumbers& node) {
        constexpr std::uint64_t stride = 4099;
        return node.sequence + node.thread * stride;
    }
    Entry& entry_of(const NodeNumbers& node) { return entries_[index_of(node) % capacity]; }

    /// Of the nodes that follow soon: it was long ago that entries there were used.
    void prefetch_entries(const NodeNumbers& node) {
        constexpr std::uint64_t ahead = 8;
        trace::prefetch_to_write<1>(&entries_[(index_of(node) + ahead) % capacity]);
    }

    std::atomic<NodeLayout> layout_{NodeLayout::unproved};
    std::atomic<std::uint32_t> votes_{0};
    std::array<std::atomic<std::uint32_t>, 4> votes_for_{};  ///< by NodeLayout
    std::array<Kind, kinds> kinds_{};
    std::array<Entry, capacity> entries_{};
};

}  // namespace memlab::interpose
