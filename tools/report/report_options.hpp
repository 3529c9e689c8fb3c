// Common options of memlab-report's commands (input files, selection, style), and the loop over the
// input files.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/report.hpp"
#include "report/levels.hpp"
#include "report/reading/reader.hpp"
#include "report/runs/newest_recording.hpp"
#include "report/summary/filter.hpp"
#include "report/summary/place_text.hpp"
#include "report/summary/summary.hpp"
#include "report/symbols/resolver.hpp"
#include "tools/report/subcommand.hpp"

namespace memlab::tools {

/// A command adds the options that it supports; the others keep their defaults.
struct ReportOptions {
    std::vector<std::string> files;
    bool json = false;
    bool no_symbols = false;
    bool templates = false;
    std::size_t top = 10;
    std::string sort;
    std::optional<std::uint64_t> device;
    report::Level level = report::Level::all;
    bool find_steps = false;  ///< where the program marks none, in the event log
    report::Filter filter;
    bool by_nn_module = false;  ///< the view groups by nn.Module
    report::FrameSkips skips;
    StyleOptions style;
    bool follow = false;
    double interval_s = 1;           ///< between two looks
    report::RecordingReader reader;  ///< while recordings are followed; else none

    /// The view groups or filters by nn.Module: its reports need separate_nn_modules().
    bool tells_nn_modules_apart() const { return by_nn_module || filter.by_nn_module(); }
};

/// If no recording is named, the newest one of the current folder is taken, and a line on stderr
/// says so. Takes the app's callback; `files` must outlive parse().
void default_to_newest(CLI::App& app, std::vector<std::string>& files,
                       report::Wanted wanted = report::Wanted::any);
void default_to_newest(CLI::App& app, std::string& file,
                       report::Wanted wanted = report::Wanted::any);
/// To be followed, the newest event log.
void default_to_newest(CLI::App& app, ReportOptions& options);

/// By default the newest recording.
void add_files(CLI::App& app, ReportOptions& options);
/// Files that must be named: a gate does not guess.
void add_required_files(CLI::App& app, ReportOptions& options);
void add_one_file(CLI::App& app, ReportOptions& options);
/// `what`: the output ("the summary").
void add_json(CLI::App& app, ReportOptions& options, const std::string& what);
/// `what` is counted ("Places in each table"); `default_count` of them are shown.
void add_top(CLI::App& app, ReportOptions& options, const std::string& what,
             std::size_t default_count = 10);
/// `orders`: the accepted values, the default first.
void add_sort(CLI::App& app, ReportOptions& options, const std::vector<std::string>& orders);
/// --level LEVEL. `both`: takes `all`, too.
void add_level(CLI::App& app, const char* what, bool both,
               const std::function<void(report::Level)>& chosen);
/// --device and --level.
void add_device(CLI::App& app, ReportOptions& options);
/// --filter; `nn_modules`: and --nn-module, which only some figures of a recording can be chosen
/// by.
void add_filter(CLI::App& app, ReportOptions& options, bool nn_modules = false);
/// Chooses the level, and tells nn.Modules apart where the options ask for it.
void apply_options(model::Report& report, const ReportOptions& options);
/// "--sort ORDER ...; what to do" if the order is by figures that a recording does not have by
/// nn.Module, and these are asked for; else empty.
std::string check_order(const ReportOptions& options);
/// --skip and --no-default-skip.
void add_skip(CLI::App& app, report::FrameSkips& skips);
void add_templates(CLI::App& app, ReportOptions& options);
/// --follow and --interval.
void add_follow(CLI::App& app, ReportOptions& options);
/// --no-symbols, --color and --ascii.
void add_rendering(CLI::App& app, ReportOptions& options);

/// A validator for CLI11: accepts 1, 2, ...
std::string check_positive(const std::string& text);

/// "GPU 3 was not used; what to do", or empty if the report has the device.
std::string check_device(const model::Report& report, const std::optional<std::uint64_t>& device);

/// A report as passed to a command.
struct OpenReport {
    const std::string& file;  ///< its path
    const model::Report& report;
    const std::vector<report::Lack>& lacks;
    report::Resolver& resolver;
};

/// The summary, filtered by --filter and ordered by --sort.
report::Summary make_summary(const OpenReport& open, const ReportOptions& options);

/// Thrown by `show` if a report has nothing to show: "what; what to do".
struct CannotShow {
    std::string problem;
};

/// Calls `show` for each report of `files`, in order; a run directory expands to its processes.
/// Prints what `show` returns: text, under headings if there are several, or with --json the text
/// of a JSON value, in a document of `format`. A file that cannot be read, or lacks the selected
/// GPU, gives one line on stderr and an error in the document. Event logs are read through
/// `make_sink`, if given. Returns the exit code.
int show_reports(const ReportOptions& options, std::string_view format,
                 const std::function<std::string(const OpenReport&)>& show,
                 const report::LogSinkFactory& make_sink = {});

/// show() once; with --follow again and again, by options.reader, and once more at the end. Returns
/// the exit code. Logs that are followed are read through `make_sink`, if given.
int show_or_follow(ReportOptions& options, const std::function<int()>& show,
                   const report::LogSinkFactory& make_sink = {});

/// What is to be read for a path: for the file of memlab-run the folder that it lies in.
std::string meant_by(const std::string& path);

/// A report for commands that compare; of a run directory its only process.
struct LoadedReport {
    std::string file;
    std::vector<report::Lack> lacks;  ///< of the report, and of the run that it is alone in
    model::Report report;
};

/// What a recording lacks, as the end of a view; empty: nothing.
std::string lacks_text(const std::vector<report::Lack>& lacks, const report::Style& style);

/// On errors returns nothing and sets `problem` ("FILE: what; what to do"). `several_hint`: what to
/// do about the folder of a run with several processes. An event log that was named is read through
/// `make_sink`, if given, else with `search`; or all by `reader`.
std::optional<LoadedReport> load_report(
    const std::string& path, std::string* problem,
    const std::string& several_hint = "name the report of one of them",
    const report::LogSinkFactory& make_sink = {},
    report::StepSearch search = report::StepSearch::none,
    const report::RecordingReader& reader = {});

/// Reads two reports, in parallel if a thread can be created. Nothing if one cannot be read.
std::optional<std::pair<LoadedReport, LoadedReport>> load_two_reports(
    const std::string& first, const std::string& second, std::string* problem,
    const std::string& several_hint);

}  // namespace memlab::tools
