// Exports a flame graph as one self-contained SVG file: the outermost function on top, the call
// into CUDA at the bottom, widths proportional to the chosen weight. In a browser: hover for
// details, click to zoom, Search highlights frames by regular expression and shows their share.
// Without scripts (in a document, in a mail) it is a static picture.
//
// Compared with another input it is a differential flame graph: a box is as wide as what its stacks
// weigh before or after, whichever is more, red (vermilion) where it grew and blue where it shrank,
// the darker the larger the change: colours that the colour-blind tell apart, too.
//
// Deterministic: boxes are sorted by name, colours are hashes of the name.
//
// Boxes narrower than 1/5000 of the whole are omitted; their number is shown below the picture.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/bounded_sum.hpp"
#include "report/exports/formats.hpp"
#include "report/exports/output.hpp"
#include "report/exports/stacks.hpp"
#include "report/text/names.hpp"
#include "report/text/terminal.hpp"
#include "report/text/units.hpp"
#include "report/views/diff.hpp"

namespace memlab::report::exports {

namespace {

constexpr double picture_width = 1200;
constexpr double margin = 10;
constexpr double box_height = 17;
constexpr double top = 60;
constexpr double bottom = 26;
constexpr double character_width = 6.6;  // average of an 11-pixel sans-serif font
constexpr double min_width = 1.0 / 5000;

std::string xml(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        switch (c) {
            case '&':
                escaped += "&amp;";
                break;
            case '<':
                escaped += "&lt;";
                break;
            case '>':
                escaped += "&gt;";
                break;
            case '"':
                escaped += "&quot;";
                break;
            default:
                escaped += c;
        }
    }
    return escaped;
}

/// Two decimals are a hundredth of a pixel.
std::string decimal(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f", value);
    return text;
}

/// A warm colour from the FNV-1a hash of the name.
std::string color(std::string_view function) {
    std::uint32_t hash = 2166136261U;
    for (const char c : function) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
    }
    char text[8];
    std::snprintf(text, sizeof text, "#%02x%02x%02x", 215 + (hash & 31), 90 + (hash >> 5) % 120,
                  40 + (hash >> 13) % 40);
    return text;
}

/// From grey over a light red or blue to a strong one. `share` of the largest change: -1 to 1.
std::string change_color(double share) {
    struct Hue {
        double red, green, blue;  ///< of full strength, 0 to 255
    };
    constexpr Hue grew{.red = 232, .green = 110, .blue = 52};
    constexpr Hue shrank{.red = 74, .green = 154, .blue = 216};
    constexpr double grey = 224;
    const Hue& hue = share > 0 ? grew : shrank;
    // Small changes are to be seen, too.
    const double strength =
        share == 0 ? 0 : 0.25 + 0.75 * std::sqrt(std::min(std::abs(share), 1.0));
    const auto mix = [&](double full) {
        return static_cast<unsigned>(std::lround(grey + (full - grey) * strength));
    };
    char text[8];
    std::snprintf(text, sizeof text, "#%02x%02x%02x", mix(hue.red), mix(hue.green), mix(hue.blue));
    return text;
}

struct Node {
    std::uint32_t frame = 0;
    report::Change weight;    ///< saturates; without a comparison `after` alone
    std::uint64_t width = 0;  ///< saturates; of its stacks the larger weight each
    std::vector<std::uint32_t> children;
};

class Tree {
  public:
    Tree() : nodes_(1) {}

    /// `side`: which of the two weights.
    void add_stack(const std::vector<std::uint32_t>& frames, std::uint64_t report::Change::*side,
                   std::uint64_t weight) {
        std::uint32_t at = 0;
        for (const std::uint32_t frame : frames) {
            const std::uint64_t key = std::uint64_t{at} << 32 | frame;
            const auto [found, is_new] =
                children_.try_emplace(key, static_cast<std::uint32_t>(nodes_.size()));
            if (is_new) {
                nodes_.push_back({.frame = frame, .weight = {}, .width = 0, .children = {}});
                nodes_[at].children.push_back(found->second);
            }
            at = found->second;
        }
        model::add_to(nodes_[at].weight.*side, weight);
    }

