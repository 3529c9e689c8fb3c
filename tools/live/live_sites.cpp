#include "tools/live/live_sites.hpp"

#include <algorithm>
#include <utility>

#include "report/summary/place_text.hpp"
#include "report/text/names.hpp"

namespace memlab::tools {
namespace {

using Frame = model::IntervalDocument::Frame;

/// The tables of a report, each entry once.
class Tables {
  public:
    explicit Tables(model::Report& report) : report_(report) {
        report_.modules.emplace_back();        // 0: unknown
        report_.python_frames.emplace_back();  // 0: none
        report_.stacks.emplace_back();         // 0: none
    }

    void add_stack(const std::vector<Frame>& frames) {
        model::Stack stack;
        for (const Frame& frame : frames) {
            stack.frames.push_back(report_.frames.size());
            report_.frames.push_back(frame_of(frame));
        }
        report_.stacks.push_back(std::move(stack));
    }

  private:
    model::Frame frame_of(const Frame& frame) {
        model::Frame result;
        if (frame.module.empty() && (!frame.function.empty() || !frame.file.empty())) {
            result.python = report_.python_frames.size();
            report_.python_frames.push_back(
                {frame.function, frame.file, static_cast<std::uint32_t>(frame.line), 0});
        } else {
            result.module = module_of(frame.module);
            result.address = frame.address.value_or(0);
        }
        return result;
    }

    std::size_t module_of(const std::string& path) {
        if (path.empty()) {
            return 0;
        }
        const auto [at, is_new] = modules_.try_emplace(path, report_.modules.size());
        if (is_new) {
            report_.modules.emplace_back().path = path;
        }
        return at->second;
    }

    model::Report& report_;
    std::map<std::string, std::size_t> modules_;
};

std::string frame_text(const report::StackFrame& frame, const std::string& directory) {
    std::string function =
        frame.python ? frame.function : report::short_function_name(frame.function);
    if (!frame.file.empty()) {
        const std::string place =
            report::shown_file(frame.file, directory) + ":" + std::to_string(frame.line);
        return function.empty() ? place : place + "  " + function;
    }
    return function.empty() ? report::base_name(frame.module)
                            : function + "  " + report::base_name(frame.module);
}

std::vector<std::string> path_of(const std::vector<report::StackFrame>& frames,
                                 const std::string& directory) {
    std::vector<std::string> path;
    for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
        if (frame->rank != report::FrameRank::startup && frame->rank != report::FrameRank::cuda &&
            !frame->is_forward_marker()) {
            path.push_back(frame_text(*frame, directory));
        }
    }
    return path;
}

}  // namespace

model::Report report_of(const model::IntervalDocument& document) {
    model::Report report;
    Tables tables(report);
    for (const model::IntervalDocument::Site& site : document.sites) {
        tables.add_stack(site.frames);
    }
    return report;
}

LiveSites SiteNames::name(const model::IntervalDocument& document, const std::string& directory) {
    const model::Report report = report_of(document);
    report::Resolver resolver(report, &symbolizer_);
    LiveSites out;
    out.other_sites = document.totals.at_peak.other_sites;
    out.other_bytes = document.totals.at_peak.other_bytes;
    out.nn_modules = document.nn_modules;
    out.at_least = document.at_least;
    for (std::size_t i = 0; i < document.sites.size(); ++i) {
        const model::IntervalDocument::Site& site = document.sites[i];
        LiveSite live;
        live.place = resolver.place(i + 1);
        live.path = path_of(resolver.frames(i + 1), directory);
        model::Device allocator;
        allocator.allocator = site.allocator;
        if (allocator.is_pytorchs()) {
            // What is held was not freed by the thread that allocated it.
            live.category = report::categorize(resolver.frames(i + 1), true);
        }
        live.kind = site.kind;
        live.api = site.api;
        live.gpu = site.gpu;
        live.bytes = site.bytes;
        live.count = site.count;
        out.sites.push_back(std::move(live));
    }
    return out;
}

std::string site_text(const LiveSite& site, std::size_t width, bool ascii,
                      const std::string& directory) {
    report::Style style;
    style.ascii = ascii;
    return report::describe_place(site.place, site.kind, site.api, width,
                                  {.style = style, .working_directory = directory});
}

std::string nn_module_text(const model::IntervalDocument::NnModule& nn_module) {
    const std::string name = nn_module.name.value_or("(not named yet)");
    const std::string text = name.empty() ? "(the outermost)" : name;
    return nn_module.class_name ? text + " (" + *nn_module.class_name + ")" : text;
}

}  // namespace memlab::tools
