// The way in that memlab-report's commands share: which reports, which part of them, how they are
// to look; and one loop over them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/model.hpp"
#include "report/reader.hpp"
#include "report/summary/filter.hpp"
#include "report/summary/place_text.hpp"
#include "report/summary/summary.hpp"
#include "report/symbols/resolver.hpp"
#include "tools/report/subcommand.hpp"

namespace memlab::tools {

/// A command adds those of the options that it heeds; the others keep their defaults.
struct ReportOptions {
    std::vector<std::string> files;
    bool json = false;
    bool no_symbols = false;
    bool templates = false;
    std::size_t top = 10;
    std::string sort;
    std::optional<std::uint64_t> device;
    report::Filter filter;
    Looks looks;
};

void add_files(CLI::App& app, ReportOptions& options);
void add_one_file(CLI::App& app, ReportOptions& options);
/// `what` is printed ("the summary").
void add_json(CLI::App& app, ReportOptions& options, const std::string& what);
/// `what` is counted ("Places in each table"); `by_default` of them are shown.
void add_top(CLI::App& app, ReportOptions& options, const std::string& what,
             std::size_t by_default = 10);
/// `orders`: what it takes, the default first.
void add_sort(CLI::App& app, ReportOptions& options, const std::vector<std::string>& orders);
void add_device(CLI::App& app, ReportOptions& options);
void add_filter(CLI::App& app, ReportOptions& options);
void add_templates(CLI::App& app, ReportOptions& options);
/// --no-symbols, --color and --ascii.
void add_rendering(CLI::App& app, ReportOptions& options);

/// A check for CLI11: empty for 1, 2, ...
std::string at_least_one(const std::string& text);

/// "GPU 3 was not used; what to do", or empty when the report has what --device asks for.
std::string problem_of_device(const report::Report& report,
                              const std::optional<std::uint64_t>& device);

/// A report as a command is given it.
struct OpenReport {
    const std::string& file;  ///< as it was found
    const report::Report& report;
    const std::string& warning;  ///< the reader's, of a log; empty: none
    report::Resolver& resolver;
};

/// The summary with what --filter takes in its tables, in the order of --sort.
report::Summary summary_of(const OpenReport& open, const ReportOptions& options);

/// What `show` throws when there is nothing to show of a report: "what; what to do".
struct CannotShow {
    std::string problem;
};

/// Calls `show` for each report of `files`, one after the other; a run directory stands for its
/// processes. What `show` returns is printed: text, under a heading where there are several, or
/// with --json the text of a JSON value, in a document of `format`. A file that cannot be read, or
/// has nothing of the GPU that was asked for, is one line on stderr and an error in the document.
/// `follower` looks on when one of `files` is an event log and is read. The exit code.
int show_reports(const ReportOptions& options, std::string_view format,
                 const std::function<std::string(const OpenReport&)>& show,
                 const report::LogFollower& follower = {});

/// One report, for commands that compare: of a run directory the only process.
struct LoadedReport {
    std::string file;
    std::string warning;
    report::Report report;
};

/// Nothing, and `problem` ("FILE: what; what to do"), when it cannot be read. `of_several`: what to
/// do about the folder of a run of several processes.
std::optional<LoadedReport> load_report(
    const std::string& path, std::string* problem,
    const std::string& of_several = "name the report of one of them");

/// Two of them, read at the same time where the system gives a thread for it. Nothing when one
/// cannot be read.
std::optional<std::pair<LoadedReport, LoadedReport>> load_two_reports(
    const std::string& first, const std::string& second, std::string* problem,
    const std::string& of_several);

}  // namespace memlab::tools
