// Graphs: nodes with the work they stand for, and executable copies of them.
//
// A launch runs the nodes one after another, in the order they were added (a topological one), as
// one piece of work on the stream. Memory nodes: an allocation node has its address from the moment
// it is added, as the driver's has. Its physical memory is taken when the graph is instantiated and
// given back with the executable graph; freeing it outside the graph makes the next launch legal
// again.
//
// Copies and fills touch memory when the graph is launched, as its owner is then, and in the order
// of the launching stream alone, whatever context the node is for: that an event of that context
// covers them is written nowhere.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/simcuda/driver_abi.hpp"
#include "tests/simcuda/state.hpp"

namespace memlab::simcuda {

struct Graph;

struct Node {
    Graph* graph = nullptr;
    uint64_t id = 0;  // of no other node; an executable graph knows its nodes by it
    Work work;
    std::vector<Node*> dependencies;
    CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
    Graph* child = nullptr;  // the node's own copy
};

struct Graph {
    std::vector<std::unique_ptr<Node>> nodes;
    Context* context = nullptr;
    bool is_child = false;  // lives and dies with a node
};

Graph* add_graph(Context* context);
Graph* find_graph(CUgraph graph);
void destroy_graph(Graph& graph);
CUgraph handle(Graph* graph);
CUgraphNode handle(Node* node);
Node* find_node(CUgraphNode node);

Node& add_node(Graph& graph, Work work, std::vector<Node*> dependencies);

// An address for an allocation node of so many bytes; 0: no address space left.
uint64_t reserve_graph_memory(Context& context, uint64_t bytes);

// Does the range lie in memory that some graph allocates? Work in a capture may use it before it is
// there.
bool is_graph_memory(uint64_t address, uint64_t bytes);

// May a node of this graph free the address? Stream-ordered memory, once.
bool may_free_in(const Graph& graph, uint64_t address);

}  // namespace memlab::simcuda
