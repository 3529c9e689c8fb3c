// The JSON documents of several processes, as structs: their fields() name each member, and the
// writer and the schemas are made of these. render_json.cpp and run_diff_render.cpp fill them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/lacks.hpp"
#include "report/runs/combined_usage.hpp"
#include "report/runs/process_stats.hpp"
#include "report/runs/ranks.hpp"
#include "report/runs/run_facts.hpp"
#include "report/summary/summary.hpp"
#include "report/views/diff.hpp"

namespace memlab::report {

using FileErrors = std::vector<std::pair<std::string, std::string>>;

template <typename Visitor>
void error_fields(const FileErrors& errors, Visitor& visit) {
    visit.list({"errors", "files that could not be read"}, errors, [](const auto& each, auto& to) {
        to.text({"file", "its name"}, each.first);
        to.text({"error", "what is wrong and what to do"}, each.second);
    });
}

template <typename Visitor>
void level_field(Level level, Visitor& visit) {
    visit.text({"level", "of all figures: what frameworks' caches handed out, or the driver",
                model::one_of("driver", "framework")},
               level_name(level));
}

/// memlab-report --json FOLDER.
struct RunSummary {
    struct Device {
        std::uint64_t index = 0;
        std::string name;
        std::string uuid;
        ProcessStats stats;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number({"index", "in the process"}, self.index);
            visit.text({"name", "as the driver has it"}, self.name);
            visit.text({"uuid", "as the driver has it; empty where it is unknown"}, self.uuid);
            ProcessStats::fields(self.stats, visit);
        }
    };
    struct Process {
        std::string file;
        model::Process process;
        std::optional<std::uint64_t> parent;
        bool by_exec = false;
        std::string outcome;
        bool from_log = false;
        bool running = false;
        std::uint64_t ooms = 0;
        std::vector<Lack> lacks;
        std::vector<Device> devices;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.text({"file", "the report, or the log where there is no report"}, self.file);
            visit.number({"pid", "its id"}, self.process.pid);
            visit.number({"parent_pid", "its parent's"}, self.process.parent_pid);
            visit.text({"host", "the name of the machine"}, self.process.host);
            visit.number_or_null({"parent",
                                  "index of the process that started it, or that became it; null "
                                  "where that used no CUDA"},
                                 self.parent);
            visit.flag({"by_exec", "`parent` became it"}, self.by_exec);
            visit.text({"executable", "absolute path"}, self.process.executable);
            visit.texts({"arguments", "of its command line"}, self.process.arguments);
            visit.named_texts({"ranks", "its rank variables, name to value"}, self.process.ranks);
            visit.number({"start_wall_ns", "when it started, since the Unix epoch"},
                         self.process.start_wall_ns);
            visit.number({"duration_ns", "as in the report"}, self.process.duration_ns);
            visit.text({"ended", "as in the report; `running`: its log is being written"},
                       end_word(self.process));
            visit.text_or_null({"signal", "that killed it, as in the report"}, self.process.signal);
            visit.number_or_null({"exit_code", "as in the report"}, self.process.exit_code);
            visit.text({"outcome", "how it ended, in a word"}, self.outcome);
            visit.flag({"from_log", "it wrote no report itself"}, self.from_log);
            visit.flag({"running", "when memlab-run had ended"}, self.running);
            visit.number({"ooms", "failed allocations"}, self.ooms);
            lack_fields(self.lacks, visit);
            visit.list({"devices", "the GPUs that it used"}, self.devices);
        }
    };
    std::string source;
    std::vector<RunFacts> runs;
    std::vector<Process> processes;
    std::optional<std::uint64_t> largest;
    std::vector<GpuUsage> gpus;
    std::vector<std::string> notes;
    std::vector<Lack> lacks;
    FileErrors errors;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.constant({"format", "the format's name"}, "memlab-run-summary");
        visit.constant({"version", "of the format"}, 1);
        visit.text({"source", "the folder or files, as they were given"}, self.source);
        visit.list(
            {"runs", "the commands of `memlab-run`, ordered by start"}, self.runs,
            [](const RunFacts& run, auto& to) {
                to.text({"file", "the run file"}, run.file);
                to.text({"host", "the name of the machine"}, run.host);
                to.number({"pid", "of `memlab-run`"}, run.pid);
                to.texts({"command", "with its arguments"}, run.command);
                to.number({"start_wall_ns", "since the Unix epoch"}, run.start_wall_ns);
                to.number({"end_wall_ns", "since the Unix epoch"}, run.end_wall_ns);
                to.text_or_null({"signal", "that killed the command"}, run.signal);
                to.number_or_null({"exit_code", "the command's"}, run.exit_code);
                to.named_texts({"replaced", "the variables that `--replace` set"}, run.replaced);
            });
        visit.list({"processes", "by start"}, self.processes);
        visit.number_or_null({"largest", "index of the process with the largest allocated peak"},
                             self.largest);
        visit.list({"gpus", "those that were used, by UUID"}, self.gpus,
                   [](const GpuUsage& gpu, auto& to) {
                       GpuUsage::fields(gpu, to);
                       to.numbers({"processes", "that used it, indexes"}, gpu.members);
                   });
        visit.texts({"notes", "sentences"}, self.notes);
        lack_fields(self.lacks, visit);
        error_fields(self.errors, visit);
    }
};

