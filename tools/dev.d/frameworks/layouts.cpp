// Compiled against PyTorch's headers by tools/dev frameworks, with access to all members: prints
// each layout that memlab reads, a line "what<TAB>as memlab has it<TAB>as PyTorch has it".
#if __has_include(<torch/csrc/autograd/node.h>)
#include <torch/csrc/autograd/node.h>
#else
#include <torch/csrc/autograd/function.h>
#endif
#include <ATen/SequenceNumber.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <type_traits>

#include "interpose/hooks/autograd_nodes.hpp"

namespace mi = memlab::interpose;
using Node = torch::autograd::Node;
using Edge = torch::autograd::Edge;
using Pointer = decltype(torch::autograd::get_current_node());

namespace {

constexpr bool shared = std::is_same_v<Pointer, std::shared_ptr<Node>>;
using Ours = std::conditional_t<shared, mi::SharedNode, mi::IntrusiveNode>;

void print(const char* what, std::size_t ours, std::size_t theirs) {
    std::printf("%s\t%zu\t%zu\n", what, ours, theirs);
}

constexpr std::size_t of_numbers(std::size_t member) {
    return offsetof(Ours, numbers) + member;
}

/// One of the two kinds of pointers that memlab takes apart, to a node that goes with it.
template <class T>
constexpr bool is_known_pointer() {
    if constexpr (shared) {
        return std::is_base_of_v<std::enable_shared_from_this<T>, T>;
    } else {
        return sizeof(Pointer) == sizeof(void*) && !std::is_trivially_destructible_v<Pointer> &&
               offsetof(T, combined_refcount_) == offsetof(mi::IntrusiveNode, references);
    }
}

}  // namespace

int main() {
    print("get_current_node() returns a known pointer", 1, is_known_pointer<Node>() ? 1 : 0);
    print("Node: bytes before its own members", of_numbers(0), offsetof(Node, sequence_nr_));
    print("Node::sequence_nr_", of_numbers(offsetof(mi::NodeNumbers, sequence)),
          offsetof(Node, sequence_nr_));
    print("Node::sequence_nr_, bytes", sizeof(mi::NodeNumbers::sequence),
          sizeof(Node::sequence_nr_));
    print("Node::topological_nr_", of_numbers(offsetof(mi::NodeNumbers, topological)),
          offsetof(Node, topological_nr_));
    print("Node::has_parent_", of_numbers(offsetof(mi::NodeNumbers, flags)),
          offsetof(Node, has_parent_));
    print("Node::thread_id_", of_numbers(offsetof(mi::NodeNumbers, thread)),
          offsetof(Node, thread_id_));
    print("Node::thread_id_, bytes", sizeof(mi::NodeNumbers::thread), sizeof(Node::thread_id_));
    print("Edge::function", offsetof(mi::AutogradEdge, node), offsetof(Edge, function));
    print("Edge is passed by address", 1, std::is_trivially_copyable_v<Edge> ? 0 : 1);
    print("sequence_number::peek(), bytes", sizeof(std::uint64_t),
          sizeof(at::sequence_number::peek()));
    print("DeviceType::CUDA", 1, static_cast<std::size_t>(c10::DeviceType::CUDA));
    print("Device, bytes", 2, sizeof(c10::Device));
    print("Device::type_", 0, offsetof(c10::Device, type_));
    print("Device::index_", 1, offsetof(c10::Device, index_));
    return 0;
}
