#include "report/runs/collection.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>
#include <tuple>
#include <utility>

#include "report/parallel.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/reading/input_file.hpp"
#include "report/reading/reader.hpp"
#include "report/runs/process_rank.hpp"
#include "report/runs/read_progress.hpp"
#include "report/runs/run_facts.hpp"
#include "report/text/names.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

constexpr const char* report_format = "memlab-report";

std::string read_head(const std::string& path) {
    std::ifstream file(find_input(path).path, std::ios::binary);
    std::array<char, 256> head{};
    file.read(head.data(), head.size());
    return {head.data(), static_cast<std::size_t>(file.gcount())};
}

std::string read_text(const std::string& path) {
    std::ifstream file(find_input(path).path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

/// Identifies a process image in its report, its log and copies of either.
auto identity(const model::Process& process) {
    return std::make_tuple(process.host, process.pid, process.start_wall_ns);
}

std::string describe(const model::Process& process) {
    return "process " + std::to_string(process.pid) +
           (process.host.empty() ? "" : " on " + process.host);
}

/// A report that the program requested while it ran (memlab_snapshot), not the one at its end.
bool is_snapshot(const RunMember& member) {
    return member.report.process.ended == "running";
}

template <typename... Lists>
void drop(Lists&... lists) {
    (static_cast<void>(std::exchange(lists, Lists())), ...);
}

/// Drops what grows with the program.
void keep_totals(RunMember& member) {
    model::Report& report = member.report;
    member.totals_only = true;
    drop(report.sites, report.stacks, report.frames, report.python_frames, report.modules,
         report.ooms, report.marks, report.scopes, report.steps, report.labels, report.nn_modules,
         report.largest_live, report.missed);
    for (model::Device& device : report.devices) {
        drop(device.at_peak.sites, device.live.sites, device.kernels_at_peak);
        device.timeline.rows.shrink_to_fit();
    }
}

/// Reads files, in any order and in several threads.
class MemberReader {
  public:
    struct Input {
        std::string path;
        std::string log;  ///< read instead if the report is damaged; may be empty
    };
    struct Result {
        RunMember member;
        bool read = false;
        std::string error;    ///< if it was not read
        std::string problem;  ///< of the report whose log was read instead
        bool log_is_another_process = false;
    };

    MemberReader(Keep keep, StackNumbers* numbers, const RecordingReader& reader)
        : keep_(keep), numbers_(numbers), reader_(reader) {}

    Result read(const Input& input) const {
        Result result;
        ReadResult read = read_file(input.path);
        result.member.file = input.path;
        const auto name = recording_name(input.path);
        result.member.from_log = name && name->is_log;
        if (!read.report && !input.log.empty()) {
            result.problem = read.error;
            read = read_file(input.log);
            if (read.report) {
                result.member.file = input.log;
                result.member.from_log = true;
            }
        }
        result.read = read.report.has_value();
        if (!result.read) {
            result.error = read.error;
            return result;
        }
        result.log_is_another_process = !input.log.empty() && read.other_log_beside;
        result.member.warning = read.warning;
        result.member.report = std::move(*read.report);
        result.member.lacks = find_lacks(result.member.report);
        if (keep_ == Keep::totals_and_stacks) {
            result.member.stack_peaks = numbers_->peaks_of(result.member.report);
            result.member.nn_module_peaks = nn_module_peaks(result.member.report);
        }
        if (keep_ == Keep::totals || keep_ == Keep::totals_and_stacks) {
            keep_totals(result.member);
        }
        return result;
    }

  private:
    ReadResult read_file(const std::string& path) const {
        return reader_ ? reader_(path)
                       : read_report(
                             path, {},
                             keep_ == Keep::found_steps ? StepSearch::in_log : StepSearch::none);
    }

    Keep keep_;
    StackNumbers* numbers_;
    const RecordingReader& reader_;
};

class Collector {
  public:
    Collector(Keep keep, const RecordingReader& reader) : reader_(reader) {
        if (keep == Keep::totals_and_stacks) {
            out_.stack_numbers = std::make_unique<StackNumbers>();
        }
        keep_ = keep;
    }

    void add(const std::string& path) {
        if (is_folder(path)) {
            add_folder(path);
        } else {
            add_named_file(path);
        }
    }

    RunCollection finish() {
        read_members();
        apply_facts();
        find_replaced();
        find_missing_ranks();
        std::stable_sort(out_.members.begin(), out_.members.end(),
                         [](const RunMember& a, const RunMember& b) {
                             const model::Process& p = a.report.process;
                             const model::Process& q = b.report.process;
                             return std::tie(p.start_wall_ns, p.host, p.pid) <
                                    std::tie(q.start_wall_ns, q.host, q.pid);
                         });
        order_ranks();
        std::stable_sort(out_.runs.begin(), out_.runs.end(), [](const auto& a, const auto& b) {
            return a.start_wall_ns < b.start_wall_ns;
        });
        note_versions();
        if (out_.runs.size() > 1) {
            out_.notes.push_back(std::to_string(out_.runs.size()) +
                                 " runs of memlab-run are here and shown as one.");
        }
        return std::move(out_);
    }

  private:
    /// Ranks start in any order: among themselves they come by rank, in the places that they have.
    void order_ranks() {
        std::vector<std::size_t> places;
        std::vector<RunMember> ranks;
        for (std::size_t i = 0; i < out_.members.size(); ++i) {
            if (find_rank(out_.members[i].report.process)) {
                places.push_back(i);
                ranks.push_back(std::move(out_.members[i]));
            }
        }
        std::stable_sort(ranks.begin(), ranks.end(), [](const RunMember& a, const RunMember& b) {
            return *find_rank(a.report.process) < *find_rank(b.report.process);
        });
        for (std::size_t i = 0; i < places.size(); ++i) {
            out_.members[places[i]] = std::move(ranks[i]);
        }
    }

    void add_folder(const std::string& folder) {
        std::error_code error;
        std::vector<std::string> files;
        for (std::filesystem::directory_iterator item(folder, error), end; !error && item != end;
             item.increment(error)) {
            files.push_back(item->path().filename().string());
        }
        if (error) {
            fail(folder, "cannot be read (" + error.message() + "); check its permissions");
            return;
        }
        // Plain files come before the same ones compressed, which are left out then.
        std::sort(files.begin(), files.end());
        const std::string prefix = folder + (folder.back() == '/' ? "" : "/");
        std::map<std::string, std::string> logs;
        std::map<std::string, std::string> documents;
        for (const std::string& name : files) {
            if (const auto known = recording_name(name)) {
                (known->is_log ? logs : documents).try_emplace(known->stem, prefix + name);
            }
        }
        std::size_t found = logs.size();
        for (const auto& [stem, path] : documents) {
            const std::string format = document_format(read_head(path));
            found += format == report_format || format == RunFacts::format ? 1 : 0;
            if (format == RunFacts::format) {
                add_facts(path);
            } else if (format == report_format) {
                const auto log = logs.extract(stem);
                add_report(path, log ? log.mapped() : std::string());
            }
        }
        for (const auto& [stem, path] : logs) {
            add_report(path, "");
        }
        if (found == 0) {
            fail(folder,
                 "holds no report and no event log of memlab; give the folder of "
                 "memlab-run -o FOLDER/, or files");
        }
    }

    void add_named_file(const std::string& path) {
        const std::string format = document_format(read_head(path));
        if (format == RunFacts::format) {
            add_facts(path);
        } else {
            add_report(path, "");
        }
    }

    void add_report(const std::string& path, const std::string& log) {
        inputs_.push_back({path, log});
    }

    void read_members() {
        while (!inputs_.empty()) {
            const std::vector<MemberReader::Input> inputs = std::exchange(inputs_, {});
            std::vector<MemberReader::Result> results(inputs.size());
            const MemberReader reader(keep_, out_.stack_numbers.get(), reader_);
            std::vector<std::string> paths;
            paths.reserve(inputs.size());
            for (const MemberReader::Input& input : inputs) {
                paths.push_back(input.path);
            }
            ReadProgress progress(paths);
            // This thread, which shows the progress, begins with the largest.
            const std::vector<std::size_t> order = progress.largest_first();
            for_each_in_parallel(order.size(), [&](std::size_t at) {
                results[order[at]] = reader.read(inputs[order[at]]);
                progress.add(order[at]);
            });
            for (std::size_t i = 0; i < results.size(); ++i) {
                if (results[i].log_is_another_process) {
                    add_report(inputs[i].log, "");
                }
                add_member(inputs[i], std::move(results[i]));
            }
        }
    }

    void add_member(const MemberReader::Input& input, MemberReader::Result result) {
        if (!result.read) {
            fail(input.path, result.error);
            return;
        }
        RunMember& member = result.member;
        if (!result.problem.empty()) {
            out_.notes.push_back(input.path + " " +
                                 result.problem.substr(0, result.problem.find(';')) +
                                 "; its log was read instead.");
        }
        const auto [known, is_new] =
            known_.try_emplace(identity(member.report.process), out_.members.size());
        if (!is_new) {
            RunMember& other = out_.members.at(known->second);
            if (is_snapshot(other) && !is_snapshot(member)) {
                other.file = input.path;
                other.report = std::move(member.report);
                other.lacks = std::move(member.lacks);
                other.stack_peaks = std::move(member.stack_peaks);
                other.nn_module_peaks = std::move(member.nn_module_peaks);
                return;
            }
            if (is_snapshot(member)) {
                return;  // the report at the end is already known
            }
            out_.notes.push_back(input.path + " holds " + describe(member.report.process) +
                                 " once more, which was left out.");
            return;
        }
        if (!member.warning.empty()) {
            out_.notes.push_back(input.path + ": " + member.warning);
        }
        out_.members.push_back(std::move(member));
    }

    void add_facts(const std::string& path) {
        RunFacts facts;
        std::string error;
        facts.file = path;
        if (parse_run_facts(read_text(path), &facts, &error)) {
            out_.runs.push_back(std::move(facts));
        } else {
            fail(path, error);
        }
    }

    /// Copies memlab-run's observations to the members; notes members that only one of them has.
    void apply_facts() {
        std::set<std::size_t> described;
        for (const RunFacts& run : out_.runs) {
            for (const RunFacts::Recorded& fact : run.processes) {
                const auto found =
                    std::find_if(out_.members.begin(), out_.members.end(), [&](const auto& member) {
                        const model::Process& process = member.report.process;
                        // A container has a name of its own as its host's.
                        return process.pid == fact.pid &&
                               process.start_wall_ns == fact.start_wall_ns;
                    });
                if (found == out_.members.end()) {
                    out_.lacks.emplace_back().kind = Lack::Kind::processes;
                    out_.lacks.back().text =
                        base_name(run.file) + " names process " + std::to_string(fact.pid) +
                        (fact.arguments.empty() ? "" : " (" + fact.arguments.front() + ")") +
                        ", but neither its report nor its log is here.";
                    continue;
                }
                found->start_ticks = fact.start_ticks;
                found->from_log = found->from_log || fact.recovered;
                found->report.from_log = found->from_log;
                find_again(*found, find_lacks(found->report));
                // A report was written later: the process has ended.
                found->running = fact.running() && found->file.ends_with(".memlog");
                described.insert(static_cast<std::size_t>(found - out_.members.begin()));
            }
        }
        const std::size_t others = out_.members.size() - described.size();
        if (!out_.runs.empty() && others != 0) {
            out_.notes.push_back(format_plural(others, "recording") + " here " +
                                 (others == 1 ? "belongs" : "belong") +
                                 " to no run that memlab-run described.");
        }
    }

    /// With Keep::totals the report has no scopes and marks any more, from which steps follow.
    static void find_again(RunMember& member, std::vector<Lack> lacks) {
        std::erase_if(lacks, [](const Lack& lack) { return lack.kind == Lack::Kind::steps; });
        std::copy_if(member.lacks.begin(), member.lacks.end(), std::back_inserter(lacks),
                     [](const Lack& lack) { return lack.kind == Lack::Kind::steps; });
        member.lacks = std::move(lacks);
    }

    void find_replaced() {
        for (RunMember& member : out_.members) {
            if (replaced_by_exec(out_, member)) {
                find_again(member, find_lacks_of_replaced(member.report));
            }
        }
    }

    /// Those of the launcher's that are not here. memlab-run's list says it better, where there is
    /// one: it has what ran on its host. A rank may have several processes, of restarts for
    /// example.
    void find_missing_ranks() {
        std::vector<const model::Process*> processes;
        for (const RunMember& member : out_.members) {
            processes.push_back(&member.report.process);
        }
        if (const std::string text = missing_ranks_text(processes);
            out_.runs.empty() && !text.empty()) {
            out_.lacks.emplace_back().kind = Lack::Kind::ranks;
            out_.lacks.back().text = text;
        }
    }

    void note_versions() {
        std::set<std::string> versions;
        for (const RunMember& member : out_.members) {
            versions.insert(member.report.memlab_version);
        }
        if (versions.size() > 1) {
            std::string list;
            for (const std::string& version : versions) {
                list += (list.empty() ? "" : ", ") + version;
            }
            out_.notes.push_back(
                "The recordings were made by different versions of memlab: " + list + ".");
        }
    }

    void fail(const std::string& file, const std::string& error) {
        out_.errors.emplace_back(file, error);
    }

    const RecordingReader& reader_;
    RunCollection out_;
    Keep keep_ = Keep::everything;
    std::vector<MemberReader::Input> inputs_;
    /// Index of the member, by identity().
    std::map<std::tuple<std::string, std::uint64_t, std::uint64_t>, std::size_t> known_;
};

}  // namespace

RunCollection collect_run(const std::vector<std::string>& paths, Keep keep,
                          const RecordingReader& reader) {
    try {
        Collector collector(keep, reader);
        for (const std::string& path : paths) {
            collector.add(path);
        }
        return collector.finish();
    } catch (const std::bad_alloc&) {
        RunCollection nothing;
        nothing.errors.emplace_back(paths.empty() ? "" : paths.front(),
                                    "needs more memory than there is; read it on a larger machine");
        return nothing;
    }
}

model::Report read_whole(const RunMember& member, const RecordingReader& reader) {
    if (!member.totals_only) {
        return member.report;
    }
    ReadResult read = reader ? reader(member.file) : read_report(member.file);
    model::Report report;
    if (read.report) {
        report = std::move(*read.report);
    } else {
        report = member.report;
    }
    report.from_log = member.report.from_log;
    for (const StackPeak& peak : member.stack_peaks) {
        // The file may have been replaced.
        report.stacks.resize(std::max(report.stacks.size(), peak.stack + std::size_t{1}));
    }
    return report;
}

bool is_run_manifest(const std::string& path) {
    const auto name = recording_name(path);
    return name && !name->is_log && document_format(read_head(path)) == RunFacts::format;
}

bool is_folder(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace memlab::report