/// memlab-report merge --json.
struct Merge {
    struct Rank {
        RankRow row;
        std::string file;
        std::string host;
        std::uint64_t pid = 0;
        std::string outcome;
        std::vector<Lack> lacks;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number({"rank", "in the job"}, self.row.rank);
            visit.number_or_null({"local_rank", "on its host"}, self.row.local_rank);
            visit.text({"file", "of the process that stands for the rank"}, self.file);
            visit.text({"host", "the name of the machine"}, self.host);
            visit.number({"pid", "its id"}, self.pid);
            visit.number({"processes", "that carry the rank and used a GPU"}, self.row.processes);
            visit.texts({"gpus", "their UUIDs"}, self.row.gpus);
            visit.number({"allocated_peak_bytes", "summed over its GPUs"}, self.row.allocated_peak);
            visit.number({"reserved_peak_bytes", "summed over its GPUs"}, self.row.reserved_peak);
            visit.number({"managed_peak_bytes", "of managed memory, summed over its GPUs"},
                         self.row.managed_peak);
            visit.number({"pinned_peak_bytes", "of pinned host memory, summed over its GPUs"},
                         self.row.pinned_peak);
            visit.ratio({"fragmentation",
                         "1 − active/reserved at their peaks, of its pools, weighted by size; "
                         "null without one"},
                        self.row.fragmentation);
            visit.number({"allocations", "of device memory"}, self.row.allocations);
            visit.number({"ooms", "failed allocations"}, self.row.ooms);
            visit.text({"outcome", "how it ended, in a word"}, self.outcome);
            lack_fields(self.lacks, visit);
        }
    };
    struct Gpu {
        GpuUsage usage;
        std::vector<std::string> files;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            GpuUsage::fields(self.usage, visit);
            visit.texts({"files", "of the processes that used it"}, self.files);
        }
    };
    RankComparison ranks;
    std::vector<Rank> rows;
    std::vector<Gpu> gpus;
    std::vector<std::string> notes;
    std::vector<Lack> lacks;
    FileErrors errors;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.constant({"format", "the format's name"}, "memlab-merge");
        visit.constant({"version", "of the format"}, 1);
        visit.number_or_null({"world_size", "null where no launcher set it"},
                             self.ranks.world_size);
        level_field(self.ranks.level, visit);
        visit.list({"ranks", "by rank"}, self.rows);
        visit.group({"imbalance", "over the ranks"}, [&self](auto& to) {
            to.object({"allocated", "of the allocated peaks"}, self.ranks.allocated);
            to.object({"reserved", "of the reserved peaks"}, self.ranks.reserved);
        });
        visit.list({"gpus", "those that were used, by UUID"}, self.gpus);
        visit.list({"places", "those that differ, largest difference first",
                    model::AtMost{RankComparison::max_places}},
                   self.ranks.places);
        visit.list({"nn_modules", "PyTorch's, largest difference first",
                    model::AtMost{RankComparison::max_nn_modules}},
                   self.ranks.nn_modules);
        visit.texts({"notes", "sentences"}, self.notes);
        lack_fields(self.lacks, visit);
        error_fields(self.errors, visit);
    }
};

