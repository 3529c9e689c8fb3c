// Exports folded stacks, one per line: "main (a.cpp:3);step (b.cpp:7);cuMemAlloc_v2 4194304". Read
// by flamegraph.pl, inferno, speedscope and many others.
//
// Compared with another input each stack has two weights, before and after, as difffolded.pl writes
// them: "main (a.cpp);step (b.cpp);cuMemAlloc_v2 4194304 8388608"; lines are sorted by stack.
//
// Stacks with weight 0 are omitted.
#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "model/bounded_sum.hpp"
#include "report/exports/formats.hpp"
#include "report/exports/output.hpp"
#include "report/exports/stacks.hpp"
#include "report/views/diff.hpp"

namespace memlab::report::exports {

namespace {

using VisitLine = std::function<void(const std::string& stack, std::uint64_t weight)>;

void for_each_line(const Input& input, FrameTable& frames, bool roots, const VisitLine& visit) {
    Stacks stacks(input, frames, roots);
    std::string line;
    stacks.for_each([&](const WeighedStack& stack) {
        const std::uint64_t weight = stack.weights.of(input.by);
        if (weight == 0) {
            return;
        }
        line.clear();
        for (const std::uint32_t number : stack.frames) {
            std::string label = frames[number].label();
            std::replace(label.begin(), label.end(), ';', ',');  // the separator of frames
            line.append(line.empty() ? "" : ";").append(label);
        }
        visit(line, weight);
    });
}

}  // namespace

Result write_folded(const Input& input, model::ByteSink& sink) {
    Output out(sink);
    const bool roots = has_several_devices(input);
    FrameTable frames(equality(input));
    if (input.before == nullptr) {
        for_each_line(input, frames, roots, [&](const std::string& stack, std::uint64_t weight) {
            out << stack << ' ' << weight << '\n';
        });
        return {out.finish(), ""};
    }
    std::map<std::string, report::Change> lines;
    for_each_line(*input.before, frames, roots,
                  [&](const std::string& stack, std::uint64_t weight) {
                      model::add_to(lines[stack].before, weight);
                  });
    for_each_line(input, frames, roots, [&](const std::string& stack, std::uint64_t weight) {
        model::add_to(lines[stack].after, weight);
    });
    for (const auto& [stack, weight] : lines) {
        out << stack << ' ' << weight.before << ' ' << weight.after << '\n';
    }
    return {out.finish(), ""};
}

}  // namespace memlab::report::exports
