#include "tools/run/run_report.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iostream>

#include "model/report_file.hpp"
#include "report/reading/reader.hpp"
#include "report/summary/summary.hpp"
#include "report/text/shell_word.hpp"
#include "report/text/terminal.hpp"
#include "report/text/units.hpp"
#include "tools/diagnostics.hpp"

namespace memlab::tools {

namespace {

using namespace memlab::report;

/// More summaries would scroll the program's own output off the screen.
constexpr std::size_t max_summaries = 4;

struct Recorded {
    std::string file;
    bool recovered = false;
    model::Report report;
};

std::uint64_t reserved_at_end(const model::Report& report) {
    std::uint64_t bytes = 0;
    for (const model::Device& device : report.devices) {
        bytes += device.is_gpu() ? device.curve(model::Curve::reserved).at_end_bytes : 0;
    }
    return bytes;
}

class RunReport {
  public:
    RunReport(const LaunchResult& result, const RunReportOptions& options)
        : result_(result), options_(options) {
        text_.style = style_for(STDERR_FILENO, ColorMode::automatic, false);
        text_.top = 3;
        text_.working_directory = options.working_directory;
    }

    /// `is_command`: its exit status is the command's. `may_run`: no later image (exec) is known.
    void add(const RunFiles& files, bool is_command, bool may_run) {
        RunProcess& process = processes_.emplace_back();
        process.files = files;
        if (!file_exists(files.json)) {
            if (files.pid != result_.pid && may_run && still_runs(files)) {
                process.running = true;
                if (const ReadResult read = read_report(files.log); read.report) {
                    process.held_bytes = reserved_at_end(*read.report);
                    process.process = read.report->process;
                }
                return;
            }
            if (!recover(files, is_command)) {
                return;
            }
            process.recovered = true;
        } else if (is_command && WIFSIGNALED(result_.wait_status)) {
            name_signal(files.json);
        }
        ReadResult read = read_report(files.json);
        if (!read.report) {
            error(files.json + ": " + read.error);
            return;
        }
        process.process = read.report->process;
        recorded_.push_back({files.json, process.recovered, std::move(*read.report)});
    }

    const std::vector<RunProcess>& processes() const { return processes_; }

    void print(bool any) {
        if (options_.quiet) {
            return;
        }
        if (!any) {
            if (options_.switched_off.empty()) {
                tools::print_diagnostic("no process of this run used CUDA; nothing was recorded");
            } else {
                tools::print_diagnostic(options_.switched_off + " is set: nothing was recorded");
            }
            return;
        }
        std::stable_sort(recorded_.begin(), recorded_.end(), [](const auto& a, const auto& b) {
            return peak(a.report) > peak(b.report);
        });
        for (std::size_t i = 0; i < recorded_.size(); ++i) {
            if (i == max_summaries) {
                tools::print_diagnostic(std::to_string(recorded_.size() - i) +
                                        " more reports beside these");
                break;
            }
            print_one(recorded_[i]);
        }
        print_running();
        if (processes_.size() > 1 && !options_.folder.empty()) {
            tools::print_diagnostic(std::to_string(processes_.size()) +
                                    " processes; the run as a whole: memlab-report " +
                                    shell_file(relative(options_.folder)));
        }
    }

  private:
    static std::uint64_t peak(const model::Report& report) {
        std::uint64_t most = 0;
        for (const model::Device& device : report.devices) {
            most = std::max(most, device.curve(model::Curve::reserved).peak_bytes);
        }
        return most;
    }

    static void error(const std::string& text) { tools::print_diagnostic(printable(text, false)); }

    /// Adds the signal that ended the process to the report that it wrote before
    /// (MEMLAB_REPORT_ON).
    void name_signal(const std::string& path) const {
        const std::string text = read_json(path).json;
        const std::string named =
            add_process_end(text, signal_name(WTERMSIG(result_.wait_status)), -1,
                            {options_.start_wall_ns, options_.end_wall_ns});
        if (!text.empty() && named != text) {
            // Where that fails it stays as it was.
            (void)model::write_text(named, path, model::Existing::replace);
        }
    }

