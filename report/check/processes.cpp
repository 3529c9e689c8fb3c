// The processes of a run as the gate takes them: named the same in each run, with what they lack.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "report/check/check.hpp"
#include "report/device_label.hpp"
#include "report/runs/process_rank.hpp"
#include "report/text/names.hpp"

namespace memlab::report::check {

namespace {

using report::base_name;

/// "rank 3", "train.py" (a script is named after its file, not after the interpreter), "app".
std::string stable_name(const model::Process& process) {
    if (const std::optional<std::uint64_t> rank = report::find_rank(process)) {
        return "rank " + std::to_string(*rank);
    }
    std::string executable = base_name(process.executable);
    if (executable.starts_with("python")) {
        for (std::size_t i = 1; i < process.arguments.size(); ++i) {
            if (process.arguments[i].ends_with(".py")) {
                return base_name(process.arguments[i]);
            }
        }
    }
    return executable;
}

}  // namespace

std::vector<Process> prepare_processes(const report::RunCollection& run,
                                       const ProcessOptions& options) {
    std::vector<Process> processes;
    std::map<std::string, std::size_t> name_counts;
    for (const report::RunMember& member : run.members) {
        const model::Process& process = member.report.process;
        Process& out = processes.emplace_back();
        out.file = member.file;
        out.name = stable_name(process);
        if (const std::size_t earlier = name_counts[out.name]++; earlier != 0) {
            out.name += " #" + std::to_string(earlier + 1);
        }
        out.pid = process.pid;
        out.lacks = report::replaced_by_exec(run, member)
                        ? report::find_lacks_of_replaced(member.report)
                        : report::find_lacks(member.report);
        out.resolver =
            std::make_unique<report::Resolver>(member.report, options.symbolizer, options.skips);
        out.summary = report::summarize(member.file, member.report, *out.resolver);
        if (std::any_of(out.lacks.begin(), out.lacks.end(), [](const report::Lack& lack) {
                return unfinished_kinds().count(lack.kind) != 0;
            })) {
            out.unfinished = report::unfinished_text(member.report);
        }
        out.suppressions = &options.suppressions;
        std::set<std::uint64_t> cut;  // GPUs
        for (const report::DeviceSummary& each : out.summary.devices) {
            if (!each.device->is_gpu()) {
                cut.insert(each.device->gpu());
            }
        }
        std::erase_if(out.summary.devices, [&](const auto& each) {
            const model::Device& device = *each.device;
            return (options.frameworks ? device.is_gpu() && cut.count(device.gpu()) != 0
                                       : !device.is_gpu()) ||
                   (options.device && !report::is_on(device.index, *options.device));
        });
    }
    return processes;
}

}  // namespace memlab::report::check
