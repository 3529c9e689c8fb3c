// Exports folded stacks, one per line: "main (a.cpp:3);step (b.cpp:7);cuMemAlloc_v2 4194304". Read
// by flamegraph.pl, inferno, speedscope and many others.
//
// Stacks with weight 0 are omitted.
#include <algorithm>

#include "report/export/formats.hpp"
#include "report/export/output.hpp"
#include "report/export/stacks.hpp"

namespace memlab::exports {

Result write_folded(const Input& input, report::ByteSink& sink) {
    Stacks stacks(input);
    Output out(sink);
    stacks.for_each([&](const WeighedStack& stack) {
        const std::uint64_t weight = stack.weights.of(input.by);
        if (weight == 0) {
            return;
        }
        bool first = true;
        for (const std::uint32_t number : stack.frames) {
            std::string label = stacks.frame(number).label();
            std::replace(label.begin(), label.end(), ';', ',');  // the separator of frames
            out << (first ? "" : ";") << label;
            first = false;
        }
        out << ' ' << weight << '\n';
    });
    return {out.finish(), ""};
}

}  // namespace memlab::exports
