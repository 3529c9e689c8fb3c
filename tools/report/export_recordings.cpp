#include "tools/report/export_recordings.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "model/bounded_sum.hpp"
#include "report/exports/perfetto.hpp"
#include "report/exports/stacks.hpp"
#include "report/levels.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/reading/needs_log.hpp"
#include "report/runs/common_clock.hpp"
#include "report/runs/render.hpp"
#include "report/text/units.hpp"
#include "report/timeline/moments.hpp"
#include "tools/diagnostics.hpp"
#include "tools/report/export_file.hpp"
#include "tools/report/run_members.hpp"

namespace memlab::tools {

using report::exports::Weight;
using report::exports::weight_infos;
using report::exports::WeightInfo;

namespace {

/// The peak where no name is given.
Weight find_weight(const std::string& name) {
    const auto* const found =
        std::find_if(std::begin(weight_infos), std::end(weight_infos),
                     [&name](const WeightInfo& each) { return each.name == name; });
    return found == std::end(weight_infos) ? Weight::peak
                                           : static_cast<Weight>(found - std::begin(weight_infos));
}

/// What an exporter needs to have of a recording: the chosen level, the log where there is one.
std::shared_ptr<const report::exports::Recording> make_recording(LoadedReport loaded,
                                                                 const ExportArguments& arguments) {
    apply_options(loaded.report, arguments);
    report::FoundLog log = report::look_for_log(loaded.file, loaded.report);
    return std::make_shared<const report::exports::Recording>(report::exports::Recording{
        std::move(loaded.report), std::move(log), std::move(loaded.lacks)});
}

/// Sets `device` to the only one of the report, or of the GPU that it is: to what an allocator of
/// the program's holds there, where that was seen from inside. False where several GPUs could be
/// meant.
bool choose_one_device(const model::Report& report, std::optional<std::uint64_t>* device) {
    const model::Device* chosen = nullptr;
    for (const model::Device& each : report.devices) {
        if (!each.used() || (*device && !report::is_on(each.index, **device))) {
            continue;
        }
        if (chosen != nullptr && chosen->gpu() != each.gpu()) {
            return false;
        }
        if (chosen == nullptr || !each.is_gpu()) {
            chosen = &each;
        }
    }
    if (chosen != nullptr) {
        *device = chosen->index;
    }
    return true;
}

}  // namespace

ExportInput::ExportInput(std::shared_ptr<const report::exports::Recording> recording,
                         const ExportArguments& arguments, report::Symbolizer* symbolizer)
    : recording_(std::move(recording)),
      resolver_(recording_->report, symbolizer, arguments.skips),
      input_{.recording = *recording_,
             .resolver = resolver_,
             .filter = arguments.filter,
             .device = arguments.device,
             .by = find_weight(arguments.by),
             .process_name = report::process_title(recording_->report.process)} {}

std::shared_ptr<const report::exports::Recording> prepare_recording(
    LoadedReport loaded, const ExportArguments& arguments, const report::exports::Format& format,
    std::string* problem) {
    const std::string file = loaded.file;
    auto recording = make_recording(std::move(loaded), arguments);
    if (format.needs_log && recording->log.empty()) {
        *problem = file + ": " + report::needs_log(recording->log, "a report has no single events");
    } else if (format.of_events && !arguments.filter.empty() && recording->log.empty()) {
        *problem = file + ": " +
                   report::needs_log(recording->log,
                                     "a report has no single events for --filter to choose from");
    } else if (std::string wrong = check_device(recording->report, arguments.device);
               !wrong.empty()) {
        *problem = file + ": " + wrong;
    } else {
        return recording;
    }
    return nullptr;
}

bool ExportInputs::take(const std::string& file,
                        std::shared_ptr<const report::exports::Recording> recording,
                        const report::exports::Format& format) {
    Interval interval;
    problem_ = find_interval(arguments_, recording->report, arguments_.device, &interval);
    if (!problem_.empty()) {
        problem_ = file + ": " + problem_;
        return false;
    }
    if (format.weighs && arguments_.has_stretch()) {
        return compare_moments(file, recording, interval);
    }
    if (interval.at_ns) {
        add(at(file, recording, arguments_.at, *interval.at_ns));
        return after_ != nullptr;
    }
    add(std::make_unique<ExportInput>(std::move(recording), arguments_, symbols_));
    report::exports::Input& input = after_->input();
    if (arguments_.has_stretch()) {
        input.stretch = {.from_ns = interval.from_ns, .until_ns = interval.to_ns};
    }
    if (format.one_device && !choose_one_device(input.recording.report, &input.device)) {
        problem_ = file + ": " + std::string(format.name) +
                   " has no column for the GPU, and several were used; choose one with --device";
        return false;
    }
    return true;
}

bool ExportInputs::compare_moments(const std::string& file, const Recording& recording,
                                   const Interval& interval) {
    add(at(file, recording, arguments_.from.empty() ? "0s" : arguments_.from, interval.from_ns));
    if (after_ != nullptr) {
        add(at(file, recording, arguments_.until.empty() ? "end" : arguments_.until,
               interval.to_ns));
    }
    return after_ != nullptr;
}

void ExportInputs::add(std::unique_ptr<ExportInput> input) {
    before_ = std::move(after_);
    after_ = std::move(input);
    if (before_ != nullptr && after_ != nullptr) {
        after_->input().before = &before_->input();
    }
}

std::unique_ptr<ExportInput> ExportInputs::at(const std::string& file, const Recording& recording,
                                              const std::string& moment, std::uint64_t time_ns) {
    Recording then = recording;
    const bool known = moment == "peak" || moment == "end";
    if (!known) {
        if (recording->log.empty()) {
            problem_ = file + ": " + report::needs_log(recording->log, report::live_at_few_moments);
            return nullptr;
        }
        std::optional<model::Report> report =
            report::report_at(recording->log.path, time_ns, recording->report, moments_);
        if (!report) {
            problem_ = file + ": " + report::not_replayable(recording->report, moment);
            return nullptr;
        }
        apply_options(*report, arguments_);
        then = std::make_shared<const report::exports::Recording>(
            report::exports::Recording{std::move(*report), recording->log, recording->lacks});
    }
    auto input = std::make_unique<ExportInput>(std::move(then), arguments_, symbols_);
    input->input().by = moment == "peak" ? Weight::peak : Weight::live;
    input->input().moment = known ? "the " + moment : moment;
    return input;
}

namespace {

/// A process of a run for a trace of all.
struct RunProcess {
    std::size_t member = 0;
    std::uint64_t start_ns = 0;  ///< since the first process started
    report::exports::Stretch stretch;
};

/// The processes of a run on the clock of the first one, and which stretch of each is shown.
class RunStretch {
  public:
    RunStretch(const ExportArguments& arguments, const report::RunCollection& run)
        : arguments_(arguments), run_(run) {
        std::vector<report::ProcessStart> starts;
        for (const report::RunMember& member : run.members) {
            const model::Process& process = member.report.process;
            report::ProcessStart& start = starts.emplace_back();
            start.machine = process.host;
            start.start_wall_ns = process.start_wall_ns;
            if (const auto first =
                    report::read_process_info(report::find_event_log(member.file, member.report))) {
                start.start_monotonic_ns = first->start_monotonic_ns;
            }
        }
        starts_ = report::common_starts(starts);
        first_ns_ = *std::min_element(starts_.begin(), starts_.end());
    }