    bool recover(const RunFiles& files, bool is_command) {
        if (!file_exists(files.log)) {
            error("process " + std::to_string(files.pid) + " left neither " + files.json + " nor " +
                  files.log + "; were they removed?");
            return false;
        }
        DeriveResult derived = derive_json(files.log);
        if (derived.json.empty()) {
            error(files.log + ": " + derived.error);
            return false;
        }
        if (is_command) {
            const bool killed = WIFSIGNALED(result_.wait_status);
            derived.json = add_process_end(derived.json,
                                           killed ? signal_name(WTERMSIG(result_.wait_status)) : "",
                                           killed ? -1 : WEXITSTATUS(result_.wait_status),
                                           {options_.start_wall_ns, options_.end_wall_ns});
        }
        const int failed =
            model::write_text(derived.json, files.json, model::Existing::refuse).error_number;
        if (failed != 0) {
            error("cannot write " + files.json + " (" + std::strerror(failed) +
                  "); memlab-report reads " + files.log + " as well");
            return false;
        }
        return true;
    }

    /// First of all reports memory that is held although the command has ended.
    void print_running() const {
        std::uint64_t held = 0;
        std::size_t count = 0;
        for (const RunProcess& process : processes_) {
            count += process.running ? 1 : 0;
            held += process.running ? process.held_bytes : 0;
        }
        if (count == 0) {
            return;
        }
        const bool one = count == 1;
        tools::print_diagnostic((one ? "1 process is" : std::to_string(count) + " processes are") +
                                " still running and " + (one ? "holds " : "hold ") +
                                format_bytes(held) + " of GPU memory through memlab; " +
                                (one ? "it reports" : "each reports") + " at its end:");
        for (const RunProcess& process : processes_) {
            if (!process.running) {
                continue;
            }
            const LiveProcess live = describe_live(process.files.pid, options_.arguments);
            std::cerr << "  pid " << process.files.pid << "  " << format_bytes(process.held_bytes)
                      << "  " << printable(live.command, false) << "\n    its parent: pid "
                      << live.parent << "  " << printable(live.parent_command, false) << "\n";
        }
    }

    std::string relative(const std::string& path) const {
        const std::string folder = options_.working_directory + "/";
        const bool below = path.compare(0, folder.size(), folder) == 0;
        return below ? path.substr(folder.size()) : path;
    }

    void print_one(const Recorded& recorded) {
        if (options_.summary) {
            Symbolizer symbolizer;
            Resolver resolver(recorded.report, &symbolizer);
            const Summary summary = summarize(recorded.file, recorded.report, resolver);
            std::cerr << "memlab-run: " << render_short(summary, text_);
        }
        const std::string indent = options_.summary ? "  " : "memlab-run: ";
        std::cerr << indent << "report  " << printable(relative(recorded.file), false)
                  << (recorded.recovered ? " (from the log: the program wrote none)" : "") << "\n";
        if (options_.summary) {
            std::cerr << indent << "more    memlab-report " << shell_file(relative(recorded.file))
                      << "\n";
        }
    }

    const LaunchResult& result_;
    const RunReportOptions& options_;
    TextOptions text_;
    std::vector<Recorded> recorded_;
    std::vector<RunProcess> processes_;
};

}  // namespace

std::vector<RunProcess> report_run(const std::vector<RunFiles>& files, const LaunchResult& result,
                                   const RunReportOptions& options) {
    RunReport report(result, options);
    for (std::size_t i = 0; i < files.size(); ++i) {
        // exec keeps the process id: only the last image may be running or have the exit status.
        const bool last = std::none_of(files.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                       files.end(), [&](const auto& later) {
                                           return later.pid == files[i].pid &&
                                                  later.start_ticks == files[i].start_ticks;
                                       });
        report.add(files[i], last && files[i].pid == result.pid, last);
    }
    report.print(!files.empty());
    return report.processes();
}

}  // namespace memlab::tools
