#include "tools/top/top_json.hpp"

#include "report/summary/json_object.hpp"
#include "report/summary/json_values.hpp"
#include "tools/live/holders.hpp"
#include "tools/live/machine_rows.hpp"

namespace memlab::tools {
namespace {

using report::TopDocument;

TopDocument::Process process_row(const ProcessSample& process, const History& history,
                                 const DetailsOf& details, bool arguments) {
    const Growth growth = history.growth(process);
    TopDocument::Process row;
    row.pid = static_cast<std::uint64_t>(process.pid());
    row.command = shown_command(process, arguments);
    row.user = process.facts.user;
    row.start_wall_ns = process.facts.start_wall_ns;
    row.container = process.facts.container;
    row.under_memlab = process.memlab;
    row.problem = process.problem;
    if (process.status) {
        row.rank = process.status->rank;
        row.pinned_bytes = process.status->pinned_bytes;
        row.managed_bytes = process.status->managed_bytes;
        row.oom_count = process.status->oom_count;
        row.step_count = process.status->step_count;
    }
    row.growth_per_minute = growth.per_minute;
    row.growth_per_step = growth.per_step;
    for (const GpuUse& use : process.uses) {
        const Gpu& gpu = history.latest().gpus.at(use.gpu).gpu;
        row.gpus.push_back({.gpu = gpu.index,
                            .uuid = gpu.uuid,
                            .used_bytes = use.used,
                            .memlab = memlab_row(use)});
    }
    const auto found = details.find(process.pid());
    if (found != details.end() && found->second.problem.empty()) {
        for (const LiveSite& site : found->second.now.sites) {
            row.sites.push_back(site_row(site));
        }
        row.nn_modules = found->second.nn_modules;
    }
    return row;
}

}  // namespace

std::string render_top_json(const History& history, const DetailsOf& details, bool arguments) {
    const MachineSample& sample = history.latest();
    TopDocument out{.host = sample.host,
                    .wall_ns = sample.wall_ns,
                    .driver = sample.driver,
                    .gpus = {},
                    .processes = {},
                    .unknown = unknown_in(sample)};
    for (const GpuSample& gpu : sample.gpus) {
        out.gpus.push_back(gpu_row(gpu));
    }
    for (const ProcessSample& process : sample.processes) {
        out.processes.push_back(process_row(process, history, details, arguments));
    }
    return report::json_text(report::JsonObject::of(out));
}

}  // namespace memlab::tools
