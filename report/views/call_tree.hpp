// The call stacks of a report merged into a tree. Bottom-up, the roots are the allocating places
// and the children their callers; top-down, the roots are the outermost functions. Each node has
// the sums of the stacks through it. Bottom-up, callers are distinguished by calling line;
// top-down, a function is one node, whichever of its lines makes the call, and what its own lines
// allocate is below it. Places are distinguished by the kind of memory, too.
//
// Frames between the application and CUDA, which every allocation has, and the C library's startup
// code outside of main are left out by default, so that the tree begins at the place that all other
// tables show.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/symbols/resolver.hpp"
#include "report/views/site_stats.hpp"
#include "report/views/site_table.hpp"

namespace memlab::report {

struct CallTree {
    static constexpr std::size_t no_node = static_cast<std::size_t>(-1);

    struct Node {
        std::size_t parent = no_node;  ///< index into `nodes`, less than its own
        std::size_t frame = 0;         ///< index into `frames`
        std::string kind;              ///< of a place: its kind of memory; else empty
        bool self = false;             ///< a line of its parent's function, not a call
        SiteStats stats;
        std::vector<std::size_t> children;  ///< largest first
    };

    const model::Device* device = nullptr;
    std::string live_heading;   ///< of what is live
    std::string kind;           ///< ViewedMemory::kind()
    SiteStats whole;            ///< of the device
    std::vector<Place> frames;  ///< unique; a Place without `recorded` means: no stack
    std::vector<Node> nodes;    ///< the first is the root: all stacks that match the filter
};

struct TreeOptions {
    bool top_down = false;
    bool all_frames = false;
    /// Children below this share of the whole are summed up as others.
    double min_share = 0.01;
};

/// A tree for each viewed_memory(); parameters as of site_tables(). Not recursive: stacks may be of
/// any depth.
std::vector<CallTree> call_trees(const model::Report& report, Resolver& resolver,
                                 const std::vector<bool>& taken, const ViewOptions& options,
                                 const TreeOptions& tree);

/// Text; ends with a newline. options.top limits the children of a node.
std::string render_tree_text(const std::vector<CallTree>& trees, const ViewOptions& options,
                             const TreeOptions& tree);

/// {file, direction, sort, filter (null: none), devices [index, name, total, nodes [parent, depth,
/// function, file, line, module, address, kind, self, share, <stats>, others {nodes, <stats>} or
/// null], kinds (as of render_sites_json())]}.
/// A flat list, each node after its parent: the first is the root, with parent null; `others` sums
/// the children that are left out.
std::string render_tree_json(const std::string& file, const std::vector<CallTree>& trees,
                             const ViewOptions& options, const TreeOptions& tree);

}  // namespace memlab::report
