#include "report/views/call_tree.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "report/lacks.hpp"
#include "report/views/call_chains.hpp"

namespace memlab::report {

namespace {

class Builder {
  public:
    Builder(Resolver& resolver, const TreeOptions& options)
        : call_chains_(resolver, options.all_frames), options_(options) {}

    CallTree build(const model::Report& report, const ViewedMemory& memory,
                   const std::vector<bool>& taken, Order order) {
        tree_.device = &memory.device();
        tree_.live_heading = moment_column(report, "at end");
        tree_.kind = memory.kind();
        tree_.whole = memory.stats(report);
        tree_.nodes.emplace_back();
        for (std::size_t i = 0; i < report.sites.size(); ++i) {
            if (memory.has(report.sites[i]) && taken.at(i)) {
                add(report.sites[i], memory.stats(report.sites[i], i));
            }
        }
        children_.clear();
        chains_.clear();
        if (options_.top_down) {
            join_single_lines();
        }
        sort(order);
        return std::move(tree_);
    }

  private:
    void add(const model::Site& site, const SiteStats& figures) {
        const std::vector<std::size_t>& frames = chain(site.stack);
        std::size_t node = 0;
        tree_.nodes[0].stats.add(figures);
        const auto step = [&](std::size_t frame, const std::string& kind, bool self) {
            const auto [entry, is_new] =
                children_.try_emplace({node, frame, kind, self}, tree_.nodes.size());
            if (is_new) {
                tree_.nodes.push_back({node, frame, kind, self, {}, {}});
                tree_.nodes[node].children.push_back(entry->second);
            }
            node = entry->second;
            tree_.nodes[node].stats.add(figures);
        };
        if (!options_.top_down) {
            step(frames.front(), site.kind, false);
            std::for_each(frames.begin() + 1, frames.end(),
                          [&](std::size_t frame) { step(frame, "", false); });
            return;
        }
        std::for_each(frames.rbegin(), frames.rend() - 1,
                      [&](std::size_t frame) { step(frame, "", false); });
        const Place place = tree_.frames[frames.front()];
        const bool named = !place.function.empty();
        if (named) {
            step(intern(without_line(place)), "", false);
        }
        step(frames.front(), site.kind, named);
    }

    static Place without_line(Place place) {
        place.line = 0;
        return place;
    }

    /// The shown frames of a stack, innermost first.
    const std::vector<std::size_t>& chain(std::size_t stack) {
        auto [entry, is_new] = chains_.try_emplace(stack);
        if (is_new) {
            for (const Place& place : call_chains_.chain(stack)) {
                // Top-down, a function is one node, whichever of its lines makes the call.
                const bool any_line =
                    options_.top_down && !entry->second.empty() && !place.function.empty();
                entry->second.push_back(intern(any_line ? without_line(place) : place));
            }
            call_chains_.forget(stack);
        }
        return entry->second;
    }

    /// A function that only allocates, in one line, is that line: one node.
    void join_single_lines() {
        std::vector<std::size_t> index(tree_.nodes.size());  // among those that stay
        std::vector<CallTree::Node> kept;
        for (std::size_t i = 0; i < tree_.nodes.size(); ++i) {
            CallTree::Node& node = tree_.nodes[i];
            if (node.self && kept[index[node.parent]].children.size() == 1) {
                CallTree::Node& function = kept[index[node.parent]];
                function.frame = node.frame;
                function.kind = std::move(node.kind);
                function.children.clear();
                index[i] = index[node.parent];
                continue;
            }
            index[i] = kept.size();
            kept.push_back(std::move(node));
        }
        for (CallTree::Node& node : kept) {
            node.parent = node.parent == CallTree::no_node ? node.parent : index[node.parent];
            for (std::size_t& child : node.children) {
                child = index[child];
            }
        }
        tree_.nodes = std::move(kept);
    }

    std::size_t intern(const Place& place) {
        const auto [entry, is_new] = frame_indexes_.try_emplace(place, tree_.frames.size());
        if (is_new) {
            tree_.frames.push_back(place);
        }
        return entry->second;
    }

    void sort(Order order) {
        for (CallTree::Node& node : tree_.nodes) {
            std::stable_sort(node.children.begin(), node.children.end(),
                             [&](std::size_t a, std::size_t b) {
                                 return sort_value(tree_.nodes[a].stats, order) >
                                        sort_value(tree_.nodes[b].stats, order);
                             });
        }
    }

    CallChains call_chains_;
    const TreeOptions& options_;
    CallTree tree_;
    /// By parent, frame, kind and self.
    std::map<std::tuple<std::size_t, std::size_t, std::string, bool>, std::size_t> children_;
    std::map<Place, std::size_t> frame_indexes_;
    std::unordered_map<std::size_t, std::vector<std::size_t>> chains_;  ///< by stack
};

}  // namespace

std::vector<CallTree> call_trees(const model::Report& report, Resolver& resolver,
                                 const std::vector<bool>& taken, const ViewOptions& options,
                                 const TreeOptions& tree) {
    std::vector<CallTree> trees;
    for (const ViewedMemory& memory : viewed_memory(report, taken, options.order, options.device)) {
        trees.push_back(Builder(resolver, tree).build(report, memory, taken, options.order));
    }
    return trees;
}

}  // namespace memlab::report
