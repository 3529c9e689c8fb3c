// The call stacks of a report as one tree. Bottom-up it begins where memory was allocated and
// branches into the callers; top-down it begins at the outermost function. Each node carries the
// sums of the stacks that pass through it. From below, callers are told apart by the line that
// calls; from above, a function is one node, whichever of its lines calls on.
//
// Between the application and CUDA lie frames that every allocation passes, and outside of main
// lies the C library's start: they are left out unless asked for, so that the tree begins at the
// place that every other table shows.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/symbols/resolver.hpp"
#include "report/views/figures.hpp"
#include "report/views/site_table.hpp"

namespace memlab::report {

struct CallTree {
    static constexpr std::size_t no_node = static_cast<std::size_t>(-1);

    struct Node {
        std::size_t parent = no_node;  ///< before this one
        std::size_t frame = 0;         ///< index into `frames`
        Figures figures;
        std::vector<std::size_t> children;  ///< largest first
    };

    const Device* device = nullptr;
    Figures whole;              ///< of the device
    std::vector<Place> frames;  ///< each once; a Place without `recorded` stands for no stack
    std::vector<Node> nodes;    ///< the first stands for all stacks that the filter took
};

struct TreeOptions {
    bool top_down = false;
    bool all_frames = false;
    /// Children below this share of the whole are summed up.
    double least_share = 0.01;
};

/// A tree for each device that was used; takes what site_tables() takes. Stacks may be as deep as
/// they like: nothing here recurses.
std::vector<CallTree> call_trees(const Report& report, Resolver& resolver,
                                 const std::vector<bool>& taken, const ViewOptions& options,
                                 const TreeOptions& tree);

/// For people; ends with a newline. options.top bounds the children of a node.
std::string render_tree_text(const std::vector<CallTree>& trees, const ViewOptions& options,
                             const TreeOptions& tree);

/// {file, direction, sort, filter (null: none), devices [index, name, total, nodes [parent, depth,
/// function, file, line, module, address, share, <figures>, others {nodes, <figures>} or null]]}.
/// A flat list, each node after its parent: the first has parent null and stands for all; `others`
/// sums the children that are left out.
std::string render_tree_json(const std::string& file, const std::vector<CallTree>& trees,
                             const ViewOptions& options, const TreeOptions& tree);

}  // namespace memlab::report
