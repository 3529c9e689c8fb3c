#include "tools/live/live_sites.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "model/bounded_sum.hpp"
#include "model/report_device.hpp"
#include "report/summary/place_text.hpp"
#include "report/text/names.hpp"
#include "report/text/terminal.hpp"
#include "tools/live/live_places.hpp"

namespace memlab::tools {
namespace {

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

LiveSites SiteNames::name(const model::IntervalDocument& document, pid_t process) {
    LivePlaces places(process, symbolizer_);
    std::vector<LiveStack> stacks = places.stacks(document);
    LiveSites out;
    out.other_sites = document.totals.at_peak.other_sites;
    out.other_bytes = document.totals.at_peak.other_bytes;
    out.nn_modules = document.nn_modules;
    out.at_least = document.at_least;
    for (std::size_t i = 0; i < document.sites.size(); ++i) {
        const model::IntervalDocument::Site& site = document.sites[i];
        LiveSite live;
        live.path = path_of(stacks[i].frames, places.working_directory());
        model::Device allocator;
        allocator.allocator = site.allocator;
        if (allocator.is_pytorchs()) {
            // What is held was not freed by the thread that allocated it.
            live.category = report::categorize(stacks[i].frames, true);
        }
        live.place = std::move(stacks[i].place);
        live.kind = site.kind;
        live.api = site.api;
        live.gpu = site.gpu;
        live.bytes = site.bytes;
        live.count = site.count;
        out.sites.push_back(std::move(live));
    }
    return out;
}

std::vector<LiveSite> one_per_place(const std::vector<LiveSite>& sites) {
    std::vector<LiveSite> out;
    std::map<std::pair<std::uint64_t, std::string>, std::size_t> known;
    for (const LiveSite& site : sites) {
        const std::string text = site_text(site, report::unlimited_width, true, "");
        const auto [found, is_new] = known.try_emplace({site.gpu, text}, out.size());
        if (is_new) {
            out.push_back(site);
        } else {
            model::add_to(out[found->second].bytes, site.bytes);
            model::add_to(out[found->second].count, site.count);
        }
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const LiveSite& a, const LiveSite& b) { return a.bytes > b.bytes; });
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
