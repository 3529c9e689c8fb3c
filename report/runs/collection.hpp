// The recordings of a run: the reports and logs of its processes, and memlab-run's own file. Read
// from a folder or from single files, of one host or copied together from several. Unreadable files
// are listed as errors, inconsistencies as notes; everything readable is included.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/report.hpp"
#include "report/lacks.hpp"
#include "report/nn_module_parts.hpp"
#include "report/reading/reader.hpp"
#include "report/runs/nn_module_peaks.hpp"
#include "report/runs/run_facts.hpp"
#include "report/runs/stack_peaks.hpp"
#include "report/text/names.hpp"

namespace memlab::report {

/// One process image (exec starts a new one).
struct RunMember {
    std::string file;       ///< the report, or the log if there is no report
    std::string warning;    ///< ReadResult::warning
    bool from_log = false;  ///< the process wrote no report itself
    bool running = false;   ///< when memlab-run wrote its file
    std::uint64_t start_ticks =
        0;                     ///< since boot, the same for all images of a process; 0: unknown
    bool totals_only = false;  ///< see Keep::totals
    std::vector<Lack> lacks;   ///< of the whole report, whatever is kept of it
    model::Report report;
    std::vector<StackPeak> stack_peaks;         ///< with Keep::totals_and_stacks
    std::vector<NnModulePeak> nn_module_peaks;  ///< the same
};

struct RunCollection {
    std::vector<RunMember> members;  ///< by start, host and pid
    std::vector<RunFacts> runs;      ///< by start
    std::vector<std::string> notes;  ///< whole sentences
    std::vector<Lack> lacks;         ///< processes and ranks that are not here
    std::vector<std::pair<std::string, std::string>> errors;  ///< file, "what is wrong; what to do"
    std::unique_ptr<StackNumbers> stack_numbers;              ///< with Keep::totals_and_stacks
};

/// What is kept of each report: a run may have thousands of processes.
enum class Keep : std::uint8_t {
    everything,
    found_steps,        ///< and the steps that are found in event logs
    totals,             ///< what does not grow with the program, and the timelines
    totals_and_stacks,  ///< and the peaks of its call stacks and nn.Modules
};

/// Reads files, and the recordings in folders (not in their subfolders). Other files in a folder
/// are ignored; a file that is named itself must be a recording. Reads on all processors, by
/// `reader` if there is one. Never throws.
RunCollection collect_run(const std::vector<std::string>& paths, Keep keep = Keep::everything,
                          const RecordingReader& reader = {});

/// An image that exec replaced is complete: its memory was released with it.
inline bool replaced_by_exec(const RunCollection& run, const RunMember& member) {
    return std::any_of(run.members.begin(), run.members.end(), [&](const RunMember& later) {
        const model::Process& process = member.report.process;
        return member.start_ticks != 0 && later.start_ticks == member.start_ticks &&
               later.report.process.pid == process.pid &&
               later.report.process.host == process.host &&
               later.report.process.start_wall_ns > process.start_wall_ns;
    });
}

/// separate_nn_modules() of each process.
inline void separate_nn_modules(RunCollection& run) {
    for (RunMember& member : run.members) {
        separate_nn_modules(member.report);
    }
}

/// The notes, and the sentences of the lacks.
inline std::vector<std::string> all_notes(const RunCollection& run) {
    std::vector<std::string> notes = run.notes;
    for (const Lack& lack : run.lacks) {
        notes.push_back(lack.text);
    }
    return notes;
}

/// Processes and ranks that are not here, and files that could not be read.
inline std::vector<Lack> all_lacks(const RunCollection& run) {
    std::vector<Lack> lacks = run.lacks;
    for (const auto& [file, error] : run.errors) {
        Lack& lack = lacks.emplace_back();
        lack.kind = Lack::Kind::processes;
        lack.text = base_name(file) + " cannot be read: " + error.substr(0, error.find(';')) + ".";
    }
    return lacks;
}

/// Of these, those of the run.
inline std::vector<Lack> lacks_of_run(std::vector<Lack> lacks) {
    std::erase_if(lacks, [](const Lack& lack) {
        return lack.kind != Lack::Kind::processes && lack.kind != Lack::Kind::ranks;
    });
    return lacks;
}

/// The whole report of a member, by `reader` if there is one. Where its file can no longer be read:
/// what there is.
model::Report read_whole(const RunMember& member, const RecordingReader& reader = {});

/// True for a folder.
bool is_folder(const std::string& path);
/// What memlab-run writes of a run, memlab-run.HOST.PID.json.
bool is_run_manifest(const std::string& path);

}  // namespace memlab::report
