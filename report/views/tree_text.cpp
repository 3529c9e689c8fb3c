// Text and JSON output of a call tree; both show the same nodes.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "report/device_label.hpp"
#include "report/summary/json_values.hpp"
#include "report/summary/place_text.hpp"
#include "report/text/page.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"
#include "report/views/call_tree.hpp"

namespace memlab::report {

namespace {

/// Which children of a node are shown.
struct Shown {
    std::size_t count = 0;   ///< the first `count` children
    std::size_t others = 0;  ///< number of children left out
    SiteStats rest;          ///< their sum
};

Shown choose(const CallTree& tree, const CallTree::Node& node, const ViewOptions& options,
             const TreeOptions& how) {
    const double whole = static_cast<double>(sort_value(tree.whole, options.order));
    Shown shown;
    for (const std::size_t child : node.children) {
        const SiteStats& figures = tree.nodes[child].stats;
        const std::uint64_t value = sort_value(figures, options.order);
        // A child whose figure is 0 is never shown, whatever the threshold.
        if (value != 0 && shown.others == 0 && shown.count < options.top &&
            static_cast<double>(value) >= how.min_share * whole) {
            ++shown.count;
        } else {
            ++shown.others;
            shown.rest.add(figures);
        }
    }
    return shown;
}

/// Calls visit(node, depth, shown children) for each shown node, parents and larger nodes first,
/// and leave(depth, shown children) after its children. Not recursive: a stack may be deep.
void walk(const CallTree& tree, const ViewOptions& options, const TreeOptions& how,
          const std::function<void(std::size_t, std::size_t, const Shown&)>& visit,
          const std::function<void(std::size_t, const Shown&)>& leave) {
    struct Open {
        std::size_t node;
        std::size_t next;
        Shown shown;
    };
    std::vector<Open> open;
    const auto enter = [&](std::size_t node) {
        const Shown shown = choose(tree, tree.nodes[node], options, how);
        visit(node, open.size(), shown);
        open.push_back({node, 0, shown});
    };
    enter(0);
    while (!open.empty()) {
        Open& top = open.back();
        if (top.next < top.shown.count) {
            enter(tree.nodes[top.node].children[top.next++]);
            continue;
        }
        leave(open.size(), top.shown);
        open.pop_back();
    }
}

class TreeText {
  public:
    TreeText(const ViewOptions& options, const TreeOptions& how)
        : options_(options), how_(how), page_(options.style) {}

    std::string write(const std::vector<CallTree>& trees) {
        for (const CallTree& tree : trees) {
            if (!tree.kind.empty() || options_.order != Order::peak ||
                !is_outside_curves_only(*tree.device)) {
                one(tree);
            }
        }
        if (trees.empty()) {
            page_.line("No GPU memory was allocated.");
        }
        return page_.take();
    }

  private:
    /// A path without branches. Of a long one only both ends are shown, unless all frames are
    /// wanted.
    struct Chain {
        static constexpr std::size_t first = 6;
        static constexpr std::size_t last = 3;
        std::size_t position = 0;
        std::size_t length = 0;

        std::size_t hidden() const { return length > first + last + 1 ? length - first - last : 0; }
        bool is_shown() const {
            return hidden() == 0 || position < first || position >= first + hidden();
        }
    };

    static bool continues_parent(const CallTree& tree, const CallTree::Node& node) {
        return node.parent != 0 && node.stats == tree.nodes[node.parent].stats;
    }

    std::size_t chain_length(const CallTree& tree, std::size_t node) const {
        std::size_t length = 1;
        while (!how_.all_frames && tree.nodes[node].children.size() == 1 &&
               continues_parent(tree, tree.nodes[tree.nodes[node].children.front()])) {
            node = tree.nodes[node].children.front();
            ++length;
        }
        return length;
    }

    void one(const CallTree& tree) {
        page_.heading(
            device_title(*tree.device, options_.style.ascii, tree.kind),
            std::string(how_.top_down ? "top-down" : "bottom-up") + ", by " +
                order_names().at(static_cast<std::size_t>(options_.order)) +
                (options_.filter.empty() ? "" : ", only " + page_.clean(options_.filter)));
        if (tree.nodes.front().children.empty()) {
            page_.line("  no call stack matches");
            return;
        }
        const Table<SiteStats> table = figures(tree);
        table.head();
        const std::size_t used = table.last_column();
        std::vector<std::size_t> level(1, 0);  // of each open node
        Chain chain;
        walk(
            tree, options_, how_,
            [&](std::size_t node, std::size_t depth, const Shown&) {
                level.resize(depth + 1);
                if (depth == 0) {
                    return;
                }
                // A node with the same figures as its parent does not repeat them and is not
                // indented.
                const CallTree::Node& here = tree.nodes[node];
                const bool continues = continues_parent(tree, here);
                level[depth] = depth == 1 ? 0 : level[depth - 1] + (continues ? 0 : 1);
                chain = continues ? Chain{chain.position + 1, chain.length}
                                  : Chain{0, chain_length(tree, node)};
                if (!chain.is_shown()) {
                    if (chain.position == Chain::first) {
                        table.only_last(
                            indent(level[depth], used) +
                            page_.dim(std::string(options_.style.ascii ? "... " : "… ") +
                                      format_plural(chain.hidden(), "call") + " between"));
                    }
                    return;
                }
                const std::string text =
                    where(tree, here, depth > 1 && !here.self, indent(level[depth], used), used);
                continues ? table.only_last(text) : table.row(here.stats, text);
            },
            [&](std::size_t depth, const Shown& shown) {
                if (sort_value(shown.rest, options_.order) != 0) {
                    const std::size_t at = depth == 1 ? 0 : level[depth - 1] + 1;
                    table.row(shown.rest,
                              indent(at, used) +
                                  page_.dim("[" + format_plural(shown.others, "other") + "]"));
                }
            });
        table.row(tree.nodes.front().stats, page_.dim("[all]"));
    }

