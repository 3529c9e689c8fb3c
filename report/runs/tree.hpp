// The process tree of a run: parents, images replaced by exec, and the processes without CUDA
// between them as far as memlab-run saw them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "report/runs/collection.hpp"

namespace memlab::report {

inline constexpr std::size_t no_member = static_cast<std::size_t>(-1);

struct TreeNode {
    /// Index into RunCollection::members; no_member: the process recorded nothing.
    std::size_t member = no_member;
    std::string host;
    std::uint64_t pid = 0;
    std::string command;                ///< of a process that recorded nothing, if known
    bool by_exec = false;               ///< the parent node is the previous image of this process
    std::size_t parent = no_member;     ///< index into the list of nodes
    std::vector<std::size_t> children;  ///< by rank, then those without one; as members else
};

struct ProcessTree {
    std::vector<TreeNode> nodes;     ///< members first, in their order
    std::vector<std::size_t> roots;  ///< in the order of children

    /// True if the node's image was replaced by exec.
    bool became_another(const TreeNode& node) const {
        return std::any_of(node.children.begin(), node.children.end(),
                           [this](std::size_t child) { return nodes[child].by_exec; });
    }
};

/// The parent of a member is the latest earlier member with its parent's process id and host. A
/// member with the same process id is its previous image if the process is the same (equal start
/// ticks or, if these are unknown, the same parent and a recording that was cut off). Processes
/// that recorded nothing are included if they connect two others or memlab-run named them.
ProcessTree build_tree(const RunCollection& run);

}  // namespace memlab::report
