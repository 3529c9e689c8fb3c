// JSON output of runs and comparisons of ranks; docs/report-format.md lists the members.
#include <nlohmann/json.hpp>

#include "report/device_allocations.hpp"
#include "report/runs/render.hpp"
#include "report/summary/json_values.hpp"

namespace memlab::report {

namespace {

using json = nlohmann::ordered_json;

template <class Value>
json value_or_null(const std::optional<Value>& value) {
    return value ? json(*value) : json(nullptr);
}

json devices_json(const model::Report& report) {
    json list = json::array();
    for (const model::Device& device : report.devices) {
        if (!device.is_gpu()) {
            continue;  // its segments are allocations of the GPU's
        }
        list.push_back(
            {{"index", device.index},
             {"name", device.name},
             {"uuid", device.uuid},
             {"allocated_peak_bytes", device.curve(model::Curve::allocated).peak_bytes},
             {"reserved_peak_bytes", device.curve(model::Curve::reserved).peak_bytes},
             {"allocated_at_end_bytes", device.curve(model::Curve::allocated).at_end_bytes},
             {"allocations", allocation_count(device, Counted::device_memory)}});
    }
    return list;
}

/// The index of the parent's member; null at a root and if the parent did not record anything.
json parent_json(const RunView& view, const TreeNode& node) {
    if (node.parent == no_member) {
        return nullptr;
    }
    const std::size_t member = view.tree.nodes[node.parent].member;
    return member == no_member ? json(nullptr) : json(member);
}

json process_json(const RunView& view, std::size_t index) {
    const RunMember& member = view.collection.members[index];
    const model::Process& process = member.report.process;
    const TreeNode& node = view.tree.nodes[index];
    return {{"file", member.file},
            {"pid", process.pid},
            {"parent_pid", process.parent_pid},
            {"host", process.host},
            {"parent", parent_json(view, node)},
            {"by_exec", node.by_exec},
            {"executable", process.executable},
            {"arguments", process.arguments},
            {"ranks", process.ranks},
            {"start_wall_ns", process.start_wall_ns},
            {"duration_ns", process.duration_ns},
            {"ended", process.ended},
            {"signal", text_or_null(process.signal)},
            {"exit_code", value_or_null(process.exit_code)},
            {"outcome", outcome_word(member, view.tree.became_another(node))},
            {"from_log", member.from_log},
            {"running", member.running},
            {"ooms", member.report.oom_count},
            {"devices", devices_json(member.report)}};
}

json peak_json(const CombinedPeak& peak) {
    return {{"sum_of_peaks_bytes", peak.sum},
            {"at_once_at_least_bytes", peak.at_least},
            {"at_once_at_most_bytes", peak.at_most},
            {"from_logs", peak.from_logs},
            {"at_wall_ns", peak.at_wall_ns}};
}

json gpu_json(const GpuUsage& gpu) {
    return {{"uuid", gpu.uuid},
            {"name", gpu.name},
            {"total_bytes", gpu.total_bytes},
            {"hosts", gpu.hosts},
            {"allocated", peak_json(gpu.allocated)},
            {"reserved", peak_json(gpu.reserved)}};
}

json run_json(const RunFacts& run) {
    return {{"file", run.file},
            {"host", run.host},
            {"pid", run.pid},
            {"command", run.command},
            {"start_wall_ns", run.start_wall_ns},
            {"end_wall_ns", run.end_wall_ns},
            {"signal", text_or_null(run.signal)},
            {"exit_code", value_or_null(run.exit_code)},
            {"replaced", run.replaced}};
}

json imbalance_json(const Imbalance& of) {
    return {{"largest_bytes", of.largest},
            {"mean_bytes", of.mean},
            {"ratio", value_or_null(of.ratio)},
            {"rank", of.rank}};
}

json rank_json(const RunView& view, const RankRow& row) {
    const RunMember& member = view.collection.members[row.member];
    const model::Process& process = member.report.process;
    return {{"rank", row.rank},
            {"local_rank", value_or_null(row.local_rank)},
            {"file", member.file},
            {"host", process.host},
            {"pid", process.pid},
            {"processes", row.processes},
            {"gpus", row.gpus},
            {"allocated_peak_bytes", row.allocated_peak},
            {"reserved_peak_bytes", row.reserved_peak},
            {"fragmentation", value_or_null(row.fragmentation)},
            {"allocations", row.allocations},
            {"ooms", row.ooms},
            {"outcome", outcome_word(member, false)}};
}

json place_json(const PlaceSpread& spread) {
    json frames = json::array();
    for (const StackFrame& frame : spread.frames) {
        frames.push_back({{"function", text_or_null(frame.function)},
                          {"file", text_or_null(frame.file)},
                          {"line", frame.line > 0 ? json(frame.line) : json(nullptr)},
                          {"module", text_or_null(frame.module)},
                          {"address", frame.address}});
    }
    return {{"difference_bytes", spread.difference()},
            {"kind", spread.kind},
            {"function", text_or_null(spread.place.function)},
            {"file", text_or_null(spread.place.file)},
            {"line", spread.place.line > 0 ? json(spread.place.line) : json(nullptr)},
            {"module", text_or_null(spread.place.module)},
            {"peak_bytes", spread.peaks},
            {"stack", std::move(frames)}};
}

}  // namespace

std::string render_run_json(const RunView& view) {
    json out;
    out["format"] = "memlab-run-summary";
    out["version"] = 1;
    out["source"] = view.source;
    out["runs"] = json::array();
    for (const RunFacts& run : view.collection.runs) {
        out["runs"].push_back(run_json(run));
    }
    out["processes"] = json::array();
    for (std::size_t i = 0; i < view.collection.members.size(); ++i) {
        out["processes"].push_back(process_json(view, i));
    }
    out["largest"] = view.largest == no_member ? json(nullptr) : json(view.largest);
    out["gpus"] = json::array();
    for (const GpuUsage& gpu : view.gpus) {
        json described = gpu_json(gpu);
        described["processes"] = gpu.members;
        out["gpus"].push_back(std::move(described));
    }
    out["notes"] = view.collection.notes;
    out["errors"] = errors_json(view.collection.errors);
    return json_text(out) + "\n";
}

std::string render_ranks_json(const RunView& view, const RankComparison& ranks) {
    json out;
    out["format"] = "memlab-merge";
    out["version"] = 1;
    out["world_size"] = value_or_null(ranks.world_size);
    out["ranks"] = json::array();
    for (const RankRow& row : ranks.ranks) {
        out["ranks"].push_back(rank_json(view, row));
    }
    out["imbalance"] = {{"allocated", imbalance_json(ranks.allocated)},
                        {"reserved", imbalance_json(ranks.reserved)}};
    out["gpus"] = json::array();
    for (const GpuUsage& gpu : view.gpus) {
        json described = gpu_json(gpu);
        described["files"] = json::array();
        for (const std::size_t member : gpu.members) {
            described["files"].push_back(view.collection.members[member].file);
        }
        out["gpus"].push_back(std::move(described));
    }
    out["places"] = json::array();
    for (const PlaceSpread& spread : ranks.places) {
        out["places"].push_back(place_json(spread));
    }
    json notes = ranks.notes;
    for (const std::string& note : view.collection.notes) {
        notes.push_back(note);
    }
    out["notes"] = std::move(notes);
    out["errors"] = errors_json(view.collection.errors);
    return json_text(out) + "\n";
}

}  // namespace memlab::report
