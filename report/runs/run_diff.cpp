#include "report/runs/run_diff.hpp"

#include <algorithm>
#include <optional>

#include "report/runs/process_rank.hpp"
#include "report/summary/summary.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

/// The members of a run that neither ended successfully nor were replaced by exec.
std::vector<std::size_t> ended_early(const RunView& view) {
    std::vector<std::size_t> early;
    for (std::size_t i = 0; i < view.collection.members.size(); ++i) {
        const RunMember& member = view.collection.members[i];
        const bool became = view.tree.became_another(view.tree.nodes[i]);
        if (!became && (member.running || !succeeded(member.report.process))) {
            early.push_back(i);
        }
    }
    return early;
}

void note_side(const RunView& view, std::vector<std::string>& notes) {
    constexpr std::size_t max_named = 4;
    const std::vector<RunMember>& members = view.collection.members;
    const std::vector<std::size_t> early = ended_early(view);
    if (!early.empty()) {
        std::string list;
        for (std::size_t i = 0; i < early.size() && i < max_named; ++i) {
            list += (i == 0 ? "" : "; ") + process_title(members[early[i]].report.process);
        }
        notes.push_back(view.source + ": " + std::to_string(early.size()) + " of " +
                        processes_text(members.size()) + " did not end by " +
                        (early.size() == 1 ? "itself" : "themselves") + " (" + list +
                        (early.size() > max_named ? "; ..." : "") +
                        "): figures are those until then.");
    }
    for (const RunMember& member : members) {
        for (const Lack& lack : member.lacks) {
            // How they ended is said above.
            if (lack.kind != Lack::Kind::cut_off && lack.kind != Lack::Kind::running) {
                notes.push_back(member.file + ": " + lack.text);
            }
        }
    }
    for (const std::string& note : all_notes(view.collection)) {
        notes.push_back(view.source + ": " + note);
    }
}

/// The combined peak of the fullest GPU of a run; none if only bounds are known.
std::optional<std::uint64_t> fullest_gpu(const RunView& view, CombinedPeak GpuUsage::*curve) {
    std::uint64_t at_least = 0;
    std::uint64_t at_most = 0;
    for (const GpuUsage& gpu : view.gpus) {
        const CombinedPeak& peak = gpu.*curve;
        const bool alone = gpu.members.size() == 1;
        at_least = std::max(at_least, alone ? peak.sum : peak.at_least);
        at_most = std::max(at_most, alone ? peak.sum : peak.at_most);
    }
    return at_least == at_most ? std::optional(at_most) : std::nullopt;
}

class RunComparer {
  public:
    RunComparer(const RunDiffSide& before, const RunDiffSide& after, const DiffOptions& options)
        : before_(before), after_(after), options_(options) {}

    RunDiff compare() {
        ProcessMatching matching = match_processes(before_.view.collection, after_.view.collection);
        out_.by_rank = matching.by_rank;
        std::vector<DiffSide> sides_before;
        std::vector<DiffSide> sides_after;
        for (const ProcessPair& pair : matching.pairs) {
            add(pair);
            if (pair.both()) {
                sides_before.push_back(before_.process(pair.before));
                sides_after.push_back(after_.process(pair.after));
            }
        }
        std::stable_sort(
            out_.processes.begin(), out_.processes.end(),
            [](const auto& a, const auto& b) { return a.change.size() > b.change.size(); });
        add_totals();
        out_.sites = diff_sites(sides_before, sides_after, options_);
        out_.scopes = diff_scopes(sides_before, sides_after);
        add_notes(builds_note(sides_before, sides_after, out_.sites));
        return std::move(out_);
    }

  private:
    std::uint64_t sort_value_in(const model::Report& report) const {
        if (options_.order == Order::peak) {
            return process_stats(report, options_.device).allocated_peak;
        }
        SiteStats sum;
        for (const model::Device& device : report.devices) {
            if (device.is_gpu() && (!options_.device || device.index == *options_.device)) {
                sum.add(ViewedMemory(device).stats(report));
            }
        }
        return sort_value(sum, options_.order);
    }