    /// After the last stack: adds what is below each node to it.
    void add_up() {
        for (Node& node : nodes_) {
            node.width = std::max(node.weight.before, node.weight.after);
        }
        for (std::size_t node = nodes_.size(); node-- > 0;) {  // children come after their parents
            for (const std::uint32_t child : nodes_[node].children) {
                model::add_to(nodes_[node].weight.before, nodes_[child].weight.before);
                model::add_to(nodes_[node].weight.after, nodes_[child].weight.after);
                model::add_to(nodes_[node].width, nodes_[child].width);
            }
        }
    }

    /// The largest change of a node below the root; at least 1.
    std::uint64_t largest_change() const {
        std::uint64_t largest = 1;
        for (std::size_t node = 1; node < nodes_.size(); ++node) {
            largest = std::max(largest, nodes_[node].weight.size());
        }
        return largest;
    }

    Node& operator[](std::uint32_t node) { return nodes_[node]; }

  private:
    std::vector<Node> nodes_;                                    ///< 0: the root
    std::unordered_map<std::uint64_t, std::uint32_t> children_;  ///< parent and frame to node
};

// Boxes have their position as shares of the whole (data-x, data-w), so that the script can redo
// the layout for any part.
constexpr std::string_view script = R"js(
'use strict';
const svg = document.documentElement, width = 1200, margin = 10, character = 6.6;
const boxes = Array.from(document.querySelectorAll('g.box')).map(g => ({
  g, x: Number(g.dataset.x), w: Number(g.dataset.w), depth: Number(g.dataset.depth),
  name: g.dataset.name, rect: g.querySelector('rect'), text: g.querySelector('text')}));
const line = document.getElementById('line'), found = document.getElementById('found');
let shown = boxes[0];
function fit(text, room) {
  const characters = Math.floor((room - 6) / character);
  const all = Array.from(text);
  return characters < 3 ? '' : all.length <= characters ? text : all.slice(0, characters - 1).join('') + '\u2026';
}
function show(box) {
  shown = box;
  const scale = (width - 2 * margin) / box.w, near = 1e-9;
  for (const b of boxes) {
    const around = b.depth < box.depth && b.x <= box.x + near && b.x + b.w >= box.x + box.w - near;
    const within = b.depth >= box.depth && b.x >= box.x - near && b.x + b.w <= box.x + box.w + near;
    b.g.style.display = around || within ? '' : 'none';
    b.g.classList.toggle('around', around);
    if (around || within) {
      const x = around ? margin : margin + (b.x - box.x) * scale;
      const w = around ? width - 2 * margin : b.w * scale;
      b.rect.setAttribute('x', x); b.rect.setAttribute('width', Math.max(w - 0.5, 0.2));
      b.text.setAttribute('x', x + 3); b.text.textContent = fit(b.name, w);
    }
  }
  document.getElementById('reset').style.display = box === boxes[0] ? 'none' : '';
}
function search() {
  const asked = prompt('Search for (a regular expression):', '');
  if (asked === null) return;
  let pattern = null;
  try { pattern = asked === '' ? null : new RegExp(asked); }
  catch (error) { found.textContent = 'not a regular expression: ' + asked; return; }
  let share = 0, end = -1;
  for (const b of boxes) {
    b.match = pattern !== null && pattern.test(b.name);
    b.g.classList.toggle('match', b.match);
  }
  for (const b of boxes.filter(b => b.match).sort((a, b) => a.x - b.x || a.depth - b.depth)) {
    if (b.x >= end - 1e-9) { share += b.w; end = b.x + b.w; }
  }
  found.textContent = pattern === null ? '' : 'matches: ' + (100 * share).toFixed(1) + '%';
}
for (const b of boxes) {
  b.g.addEventListener('click', () => show(b));
  b.g.addEventListener('mouseover', () => {
    const text = b.g.querySelector('title').textContent, figures = text.lastIndexOf(': ');
    line.textContent = fit(text.slice(0, figures), 750) + text.slice(figures);
  });
  b.g.addEventListener('mouseout', () => { line.textContent = ''; });
}
document.getElementById('reset').addEventListener('click', () => show(boxes[0]));
document.getElementById('search').addEventListener('click', search);
document.getElementById('search').style.display = '';
window.addEventListener('keydown', event => {
  if ((event.ctrlKey || event.metaKey) && event.key === 'f') { event.preventDefault(); search(); }
  if (event.key === 'Escape') show(boxes[0]);
});
)js";

