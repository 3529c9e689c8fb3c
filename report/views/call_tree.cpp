#include "report/views/call_tree.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "report/frame_choice.hpp"
#include "report/names.hpp"
#include "report/symbolizer.hpp"

namespace memlab::report {

namespace {

bool is_python_binary(const StackFrame& frame) {
    const std::string module = base_name(frame.module);
    return module.starts_with("python") || module.starts_with("libpython");
}

/// What every allocation of a framework passes. A frame without a name may be anything.
bool is_noise(const StackFrame& frame) {
    return is_framework_plumbing(frame) && (!frame.function.empty() || is_python_binary(frame));
}

/// Of the C library: what it does before main or a thread's function.
bool is_librarys(const StackFrame& frame) {
    if (frame.python) {
        return false;
    }
    const std::string module = base_name(frame.module);
    return module.starts_with("libc.so") || module.starts_with("ld-linux") ||
           module.starts_with("libpthread") || module.starts_with("libstdc++.so");
}

/// How many of the frames lie inside of the C library's start code; `least` at least.
std::size_t end_of_program(const std::vector<StackFrame>& frames, std::size_t least) {
    std::size_t end = frames.size();
    // _start lies in the program itself, and may have no name.
    if (end >= least + 2 && (frames[end - 1].function == "_start" ||
                             (frames[end - 1].function.empty() && is_librarys(frames[end - 2])))) {
        --end;
    }
    while (end > least && is_librarys(frames[end - 1])) {
        --end;
    }
    return end;
}

class Builder {
  public:
    Builder(Resolver& resolver, const TreeOptions& options)
        : resolver_(resolver), options_(options) {}

    CallTree build(const Report& report, const Device& device, const std::vector<bool>& taken,
                   Order order) {
        tree_.device = &device;
        tree_.whole = figures_of(report, device);
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
        const Figures figures = figures_of(site);
        const std::vector<std::size_t>& way = way_of(site.stack);
        std::size_t node = 0;
        tree_.nodes[0].figures.add(figures);
        const auto step = [&](std::size_t frame) {
            const auto [entry, is_new] = children_.try_emplace({node, frame}, tree_.nodes.size());
            if (is_new) {
                tree_.nodes.push_back({node, frame, {}, {}});
                tree_.nodes[node].children.push_back(entry->second);
            }
            node = entry->second;
            tree_.nodes[node].figures.add(figures);
        };
        if (options_.top_down) {
            std::for_each(way.rbegin(), way.rend(), step);
        } else {
            std::for_each(way.begin(), way.end(), step);
        }
    }

    /// The frames of a stack that are shown, innermost first.
    const std::vector<std::size_t>& way_of(std::size_t stack) {
        auto [entry, is_new] = ways_.try_emplace(stack);
        std::vector<std::size_t>& way = entry->second;
        if (!is_new) {
            return way;
        }
        const std::vector<StackFrame>& frames = resolver_.frames(stack);
        if (frames.empty()) {
            way.push_back(intern(Place{}));
            return way;
        }
        const std::size_t chosen = resolver_.chosen(stack);
        const std::size_t end =
            options_.all_frames ? frames.size() : end_of_program(frames, chosen + 1);
        for (std::size_t i = options_.all_frames ? 0 : chosen; i < end; ++i) {
            if (options_.all_frames || i == chosen || !is_noise(frames[i])) {
                way.push_back(intern(place_of(frames[i])));
            }
        }
        return way;
    }

    Place place_of(const StackFrame& frame) {
        Place place;
        place.recorded = true;
        place.function = frame.python ? frame.function : short_name(frame.function);
        place.file = frame.file;
        place.line = frame.line;
        place.module = frame.module;
        place.address = frame.file.empty() && frame.function.empty() ? frame.address : 0;
        return place;
    }

    const std::string& short_name(const std::string& function) {
        auto [entry, is_new] = short_names_.try_emplace(function);
        if (is_new) {
            entry->second = short_function_name(function);
        }
        return entry->second;
    }

    std::size_t intern(const Place& place) {
        const auto [entry, is_new] = interned_.try_emplace(place, tree_.frames.size());
        if (is_new) {
            tree_.frames.push_back(place);
        }
        return entry->second;
    }

    void sort(Order order) {
        for (CallTree::Node& node : tree_.nodes) {
            std::stable_sort(node.children.begin(), node.children.end(),
                             [&](std::size_t a, std::size_t b) {
                                 return value_of(tree_.nodes[a].figures, order) >
                                        value_of(tree_.nodes[b].figures, order);
                             });
        }
    }

    Resolver& resolver_;
    const TreeOptions& options_;
    CallTree tree_;
    std::map<std::pair<std::size_t, std::size_t>, std::size_t> children_;  ///< by parent and frame
    std::map<Place, std::size_t> interned_;
    std::unordered_map<std::size_t, std::vector<std::size_t>> ways_;  ///< by stack
    std::unordered_map<std::string, std::string> short_names_;
};

}  // namespace

std::vector<CallTree> call_trees(const Report& report, Resolver& resolver,
                                 const std::vector<bool>& taken, const ViewOptions& options,
                                 const TreeOptions& tree) {
    std::vector<CallTree> trees;
    for (const Device& device : report.devices) {
        if (device.used() && (!options.device || *options.device == device.index)) {
            trees.push_back(Builder(resolver, tree).build(report, device, taken, options.order));
        }
    }
    return trees;
}

}  // namespace memlab::report
