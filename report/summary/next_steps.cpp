// The end of the summary: commands that say more, to copy.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "report/summary/summary_page.hpp"
#include "report/text/shell_word.hpp"
#include "report/text/terminal.hpp"

namespace memlab::report {

/// A command is never cut: where its note does not fit beside it, that has a line of its own.
void SummaryPage::command_to_copy(const std::string& command, std::size_t padding, bool beside,
                                  const std::string& note) {
    if (beside) {
        line("  " + command + std::string(padding + 3, ' ') + dim(note));
    } else {
        line("  " + command);
        line(dim("      " + note));
    }
}

void SummaryPage::next_steps() {
    const std::string file = shell_file(summary_.file, style().ascii);
    using Step = std::pair<std::string, std::string>;
    std::vector<Step> steps;
    bool any_place = false;
    bool any_live = false;
    bool any_function = false;
    bool any_line = false;
    for (const DeviceSummary& device : summary_.devices) {
        any_live |= device.still_allocated.count != 0;
        const auto look = [&](const HoldersSummary& holders) {
            for (const PlaceShare& share : holders.places) {
                any_place |= share.place.recorded;
                any_function |= !share.place.function.empty();
                any_line |= !share.place.file.empty();
            }
        };
        look(device.at_peak);
        for (const KindSummary& kind : device.kinds) {
            look(kind.at_peak);
        }
    }
    if (any_place && options_.stacks == 0) {
        steps.emplace_back("memlab-report --stacks 3 " + file, "whole call stacks");
    }
    if (any_place) {
        steps.emplace_back("memlab-report tree " + file, "the call tree of the peak");
    }
    if (!summary_.report->nn_modules.empty()) {
        steps.emplace_back("memlab-report nn-modules " + file, "the peak by nn.Module");
    }
    if (any_live) {
        steps.emplace_back("memlab-report leaks " + file, "memory that was never freed");
    }
    steps.emplace_back("memlab-report --json " + file, "for scripts");
    line("");
    line(bold("Next"));
    std::size_t widest = 0;
    for (const Step& step : steps) {
        widest = std::max(widest, display_width(clean(step.first)));
    }
    const bool beside = std::all_of(steps.begin(), steps.end(), [&](const Step& step) {
        return 2 + widest + 3 + step.second.size() <= width();
    });
    for (const Step& step : steps) {
        const std::string command = clean(step.first);
        command_to_copy(command, beside ? widest - display_width(command) : 0, beside, step.second);
    }
    if (any_function && !any_line) {
        paragraph("  ",
                  "No source lines are known: build the program with -g (nvcc: -g, or -Xcompiler "
                  "-g) to see them.");
    }
}

}  // namespace memlab::report
