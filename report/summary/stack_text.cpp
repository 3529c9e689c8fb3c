#include "report/summary/stack_text.hpp"

#include "report/symbols/symbolizer.hpp"
#include "report/text/names.hpp"

namespace memlab::report {

namespace {

constexpr std::size_t max_function_width = 60;

}  // namespace

std::string missing_frames(const model::Report& report, std::size_t stack) {
    const auto depth = report.options.find("MEMLAB_STACK_DEPTH");
    const bool at_limit = depth == report.options.end() ||
                          std::to_string(report.stacks.at(stack).frames.size()) == depth->second;
    return at_limit ? "deeper than MEMLAB_STACK_DEPTH" : "outer frames are not known";
}

std::vector<std::string> stack_lines(const model::Report& report, Resolver& resolver,
                                     std::size_t stack, const PlaceTextOptions& options) {
    const Style& style = options.style;
    const auto dim = [&](const std::string& text) {
        return std::string(style.dim()) + text + std::string(style.reset());
    };
    const auto& frames = resolver.frames(stack);
    const std::size_t chosen = resolver.chosen(stack);
    std::vector<std::string> lines;
    if (frames.empty()) {
        lines.emplace_back("    no stack was recorded");
    }
    for (std::size_t i = 0; i < frames.size(); ++i) {
        const StackFrame& frame = frames[i];
        Place place;
        place.recorded = true;
        place.function =
            frame.python ? frame.function : without_anonymous(short_function_name(frame.function));
        if (!options.templates && display_width(place.function) > max_function_width) {
            place.function = collapse_templates(place.function, style.ascii);
        }
        place.file = frame.file;
        place.line = frame.line;
        place.module = frame.module;
        place.address = frame.address;
        std::string text = printable(location_text(place, options.working_directory), style.ascii);
        if (!place.function.empty()) {
            text = printable(place.function, style.ascii) + (text.empty() ? "" : "  " + dim(text));
        }
        if (frame.inlined) {
            text += dim("  (inlined)");
        }
        if (!frame.problem.empty() && frame.problem != "no symbols") {
            text += dim("  (" + printable(frame.problem, style.ascii) + ")");
        }
        lines.push_back((i == chosen ? "  > " : "    ") + text);
    }
    if (report.stacks.at(stack).truncated) {
        lines.push_back(dim("    ... " + missing_frames(report, stack)));
    }
    return lines;
}

std::string thread_text(const model::Report& report, std::uint64_t thread) {
    const std::string* const named = report.thread_name(thread);
    std::string name;
    if (named != nullptr) {
        name = *named;
    } else if (thread == report.process.pid) {
        name = "main";
    }
    return "thread " + std::to_string(thread) + (name.empty() ? "" : " (" + name + ")");
}

}  // namespace memlab::report
