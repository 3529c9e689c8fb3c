// The processes of a run as the tree that they were: who started whom, which image followed which
// by exec, and the processes without CUDA between them as far as memlab-run could see them.
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
    std::size_t member =
        no_member;  ///< index into RunCollection::members; none: it recorded nothing
    std::string host;
    std::uint64_t pid = 0;
    std::string command;             ///< of a process that recorded nothing, as far as it is known
    bool by_exec = false;            ///< the parent node became this one
    std::size_t parent = no_member;  ///< index into the list of nodes
    std::vector<std::size_t> children;
};

struct ProcessTree {
    std::vector<TreeNode> nodes;  ///< members first, in their order
    std::vector<std::size_t> roots;

    /// True where another image of the same process follows the node's.
    bool became_another(const TreeNode& node) const {
        return std::any_of(node.children.begin(), node.children.end(),
                           [this](std::size_t child) { return nodes[child].by_exec; });
    }
};

/// The parent of a member is the member of that process id and host that began last before it. A
/// member of the same process id is its predecessor by exec when the process was the same (its
/// start time, or, where that is unknown, the same parent and a recording that was cut off).
/// Processes that recorded nothing are there where they connect two others or where memlab-run
/// named them.
ProcessTree build_tree(const RunCollection& run);

}  // namespace memlab::report