/// memlab-report diff --json BEFORE/ AFTER/.
struct RunDiffDocument {
    struct Side {
        std::string source;
        std::uint64_t processes = 0;
        std::vector<Lack> lacks;
        FileErrors errors;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.text({"source", "the folder or files, as they were given"}, self.source);
            visit.number({"processes", "how many"}, self.processes);
            lack_fields(self.lacks, visit);
            error_fields(self.errors, visit);
        }
    };
    struct Member {
        std::string file;
        std::vector<Lack> lacks;
        model::Process process;
        ProcessStats stats;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.text({"file", "the report, or the log where there is no report"}, self.file);
            lack_fields(self.lacks, visit);
            visit.text({"host", "the name of the machine"}, self.process.host);
            visit.number({"pid", "its id"}, self.process.pid);
            visit.text({"executable", "absolute path"}, self.process.executable);
            visit.texts({"arguments", "of its command line"}, self.process.arguments);
            ProcessStats::fields(self.stats, visit);
        }
    };
    struct Pair {
        std::optional<std::uint64_t> rank;
        bool stands_for_rank = false;
        std::optional<Member> before;
        std::optional<Member> after;
        std::optional<std::int64_t> change;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number_or_null({"rank", "null without one"}, self.rank);
            visit.flag({"stands_for_rank", "false of the helpers of a rank"}, self.stands_for_rank);
            visit.object_or_null({"before", "in BEFORE; null where it was added"}, self.before);
            visit.object_or_null({"after", "in AFTER; null where it is gone"}, self.after);
            visit.signed_or_null({"change",
                                  "of the figure that `sort` names; of `peak` the allocated peak; "
                                  "null beyond 64 bits"},
                                 self.change);
        }
    };
    Side before;
    Side after;
    std::string sort;
    std::string filter;
    std::optional<std::uint64_t> device;
    bool by_rank = false;
    std::vector<DiffTotal> totals;
    std::vector<Pair> processes;
    FirstSites sites;
    ScopeChanges scopes;
    std::vector<std::string> notes;

    /// None where the comparison has no such total.
    std::optional<Change> total(std::string_view member) const {
        const auto found =
            std::find_if(totals.begin(), totals.end(),
                         [member](const DiffTotal& total) { return total.member == member; });
        return found == totals.end() ? std::nullopt : std::optional(found->change);
    }

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.constant({"format", "the format's name"}, "memlab-run-diff");
        visit.constant({"version", "of the format"}, 1);
        visit.object({"before", "the run BEFORE"}, self.before);
        visit.object({"after", "the run AFTER"}, self.after);
        visit.text({"sort", "as it was asked for",
                    model::one_of("peak", "bytes", "count", "live", "temporaries")},
                   self.sort);
        visit.text_or_null({"filter", "as it was asked for; null: none"}, self.filter);
        visit.number_or_null({"device", "as it was asked for; null: none"}, self.device);
        visit.text({"paired_by", "how processes were matched", model::one_of("rank", "program")},
                   self.by_rank ? "rank" : "program");
        visit.group({"totals", "of all processes"}, [&self](auto& to) {
            const auto total = [&self](const char* member) {
                return self.total(member).value_or(Change());
            };
            to.object({"processes", "those with CUDA"}, total("processes"));
            to.object_or_null({"gpu_allocated_peak_bytes",
                               "what the fullest GPU held at once; null where either run's is "
                               "known between bounds only, and with a `device`"},
                              self.total("gpu_allocated_peak_bytes"));
            to.object_or_null({"gpu_reserved_peak_bytes", "the same of what was reserved"},
                              self.total("gpu_reserved_peak_bytes"));
            to.object({"allocated_peak_bytes", "the sum, each at its own peak"},
                      total("allocated_peak_bytes"));
            to.object({"reserved_peak_bytes", "the sum, each at its own peak"},
                      total("reserved_peak_bytes"));
            to.object({"allocated_at_end_bytes", "the sum"}, total("allocated_at_end_bytes"));
            to.object({"allocations", "of device memory"}, total("allocations"));
        });
        visit.list({"processes", "all, those that changed most first"}, self.processes);
        visit.object({"call_sites", "of all pairs together"}, self.sites);
        ScopeChanges::fields(self.scopes, visit);
        visit.texts({"notes", "sentences"}, self.notes);
    }
};

}  // namespace memlab::report
