#include "report/views/call_tree.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "report/device_label.hpp"
#include "report/views/call_chains.hpp"

namespace memlab::report {

namespace {

class Builder {
  public:
    Builder(Resolver& resolver, const TreeOptions& options)
        : call_chains_(resolver, options.all_frames), options_(options) {}

    CallTree build(const Report& report, const Device& device, const std::vector<bool>& taken,
                   Order order) {
        tree_.device = &device;
        tree_.whole = device_stats(report, device);
        tree_.nodes.emplace_back();
        for (std::size_t i = 0; i < report.sites.size(); ++i) {
            if (report.sites[i].device == device.index && taken.at(i)) {
                add(report.sites[i]);
            }
        }
        sort(order);
        return std::move(tree_);
    }

  private:
    void add(const Site& site) {
        const SiteStats figures = site_stats(site);
        const std::vector<std::size_t>& frames = chain(site.stack);
        std::size_t node = 0;
        tree_.nodes[0].stats.add(figures);
        const auto step = [&](std::size_t frame) {
            const auto [entry, is_new] = children_.try_emplace({node, frame}, tree_.nodes.size());
            if (is_new) {
                tree_.nodes.push_back({node, frame, {}, {}});
                tree_.nodes[node].children.push_back(entry->second);
            }
            node = entry->second;
            tree_.nodes[node].stats.add(figures);
        };
        if (options_.top_down) {
            std::for_each(frames.rbegin(), frames.rend(), step);
        } else {
            std::for_each(frames.begin(), frames.end(), step);
        }
    }

    /// The shown frames of a stack, innermost first.
    const std::vector<std::size_t>& chain(std::size_t stack) {
        auto [entry, is_new] = chains_.try_emplace(stack);
        if (is_new) {
            for (Place place : call_chains_.chain(stack)) {
                // Top-down, a function is one node, whichever of its lines makes the call.
                if (options_.top_down && !entry->second.empty() && !place.function.empty()) {
                    place.line = 0;
                }
                entry->second.push_back(intern(place));
            }
        }
        return entry->second;
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
    std::map<std::pair<std::size_t, std::size_t>, std::size_t> children_;  ///< by parent and frame
    std::map<Place, std::size_t> frame_indexes_;
    std::unordered_map<std::size_t, std::vector<std::size_t>> chains_;  ///< by stack
};

}  // namespace

std::vector<CallTree> call_trees(const Report& report, Resolver& resolver,
                                 const std::vector<bool>& taken, const ViewOptions& options,
                                 const TreeOptions& tree) {
    std::vector<CallTree> trees;
    for (const Device& device : report.devices) {
        if (device.used() && (!options.device || is_on(device.index, *options.device))) {
            trees.push_back(Builder(resolver, tree).build(report, device, taken, options.order));
        }
    }
    return trees;
}

}  // namespace memlab::report