    void add(const ProcessPair& pair) {
        ProcessDiff process;
        process.pair = pair;
        if (pair.before != no_member) {
            const model::Report& report = before_.view.collection.members[pair.before].report;
            process.before = process_stats(report, options_.device);
            process.change.before = sort_value_in(report);
        }
        if (pair.after != no_member) {
            const model::Report& report = after_.view.collection.members[pair.after].report;
            process.after = process_stats(report, options_.device);
            process.change.after = sort_value_in(report);
        }
        out_.pairs += pair.both() ? 1 : 0;
        out_.added += pair.before == no_member ? 1 : 0;
        out_.gone += pair.after == no_member ? 1 : 0;
        out_.unchanged += pair.both() && process.change.size() == 0 ? 1 : 0;
        model::add_to(out_.change.before, process.change.before);
        model::add_to(out_.change.after, process.change.after);
        out_.processes.push_back(process);
    }

    Change total(std::uint64_t ProcessStats::*figure) const {
        Change sum;
        for (const ProcessDiff& process : out_.processes) {
            model::add_to(sum.before, process.before.*figure);
            model::add_to(sum.after, process.after.*figure);
        }
        return sum;
    }

    void add_totals() {
        out_.totals.push_back({"processes",
                               "processes",
                               "with CUDA",
                               false,
                               {out_.pairs + out_.gone, out_.pairs + out_.added}});
        add_peaks_at_once();
        out_.totals.push_back({"sum of peaks", "allocated_peak_bytes", "allocated", true,
                               total(&ProcessStats::allocated_peak)});
        out_.totals.push_back({"sum of peaks", "reserved_peak_bytes", "reserved", true,
                               total(&ProcessStats::reserved_peak)});
        out_.totals.push_back({"still held", "allocated_at_end_bytes", "at the end", true,
                               total(&ProcessStats::at_end)});
        out_.totals.push_back({"allocations", "allocations", "device memory", false,
                               total(&ProcessStats::allocations)});
    }

    /// Not with --device: processes may have different indexes for one GPU.
    void add_peaks_at_once() {
        if (options_.device) {
            return;
        }
        const auto allocated_before = fullest_gpu(before_.view, &GpuUsage::allocated);
        const auto allocated_after = fullest_gpu(after_.view, &GpuUsage::allocated);
        const auto reserved_before = fullest_gpu(before_.view, &GpuUsage::reserved);
        const auto reserved_after = fullest_gpu(after_.view, &GpuUsage::reserved);
        if (!allocated_before || !allocated_after || !reserved_before || !reserved_after) {
            return;
        }
        out_.peaks_at_once = true;
        out_.totals.push_back({"fullest GPU",
                               "gpu_allocated_peak_bytes",
                               "allocated",
                               true,
                               {*allocated_before, *allocated_after}});
        out_.totals.push_back({"fullest GPU",
                               "gpu_reserved_peak_bytes",
                               "reserved",
                               true,
                               {*reserved_before, *reserved_after}});
    }

    bool has_ranks(const RunView& view) const {
        return std::any_of(
            view.collection.members.begin(), view.collection.members.end(),
            [](const RunMember& member) { return find_rank(member.report.process).has_value(); });
    }

    void add_notes(const std::string& builds_note) {
        if (!out_.by_rank && has_ranks(before_.view) != has_ranks(after_.view)) {
            const RunView& ranked = has_ranks(before_.view) ? before_.view : after_.view;
            out_.notes.push_back("Only " + ranked.source +
                                 " has ranks: processes are paired by program and start.");
        }
        if (out_.added + out_.gone != 0) {
            out_.notes.push_back(processes_text(out_.added + out_.gone) +
                                 (out_.added + out_.gone == 1 ? " has" : " have") +
                                 " no partner: changes by call stack, place and scope are those "
                                 "of the others.");
        }
        if (!out_.peaks_at_once && !options_.device) {
            out_.notes.emplace_back(
                "What the fullest GPU held at once is left out: without the event logs of all its "
                "processes it is known between two bounds only, which memlab-report FOLDER shows.");
        }
        if (!builds_note.empty()) {
            out_.notes.push_back(builds_note);
        }
        note_side(before_.view, out_.notes);
        note_side(after_.view, out_.notes);
    }

    const RunDiffSide& before_;
    const RunDiffSide& after_;
    const DiffOptions& options_;
    RunDiff out_;
};

}  // namespace

std::string processes_text(std::size_t count) {
    return format_count(count) + (count == 1 ? " process" : " processes");
}

RunDiff diff_runs(const RunDiffSide& before, const RunDiffSide& after, const DiffOptions& options) {
    return RunComparer(before, after, options).compare();
}

}  // namespace memlab::report