    std::uint64_t first_ns() const { return first_ns_; }

    /// None: the process has no part in the stretch. `problem`: why, if it lacks what the options
    /// name.
    std::optional<RunProcess> find(std::size_t member, std::string* problem) const {
        const model::Report& report = run_.members[member].report;
        RunProcess found{.member = member, .start_ns = starts_[member] - first_ns_, .stretch = {}};
        if (!arguments_.has_stretch()) {
            return found;
        }
        std::uint64_t from_ns = 0;
        std::uint64_t until_ns = found.stretch.until_ns;
        for (const auto& [option, text, moment] :
             {std::tuple("--from", &arguments_.from, &from_ns),
              std::tuple("--until", &arguments_.until, &until_ns)}) {
            if (text->empty()) {
                continue;
            }
            const auto time = find_moment(option, *text, report, arguments_.device, problem);
            if (!time) {
                return std::nullopt;
            }
            *moment = is_time(*text, report) ? *time : model::saturating_add(*time, found.start_ns);
        }
        const std::uint64_t end_ns =
            model::saturating_add(found.start_ns, report.process.duration_ns);
        if (from_ns > until_ns || from_ns > end_ns || until_ns < found.start_ns) {
            return std::nullopt;
        }
        found.stretch = {.from_ns = from_ns - std::min(from_ns, found.start_ns),
                         .until_ns = until_ns - found.start_ns};
        return found;
    }