constexpr std::string_view css = R"css(
text { font-family: Verdana, Helvetica, sans-serif; font-size: 11px; fill: #222; }
#title { font-size: 16px; text-anchor: middle; }
g.box { cursor: pointer; }
g.box rect { rx: 1.5px; }
g.box:hover rect { stroke: #000; stroke-width: 0.7; }
g.box text { pointer-events: none; }
g.around { opacity: 0.45; }
g.match rect { fill: #d070e0; }
.button { cursor: pointer; fill: #0645ad; }
#found { text-anchor: end; }
)css";

class FlameGraph {
  public:
    FlameGraph(const Input& input, model::ByteSink& sink)
        : input_(input), frames_(equality(input)), out_(sink) {}

    Result write() {
        const bool roots = has_several_devices(input_);
        if (input_.before != nullptr) {
            add_stacks(*input_.before, roots, &report::Change::before);
        }
        add_stacks(input_, roots, &report::Change::after);
        tree_.add_up();
        largest_change_ = tree_.largest_change();
        std::size_t max_depth = 0;
        lay_out(&max_depth);
        const double height = top + static_cast<double>(max_depth + 1) * box_height + bottom;
        head(height);
        for (const Box& box : boxes_) {
            draw(box);
        }
        if (omitted_ != 0) {
            out_ << "<text x=\"" << decimal(margin) << "\" y=\"" << decimal(height - 12) << "\">"
                 << xml(report::format_plural(omitted_, "frame")) << " too narrow to draw</text>\n";
        }
        if (input_.before != nullptr) {
            legend(height);
        }
        out_ << "<script><![CDATA[" << script << "]]></script>\n</svg>\n";
        return {out_.finish(), ""};
    }

  private:
    struct Box {
        std::uint32_t node = 0;
        std::size_t depth = 0;
        double x = 0;  ///< share of the whole, as `width`
        double width = 0;
    };

    void add_stacks(const Input& input, bool roots, std::uint64_t report::Change::*side) {
        Stacks(input, frames_, roots).for_each([&](const WeighedStack& stack) {
            if (const std::uint64_t weight = stack.weights.of(input.by); weight != 0) {
                tree_.add_stack(stack.frames, side, weight);
            }
        });
    }

    /// Parents before children; iterative, since stacks may be deep.
    void lay_out(std::size_t* max_depth) {
        const auto whole = static_cast<double>(std::max<std::uint64_t>(tree_[0].width, 1));
        std::vector<Box> open = {{.node = 0, .depth = 0, .x = 0, .width = 1}};
        while (!open.empty()) {
            const Box box = open.back();
            open.pop_back();
            boxes_.push_back(box);
            *max_depth = std::max(*max_depth, box.depth);
            std::vector<std::uint32_t>& children = tree_[box.node].children;
            std::sort(children.begin(), children.end(),
                      [this](std::uint32_t a, std::uint32_t b) { return label(a) < label(b); });
            double x = box.x;
            for (const std::uint32_t child : children) {
                // In an edited report the children may weigh more than their parent.
                const double width = std::min(static_cast<double>(tree_[child].width) / whole,
                                              box.x + box.width - x);
                if (width >= min_width) {
                    open.push_back({.node = child, .depth = box.depth + 1, .x = x, .width = width});
                } else {
                    ++omitted_;
                }
                x += width;
            }
        }
    }

    std::string label(std::uint32_t node) {
        return node == 0 ? "all" : frames_[tree_[node].frame].label();
    }

    std::string amount(std::uint64_t weight) const {
        return input_.by == Weight::count ? report::format_plural(weight, "allocation")
                                          : report::format_bytes(weight);
    }

    /// "4.00 MiB, 12.5%"; of a comparison "+2.00 MiB (2.00 MiB before, 4.00 MiB after)"
    std::string figures(const Node& node) {
        const report::Change& weight = node.weight;
        if (input_.before == nullptr) {
            return amount(weight.after) + ", " +
                   report::format_percent(weight.after, tree_[0].weight.after);
        }
        return (input_.by == Weight::count ? report::format_count_change(weight)
                                           : report::format_change(weight)) +
               " (" + amount(weight.before) + " before, " + amount(weight.after) + " after)";
    }

    static std::string program(const Input& input) {
        const model::Process& process = input.recording.report.process;
        return report::base_name(process.executable) + " " + std::to_string(process.pid);
    }

    std::string title() const {
        std::string what;
        switch (input_.by) {
            case Weight::peak:
                what = "GPU memory held at the peak";
                break;
            case Weight::bytes:
                what = "GPU memory allocated in all";
                break;
            case Weight::count:
                what = "GPU memory allocations";
                break;
            case Weight::live:
                what = input_.moment.empty() ? "GPU memory never freed" : "GPU memory held";
                break;
        }
        const auto at = [](const Input& input) {
            return input.moment.empty() ? std::string() : " at " + input.moment;
        };
        if (input_.before == nullptr) {
            return what + at(input_) + ": " + program(input_);
        }
        const std::string before = program(*input_.before);
        const std::string after = program(input_);
        return what + ", compared: " + before + at(*input_.before) + " → " +
               (before == after && !input_.moment.empty() ? at(input_).substr(1)
                                                          : after + at(input_));
    }

    std::string fill(const Box& box) {
        const Node& node = tree_[box.node];
        if (input_.before == nullptr) {
            return color(box.node == 0 ? "all" : frames_[node.frame].function);
        }
        if (box.node == 0) {
            return change_color(0);
        }
        const double share =
            static_cast<double>(node.weight.size()) / static_cast<double>(largest_change_);
        return change_color(node.weight.after < node.weight.before ? -share : share);
    }

    void head(double height) {
        const std::string size = decimal(picture_width) + " " + decimal(height);
        out_ << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
             << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << decimal(picture_width)
             << "\" height=\"" << decimal(height) << "\" viewBox=\"0 0 " << size << "\">\n"
             << "<style>" << css << "</style>\n"
             << "<rect width=\"100%\" height=\"100%\" fill=\"#fdfaf3\"/>\n"
             << "<text id=\"title\" x=\"600\" y=\"24\">" << xml(clean_name(title())) << "</text>\n"
             << "<text id=\"reset\" class=\"button\" x=\"" << decimal(margin)
             << "\" y=\"46\" style=\"display:none\">Show all</text>\n"
             // Above the boxes: below them it may be out of view.
             << "<text id=\"line\" x=\"90\" y=\"46\"></text>\n"
             << "<text id=\"search\" class=\"button\" x=\"1150\" y=\"46\" "
                "style=\"display:none\">Search</text>\n"
             << "<text id=\"found\" x=\"1140\" y=\"46\"></text>\n";
    }

    void legend(double height) {
        double x = picture_width - 250;
        for (const auto& [share, text] :
             {std::pair(1.0, "grew"), {-1.0, "shrank"}, {0.0, "the same"}}) {
            out_ << "<rect x=\"" << decimal(x) << "\" y=\"" << decimal(height - 21)
                 << "\" width=\"12\" height=\"12\" fill=\"" << change_color(share)
                 << "\"/><text x=\"" << decimal(x + 17) << "\" y=\"" << decimal(height - 11)
                 << "\">" << text << "</text>\n";
            x += 75;
        }
    }

    void draw(const Box& box) {
        const std::string name = label(box.node);
        const double inner = picture_width - 2 * margin;
        const double x = margin + box.x * inner;
        const double y = top + static_cast<double>(box.depth) * box_height;
        const double width = box.width * inner;
        std::string text = name;
        const double room = (width - 6) / character_width;
        if (room < 3) {
            text.clear();
        } else {
            text = report::shorten_end(name, static_cast<std::size_t>(room), false);
        }
        char place[96];
        std::snprintf(place, sizeof place, "data-x=\"%.9f\" data-w=\"%.9f\" data-depth=\"%zu\"",
                      box.x, box.width, box.depth);
        out_ << "<g class=\"box\" " << place << " data-name=\"" << xml(name) << "\"><title>"
             << xml(name + ": " + figures(tree_[box.node])) << "</title><rect x=\"" << decimal(x)
             << "\" y=\"" << decimal(y) << "\" width=\"" << decimal(std::max(width - 0.5, 0.2))
             << "\" height=\"" << decimal(box_height - 1) << "\" fill=\"" << fill(box)
             << "\"/><text x=\"" << decimal(x + 3) << "\" y=\"" << decimal(y + 12) << "\">"
             << xml(text) << "</text></g>\n";
    }

    const Input& input_;
    FrameTable frames_;
    Output out_;
    Tree tree_;
    std::uint64_t largest_change_ = 1;
    std::vector<Box> boxes_;
    std::uint64_t omitted_ = 0;
};

}  // namespace

Result write_flamegraph(const Input& input, model::ByteSink& sink) {
    return FlameGraph(input, sink).write();
}

}  // namespace memlab::report::exports
