#include "tools/top/top_json.hpp"

#include <nlohmann/json.hpp>

#include "report/summary/json_values.hpp"
#include "tools/live/holders.hpp"

namespace memlab::tools {
namespace {

using report::ordered_json;

template <typename Number>
ordered_json value_or_null(const std::optional<Number>& number) {
    return number ? ordered_json(*number) : ordered_json(nullptr);
}

ordered_json sites_json(const LiveSites& sites) {
    ordered_json out = ordered_json::array();
    for (const LiveSite& site : sites.sites) {
        out.push_back({{"bytes", site.bytes},
                       {"count", site.count},
                       {"gpu", site.gpu},
                       {"kind", site.kind},
                       {"api", site.api},
                       {"place", report::place_json(site.place)}});
    }
    return out;
}

ordered_json nn_modules_json(const NnModules& nn_modules) {
    ordered_json out = ordered_json::array();
    for (const auto& nn_module : nn_modules) {
        out.push_back({{"name", value_or_null(nn_module.name)},
                       {"class", value_or_null(nn_module.class_name)},
                       {"bytes", nn_module.bytes},
                       {"count", nn_module.count}});
    }
    return out;
}

ordered_json uses_json(const ProcessSample& process, const MachineSample& sample) {
    ordered_json out = ordered_json::array();
    for (const GpuUse& use : process.uses) {
        ordered_json entry = {{"gpu", sample.gpus.at(use.gpu).gpu.index},
                              {"uuid", sample.gpus.at(use.gpu).gpu.uuid},
                              {"used_bytes", value_or_null(use.used)},
                              {"memlab", nullptr}};
        if (use.memlab) {
            const auto& gpu = *use.memlab;
            entry["memlab"] = {{"allocated_bytes", gpu.allocated_bytes},
                               {"max_allocated_bytes", gpu.max_allocated_bytes},
                               {"reserved_bytes", gpu.reserved_bytes},
                               {"max_reserved_bytes", gpu.max_reserved_bytes},
                               {"cached_bytes", gpu.cached_bytes},
                               {"tensor_bytes", value_or_null(gpu.tensor_bytes)},
                               {"live_count", gpu.live_count},
                               {"limit_bytes", value_or_null(gpu.limit_bytes)}};
        }
        out.push_back(std::move(entry));
    }
    return out;
}

ordered_json process_json(const ProcessSample& process, const History& history,
                          const DetailsOf& details, bool arguments) {
    const Growth growth = history.growth(process);
    const bool answers = process.status.has_value();
    const auto found = details.find(process.pid());
    const bool has_sites = found != details.end() && found->second.problem.empty();
    return {
        {"pid", process.pid()},
        {"command", shown_command(process, arguments)},
        {"user", report::text_or_null(process.facts.user)},
        {"start_wall_ns", process.facts.start_wall_ns},
        {"container", report::text_or_null(process.facts.container)},
        {"under_memlab", process.memlab},
        {"problem", report::text_or_null(process.problem)},
        {"rank", answers ? value_or_null(process.status->rank) : ordered_json(nullptr)},
        {"pinned_bytes", answers ? ordered_json(process.status->pinned_bytes) : nullptr},
        {"managed_bytes", answers ? ordered_json(process.status->managed_bytes) : nullptr},
        {"oom_count", answers ? ordered_json(process.status->oom_count) : nullptr},
        {"step_count", answers ? value_or_null(process.status->step_count) : ordered_json(nullptr)},
        {"growth_per_minute", value_or_null(growth.per_minute)},
        {"growth_per_step", value_or_null(growth.per_step)},
        {"gpus", uses_json(process, history.latest())},
        {"sites", has_sites ? sites_json(found->second.now) : ordered_json::array()},
        {"nn_modules",
         has_sites ? nn_modules_json(found->second.nn_modules) : ordered_json::array()}};
}

}  // namespace

std::string render_top_json(const History& history, const DetailsOf& details, bool arguments) {
    const MachineSample& sample = history.latest();
    ordered_json gpus = ordered_json::array();
    for (const GpuSample& gpu : sample.gpus) {
        gpus.push_back({{"index", gpu.gpu.index},
                        {"uuid", gpu.gpu.uuid},
                        {"name", gpu.gpu.name},
                        {"total_bytes", gpu.gpu.total},
                        {"used_bytes", gpu.gpu.used},
                        {"free_bytes", gpu.gpu.free},
                        {"unaccounted_bytes", value_or_null(gpu.unaccounted)}});
    }
    ordered_json processes = ordered_json::array();
    for (const ProcessSample& process : sample.processes) {
        processes.push_back(process_json(process, history, details, arguments));
    }
    return report::json_text({{"host", sample.host},
                              {"wall_ns", sample.wall_ns},
                              {"driver", report::text_or_null(sample.driver)},
                              {"gpus", std::move(gpus)},
                              {"processes", std::move(processes)},
                              {"unknown", unknown_in(sample)}});
}

}  // namespace memlab::tools
