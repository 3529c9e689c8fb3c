#include "model/interval_document.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "model/json_members.hpp"
#include "model/json_output.hpp"
#include "model/python_source.hpp"
#include "model/report_builder.hpp"
#include "trace/aggregate/library_memory.hpp"

namespace memlab::model {
namespace {

class IntervalWriter final : public JsonMembers<IntervalWriter> {
  public:
    using JsonMembers::JsonMembers;
};

std::vector<IntervalDocument::Frame> frames_of(const trace::Aggregator& from, std::uint32_t stack) {
    std::vector<IntervalDocument::Frame> frames;
    frames.reserve(from.stacks()[stack].frames.size());
    for (const std::uint32_t index : from.stacks()[stack].frames) {
        const trace::Frame& frame = from.frames()[index];
        if (frame.python != 0) {
            const trace::PythonFrameDef& python = from.python_frames()[frame.python];
            const std::string& file = from.string(python.file);
            frames.push_back({.function = from.string(python.function),
                              .file = file,
                              .line = python.line,
                              .library = is_python_library(file)});
        } else {
            frames.push_back(
                {.module = from.modules()[frame.module].path, .address = frame.address});
        }
    }
    return frames;
}

IntervalDocument::Site site_of(const trace::Aggregator& from, const trace::Holder& holder) {
    const trace::Site& site = from.sites()[holder.site];
    const trace::DeviceInfo& device = from.devices()[site.device]->info;
    return {.bytes = holder.bytes,
            .count = holder.count,
            .gpu = device.is_gpu() ? device.index : device.gpu,
            .allocator = device.allocator,
            .kind = trace::name_of(site.kind),
            .api = from.string(site.api),
            .library = trace::is_taken_by_library(from, site),
            .frames = frames_of(from, site.stack)};
}

IntervalDocument::NnModule nn_module_of(const trace::Aggregator& from,
                                        const trace::NnModuleHeld& held) {
    IntervalDocument::NnModule nn_module{.bytes = held.bytes, .count = held.count};
    name_nn_module(from, held.nn_module, nn_module);
    return nn_module;
}

}  // namespace

IntervalDocument interval_document(const trace::Aggregator& from,
                                   const trace::IntervalTotals& totals) {
    IntervalDocument document{.totals = totals};
    document.at_least = std::any_of(from.missed().begin(), from.missed().end(),
                                    [](const trace::MissedTotals& missed) {
                                        return missed.figures == trace::Figures::at_least;
                                    });
    document.sites.reserve(totals.at_peak.sites.size());
    for (const trace::Holder& holder : totals.at_peak.sites) {
        document.sites.push_back(site_of(from, holder));
    }
    std::set<std::uint32_t> modules;
    for (const trace::Holder& holder : totals.at_peak.sites) {
        for (const std::uint32_t frame : from.stacks()[from.sites()[holder.site].stack].frames) {
            modules.insert(from.frames()[frame].python != 0 ? 0 : from.frames()[frame].module);
        }
    }
    for (const std::uint32_t module : modules) {
        const trace::ModuleDef& def = from.modules()[module];
        if (!def.build_id.empty()) {
            document.build_ids.push_back({def.path, def.build_id});
        }
    }
    document.nn_modules.reserve(totals.nn_modules.size());
    for (const trace::NnModuleHeld& held : totals.nn_modules) {
        document.nn_modules.push_back(nn_module_of(from, held));
    }
    for (const auto& device : from.devices()) {
        if (device != nullptr && device->info.is_gpu()) {
            document.gpus.push_back({device->info.index, device->info.name});
        }
    }
    return document;
}

std::string to_json(const IntervalDocument& document) {
    StringSink sink;
    JsonOutput json(sink);
    IntervalWriter(json).write(document);
    json.finish();
    return std::move(sink.text);
}

}  // namespace memlab::model