    Table<SiteStats> figures(const CallTree& tree) {
        const Order order = options_.order;
        const std::uint64_t whole = sort_value(tree.whole, order);
        const auto value = [order](const SiteStats& stats) { return sort_value(stats, order); };
        const std::string heading = order == Order::peak    ? "at peak"
                                    : order == Order::bytes ? "total"
                                    : order == Order::count ? "count"
                                    : order == Order::live  ? tree.live_heading
                                                            : "temporary";
        Table<SiteStats> table(page_);
        if (order == Order::count) {
            table.count(heading, 11, value).share(value, whole);
            table.bytes("total", 11, &SiteStats::bytes);
        } else {
            order == Order::temporaries ? table.count(heading, 11, value)
                                        : table.bytes(heading, 11, value);
            table.share(value, whole);
            table.count("count", 11,
                        order == Order::peak   ? &SiteStats::peak_count
                        : order == Order::live ? &SiteStats::live_count
                                               : &SiteStats::count);
        }
        table.last(how_.top_down ? "function, and what it called" : "where, and who called it");
        return table;
    }

    /// At most half of the remaining width, however deep.
    std::string indent(std::size_t level, std::size_t used) const {
        const std::size_t width = page_.width() - std::min(page_.width(), used);
        return std::string(std::min(2 * level, width / 2), ' ');
    }

    std::string where(const CallTree& tree, const CallTree::Node& node, bool arrow,
                      const std::string& indent, std::size_t used) const {
        const std::string sign = !arrow                 ? ""
                                 : options_.style.ascii ? (how_.top_down ? "-> " : "<- ")
                                                        : (how_.top_down ? "→ " : "← ");
        const std::size_t width = page_.remaining_width(used + indent.size() + display_width(sign));
        return indent + page_.dim(sign) +
               describe_place(tree.frames[node.frame], node.kind.empty() ? "device" : node.kind, "",
                              width,
                              {options_.style, options_.working_directory, options_.templates});
    }

    const ViewOptions& options_;
    const TreeOptions& how_;
    Page page_;
};

ordered_json nodes_json(const CallTree& tree, const ViewOptions& options, const TreeOptions& how) {
    ordered_json nodes = ordered_json::array();
    std::vector<std::size_t> number;  // of each open node, in the list
    walk(
        tree, options, how,
        [&](std::size_t node, std::size_t depth, const Shown& shown) {
            number.resize(depth + 1);
            number[depth] = nodes.size();
            const CallTree::Node& here = tree.nodes[node];
            ordered_json out = {
                {"parent", depth == 0 ? ordered_json(nullptr) : ordered_json(number[depth - 1])},
                {"depth", depth}};
            ordered_json place =
                place_json(depth == 0 || tree.frames.empty() ? Place{} : tree.frames[here.frame]);
            for (const char* member : {"function", "file", "line", "module", "address"}) {
                out[member] = place.is_null() ? ordered_json(nullptr) : place[member];
            }
            out["kind"] = text_or_null(here.kind);
            out["self"] = here.self;
            out["share"] = fraction(sort_value(here.stats, options.order),
                                    sort_value(tree.whole, options.order));
            out.update(site_stats_json(here.stats));
            out["others"] = nullptr;
            if (shown.others != 0) {
                out["others"] = {{"nodes", shown.others}};
                out["others"].update(site_stats_json(shown.rest));
            }
            nodes.push_back(std::move(out));
        },
        [](std::size_t, const Shown&) {});
    return nodes;
}

}  // namespace

std::string render_tree_text(const std::vector<CallTree>& trees, const ViewOptions& options,
                             const TreeOptions& tree) {
    return TreeText(options, tree).write(trees);
}

std::string render_tree_json(const std::string& file, const std::vector<CallTree>& trees,
                             const ViewOptions& options, const TreeOptions& tree) {
    ordered_json out = {{"file", file},
                        {"direction", tree.top_down ? "top-down" : "bottom-up"},
                        {"sort", order_names().at(static_cast<std::size_t>(options.order))},
                        {"filter", text_or_null(options.filter)},
                        {"devices", ordered_json::array()}};
    for (const CallTree& each : trees) {
        if (each.kind.empty()) {
            out["devices"].push_back({{"index", each.device->index}, {"name", each.device->name}});
        }
        ordered_json& device = out["devices"].back();  // a device comes before its kinds
        ordered_json& to = each.kind.empty() ? device : device["kinds"][each.kind];
        to.update(
            {{"total", site_stats_json(each.whole)}, {"nodes", nodes_json(each, options, tree)}});
    }
    return json_text(out);
}

}  // namespace memlab::report