  private:
    /// Times count from the start of the first process, other words are each process's own.
    static bool is_time(const std::string& text, const model::Report& report) {
        return report::time_of_moment(text).has_value() &&
               std::none_of(report.marks.begin(), report.marks.end(),
                            [&](const model::Mark& mark) { return mark.name == text; });
    }

    const ExportArguments& arguments_;
    const report::RunCollection& run_;
    std::vector<std::uint64_t> starts_;
    std::uint64_t first_ns_ = 0;
};

/// What many processes of a run may have in common is said once.
class Warnings {
  public:
    void add(const std::string& file, const std::string& what) {
        if (what.empty()) {
            return;
        }
        for (Warning& each : warnings_) {
            if (each.what == what) {
                ++each.others;
                return;
            }
        }
        warnings_.push_back({file, what, 0});
    }

    void print() const {
        for (const Warning& each : warnings_) {
            const std::string others =
                each.others == 0 ? "" : " and " + report::format_plural(each.others, "other");
            print_diagnostic(report::printable(each.file, false) + others + ": " +
                             report::printable(each.what, false));
        }
    }

  private:
    struct Warning {
        std::string file;
        std::string what;
        std::uint64_t others = 0;
    };
    std::vector<Warning> warnings_;
};

}  // namespace

std::vector<std::string> warnings_of(const report::exports::Recording& recording) {
    std::vector<std::string> warnings;
    for (const report::Lack& lack : recording.lacks) {
        if (lack.kind != report::Lack::Kind::gap) {
            warnings.push_back(lack.text);
        }
    }
    return warnings;
}

int export_run_to_perfetto(const ExportArguments& arguments, const report::RunCollection& run) {
    const RunStretch stretch(arguments, run);
    std::vector<RunProcess> processes;
    std::string problem;
    Warnings warnings;
    bool any_left_out = false;
    for (std::size_t i = 0; i < run.members.size(); ++i) {
        const report::RunMember& member = run.members[i];
        const std::vector<model::Device>& devices = member.report.devices;
        if (std::none_of(devices.begin(), devices.end(),
                         [](const model::Device& device) { return device.used(); })) {
            continue;  // a shell, a launcher
        }
        std::string wrong = check_device(member.report, arguments.device);
        if (wrong.empty()) {
            if (const std::optional<RunProcess> found = stretch.find(i, &wrong)) {
                processes.push_back(*found);
                continue;
            }
        }
        any_left_out = true;
        if (!wrong.empty()) {
            problem = wrong;
            warnings.add(member.file, "not in the trace: " + wrong);
        }
    }
    if (processes.empty()) {
        const int unread = report_errors(run);
        return unread != EXIT_SUCCESS ? unread
               : !problem.empty()     ? fail(problem)
               : !any_left_out        ? fail("no process used a GPU")
                                      : fail(
                                            "no process ran between --from and --until; choose "
                                                   "other times");
    }
    ExportOutput output(arguments.output, true);
    if (!output.problem().empty()) {
        return fail(output.problem());
    }
    report::exports::PerfettoTrace trace(output.sink(), stretch.first_ns());
    report::Symbolizer symbolizer;
    for (const RunProcess& process : processes) {
        const report::RunMember& member = run.members[process.member];
        const auto recording =
            make_recording({member.file, member.lacks, read_whole(member)}, arguments);
        if (!arguments.filter.empty() && recording->log.empty()) {
            warnings.add(member.file,
                         "not in the trace: a report has no single events for --filter");
            continue;
        }
        ExportInput input(recording, arguments, arguments.no_symbols ? nullptr : &symbolizer);
        input.input().stretch = process.stretch;
        for (const std::string& what : warnings_of(*recording)) {
            warnings.add(member.file, what);
        }
        warnings.add(member.file, trace.add(input.input(), process.start_ns));
    }
    if (!trace.finish() || !output.finish()) {
        return fail(output.problem());
    }
    warnings.print();
    return report_errors(run);
}

}  // namespace memlab::tools
