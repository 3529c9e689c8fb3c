// JSON output of runs and comparisons of ranks: fills the documents of run_documents.hpp.
#include <utility>

#include "report/runs/render.hpp"
#include "report/runs/run_documents.hpp"
#include "report/summary/json_object.hpp"
#include "report/summary/json_values.hpp"

namespace memlab::report {

namespace {

std::vector<RunSummary::Device> describe_devices(const model::Report& report) {
    std::vector<RunSummary::Device> out;
    for (const model::Device& device : report.devices) {
        if (device.is_gpu()) {  // the segments of others are allocations of the GPU's
            out.push_back(
                {device.index, device.name, device.uuid, process_stats(report, device.index)});
        }
    }
    return out;
}

std::optional<std::uint64_t> if_member(std::size_t index) {
    return index == no_member ? std::nullopt : std::optional<std::uint64_t>(index);
}

RunSummary::Process describe_process(const RunView& view, std::size_t index) {
    const RunMember& member = view.collection.members[index];
    const TreeNode& node = view.tree.nodes[index];
    // None at a root and if the parent did not record anything.
    const auto parent =
        node.parent == no_member ? std::nullopt : if_member(view.tree.nodes[node.parent].member);
    return {member.file,
            member.report.process,
            parent,
            node.by_exec,
            outcome_word(member, view.tree.became_another(node)),
            member.from_log,
            member.running,
            member.report.oom_count,
            member.lacks,
            describe_devices(member.report)};
}

}  // namespace

std::string render_run_json(const RunView& view) {
    RunSummary out{.source = view.source,
                   .runs = view.collection.runs,
                   .processes = {},
                   .largest = if_member(view.largest),
                   .gpus = view.gpus,
                   .notes = all_notes(view.collection),
                   .lacks = view.collection.lacks,
                   .errors = view.collection.errors};
    for (std::size_t i = 0; i < view.collection.members.size(); ++i) {
        out.processes.push_back(describe_process(view, i));
    }
    return json_text(JsonObject::of(out)) + "\n";
}

std::string render_ranks_json(const RunView& view, const RankComparison& ranks) {
    const RunCollection& run = view.collection;
    Merge out{.ranks = ranks,
              .rows = {},
              .gpus = {},
              .notes = notes_of_ranks(run, ranks),
              .lacks = run.lacks,
              .errors = run.errors};
    for (const RankRow& row : ranks.ranks) {
        const RunMember& member = run.members[row.member];
        out.rows.push_back({row, member.file, member.report.process.host, member.report.process.pid,
                            outcome_word(member, false), member.lacks});
    }
    for (const GpuUsage& gpu : view.gpus) {
        Merge::Gpu described = {gpu, {}};
        for (const std::size_t member : gpu.members) {
            described.files.push_back(run.members[member].file);
        }
        out.gpus.push_back(std::move(described));
    }
    return json_text(JsonObject::of(out)) + "\n";
}

}  // namespace memlab::report
