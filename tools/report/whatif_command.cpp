#include "tools/report/commands.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "interpose/options/device_limits.hpp"
#include "interpose/options/option_table.hpp"
#include "model/parse_size.hpp"
#include "report/device_label.hpp"
#include "report/lacks.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/reading/needs_log.hpp"
#include "report/reading/reader.hpp"
#include "report/runs/collection.hpp"
#include "report/summary/json_values.hpp"
#include "report/summary/place_text.hpp"
#include "report/summary/summary.hpp"
#include "report/symbols/resolver.hpp"
#include "report/text/progress.hpp"
#include "report/text/terminal.hpp"
#include "report/text/units.hpp"
#include "report/whatif/pool_settings.hpp"
#include "report/whatif/render.hpp"
#include "report/whatif/replay.hpp"
#include "report/whatif/table.hpp"
#include "tools/diagnostics.hpp"
#include "tools/report/debuginfod_option.hpp"
#include "tools/report/recorded_pool.hpp"
#include "tools/report/report_options.hpp"
#include "tools/report/subcommand.hpp"

namespace memlab::tools {

namespace {

constexpr int exit_differs = 1;

/// The options that the option table parses from these environment variables.
bool read_environment(const std::vector<std::string>& assignments, interpose::Settings* settings,
                      std::string* problem) {
    std::vector<const char*> environment;
    environment.reserve(assignments.size() + 1);
    for (const std::string& assignment : assignments) {
        environment.push_back(assignment.c_str());
    }
    environment.push_back(nullptr);
    interpose::LoadedSettings loaded = interpose::load_settings(environment.data());
    if (!loaded.problems.empty()) {
        *problem = loaded.problems.front();
        return false;
    }
    *settings = std::move(loaded.settings);
    return true;
}

constexpr const char* packed_share_name = "MEMLAB_PACKED_SHARE";

}  // namespace

bool read_options(const std::vector<trace::OptionValue>& recorded,
                  const report::whatif::PoolSettings& changes, interpose::Settings* settings,
                  std::string* problem) {
    std::vector<std::string> assignments;
    for (const auto& [name, value] : changes) {  // of duplicate names the first counts
        if (name.starts_with("MEMLAB_")) {
            std::string& assignment = assignments.emplace_back(name);
            assignment += '=';
            assignment += value;
        }
    }
    for (const trace::OptionValue& each : recorded) {
        if (each.name.starts_with("MEMLAB_")) {  // not those of frameworks
            assignments.push_back(each.name + "=" + each.value);
        }
    }
    // Logs record all options. A log without one of these is of a pool before the option was there,
    // whatever the default is now.
    const auto knows = [&](std::string_view name) {
        return std::any_of(recorded.begin(), recorded.end(),
                           [&](const trace::OptionValue& each) { return each.name == name; });
    };
    assignments.emplace_back("MEMLAB_FRAGMENTED_ROUNDING_MB=0");
    assignments.emplace_back(std::string(packed_share_name) + "=1");
    assignments.emplace_back("MEMLAB_TRIM_BACKOFF=on");
    if (!read_environment(assignments, settings, problem)) {
        return false;
    }
    if (!knows(packed_share_name)) {
        settings->pool_options.unmaps_per_hold = allocator::PoolOptions::no_limit;
    }
    if (!knows("MEMLAB_NAMES")) {  // as old as the limit
        settings->pool_options.segments_per_hold = allocator::PoolOptions::no_limit;
    }
    for (const auto& [name, value] : changes) {
        if (!name.starts_with("MEMLAB_") &&
            !report::whatif::set_pool_option(name, value, &settings->pool_options, problem)) {
            return false;
        }
    }
    *problem = allocator::problem_with(settings->pool_options);
    return problem->empty();
}

std::uint64_t limit_of(const interpose::Settings& settings, const trace::DeviceInfo& device) {
    return interpose::find_limit(settings.limits,
                                 static_cast<int>(device.is_gpu() ? device.index : device.gpu),
                                 device.uuid);
}

report::whatif::ReadPoolSettings pool_settings_of(const std::vector<trace::OptionValue>& recorded) {
    return [&recorded](const report::whatif::PoolSettings& changes, allocator::PoolOptions* options,
                       bool* one_stream, std::string* problem) {
        interpose::Settings settings;
        const bool good = read_options(recorded, changes, &settings, problem);
        *options = settings.pool_options;
        *one_stream = settings.one_stream &&
                      std::any_of(changes.begin(), changes.end(), [](const auto& change) {
                          return change.first == "MEMLAB_ONE_STREAM";
                      });
        return good;
    };
}

namespace {

bool read_pool_in_force(const std::vector<trace::OptionValue>& recorded,
                        const trace::DeviceInfo& device, bool first,
                        report::whatif::PoolInForce* pool, std::string* problem) {
    interpose::Settings settings;
    if (!read_options(recorded, {}, &settings, problem)) {
        return false;
    }
    const std::uint64_t limit = limit_of(settings, device);
    *pool = {allocator::options_of_context(settings.pool_options, first),
             limit != 0 ? limit : device.total_bytes};
    return true;
}

struct WhatifArguments {
    std::string log;
    std::vector<std::string> policies;
    std::vector<std::string> options;
    std::string limit;
    std::optional<std::uint64_t> device;
    StyleOptions style;
    bool json = false;
    bool no_symbols = false;
    report::FrameSkips skips;
};

void define(CLI::App& app, WhatifArguments& arguments) {
    app.add_option("FILE", arguments.log,
                   "An event log (*.memlog), the report beside it, or the folder of a run of one "
                   "process; default: the newest recording of this folder")
        ->type_name("");
    default_to_newest(app, arguments.log);
    add_repeated(app, "--policy", arguments.policies,
                 "Try this, see below, instead of the default ones; may be repeated")
        ->type_name("NAME");
    add_repeated(app, "--option", arguments.options,
                 "Also try memlab's pool with this option; several are set together")
        ->type_name("NAME=VALUE");
    app.add_option("--limit", arguments.limit, "As if the GPU had this much memory (24GiB)")
        ->type_name("SIZE");
    app.add_option("--device", arguments.device, "Only this GPU, by its index in the program")
        ->type_name("N")
        ->check(check_whole_number);
    app.add_flag("--json", arguments.json, "Print JSON, for scripts");
    add_skip(app, arguments.skips);
    add_style_options(app, arguments.style);
    add_symbols(app, arguments.no_symbols);
    app.footer("Policies:\n" + report::whatif::policy_help() +
               "\nOptions of the pool: " + report::whatif::pool_option_names() +
               ".\n"
               "\n"
               "Examples:\n"
               "  memlab-report whatif memlab.train.4711.memlog\n"
               "  memlab-report whatif memlab.train.4711.memlog --limit 24GiB\n"
               "  memlab-report whatif memlab.train.4711.memlog --policy pool --policy \\\n"
               "      pytorch:max_split_size_mb:64 --option large_rounding=32MiB\n"
               "\n"
               "No GPU is needed. Exit code: 0 success, 2 bad input or usage.");
}

/// The names of call sites, looked up on first use.
class Places {
  public:
    Places(const model::Report& report, bool symbols, report::FrameSkips skips)
        : report_(report), symbols_(symbols), skips_(std::move(skips)) {}

    std::string operator()(std::uint32_t stack) {
        if (stack == 0 || stack >= report_.stacks.size()) {
            return "";
        }
        if (!resolver_) {
            resolver_.emplace(report_, symbols_ ? &symbolizer_ : nullptr, skips_);
        }
        return report::location_text(resolver_->place(stack), "");
    }

  private:
    const model::Report& report_;
    const bool symbols_;
    const report::FrameSkips skips_;
    report::Symbolizer symbolizer_;
    std::optional<report::Resolver> resolver_;
};

/// Selects the policies to run, in the order of the table; empty, or the error.
std::string choose_policies(const WhatifArguments& arguments,
                            const report::whatif::ReadPoolSettings& read_pool,
                            std::vector<report::whatif::Policy>* policies) {
    std::vector<std::string> names = arguments.policies;
    if (names.empty()) {
        names = report::whatif::default_policies();
    }
    const std::size_t defaults = arguments.policies.empty() ? names.size() : 0;
    if (!arguments.options.empty()) {
        std::string all = "pool:";
        for (const std::string& option : arguments.options) {
            all += (all.back() == ':' ? "" : ",") + option;
        }
        names.push_back(all);
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
        report::whatif::Policy policy;
        std::string problem;
        if (!report::whatif::read_policy(names[i], read_pool, &policy, &problem)) {
            return problem;
        }
        // Skip the default settings if they equal the recorded ones.
        const bool known =
            i < defaults && std::any_of(policies->begin(), policies->end(),
                                        [&](const report::whatif::Policy& other) {
                                            return report::whatif::same_pool(policy, other);
                                        });
        if (!known) {
            policy.by_default = i < defaults;
            policies->push_back(std::move(policy));
        }
    }
    return "";
}

/// The event log that is meant by a log, a report or a folder; none, with `problem` set.
std::string find_log(const std::string& file, std::string* problem) {
    if (!report::is_folder(file) && report::read_process_info(file)) {
        return file;
    }
    const std::optional<LoadedReport> loaded =
        load_report(file, problem, "name the log of one of them");
    if (!loaded) {
        return "";
    }
    const report::FoundLog log = report::look_for_log(loaded->file, loaded->report);
    if (log.empty()) {
        *problem = loaded->file + ": " + report::needs_log(log, "has sums, not moments");
    }
    return log.path;
}

/// Of what was tried; that this is the beginning only, or up to the damage, is said with it.
std::vector<report::Lack> lacks_of(const model::Report& report) {
    std::vector<report::Lack> lacks = report::find_lacks(report);
    std::erase_if(lacks, [](const report::Lack& lack) {
        return lack.kind == report::Lack::Kind::gap || lack.kind == report::Lack::Kind::damaged;
    });
    return lacks;
}

int try_out(WhatifArguments arguments) {
    std::optional<std::uint64_t> limit;
    if (!arguments.limit.empty()) {
        limit = model::parse_size(arguments.limit);
        if (limit.value_or(0) == 0) {
            return fail("--limit takes a size like 24GiB, not " + arguments.limit);
        }
    }
    std::string error;
    arguments.log = find_log(arguments.log, &error);
    if (!error.empty()) {
        return fail(error);
    }
    report::ReadResult read;
    report::whatif::Recording recording =
        report::whatif::read_recording(arguments.log, &read, &error);
    if (!error.empty() || !read.report) {
        return fail(arguments.log + ": " + (error.empty() ? read.error : error));
    }
    if (arguments.device) {
        std::erase_if(recording.programs, [&](const report::whatif::Program& program) {
            return !report::is_on(program.device.index, *arguments.device);
        });
        if (recording.programs.empty()) {
            return fail(arguments.log + ": nothing was allocated on GPU " +
                        std::to_string(*arguments.device) +
                        "; leave --device out to see those that were used");
        }
    }
    report::whatif::prefer_allocators(recording.programs);
    interpose::Settings recorded;
    if (!read_options(recording.options, {}, &recorded, &error)) {
        return fail(arguments.log + ": its options cannot be used (" + error +
                    "); use the memlab-report of the memlab that recorded it");
    }
    std::vector<report::whatif::Policy> policies;
    error = choose_policies(arguments, pool_settings_of(recording.options), &policies);
    if (!error.empty()) {
        return fail(error);
    }
    std::vector<report::whatif::Table> tables;
    for (const report::whatif::Program& program : recording.programs) {
        std::optional<std::uint64_t> of_device = limit;
        if (const std::uint64_t own = limit_of(recorded, program.device); !limit && own != 0) {
            of_device = own;
        }
        report::Progress progress(report::progress_terminal(), "allocators", policies.size(),
                                  report::Progress::Clock::now(), std::chrono::milliseconds(500));
        tables.push_back(report::whatif::tabulate(
            program, policies, of_device,
            [&](std::size_t row) { progress.update(row, report::Progress::Clock::now()); }));
    }
    Places places(*read.report, !arguments.no_symbols, arguments.skips);
    const report::whatif::DescribeStack describe_stack = [&places](std::uint32_t stack) {
        return places(stack);
    };
    const std::vector<report::Lack> lacks = lacks_of(*read.report);
    if (arguments.json) {
        std::cout << report::with_lacks(
            report::whatif::render_json(arguments.log, recording, tables, describe_stack), lacks);
    } else {
        const report::Style style = make_style(arguments.style);
        std::cout << report::whatif::render_text(recording, tables, style, describe_stack)
                  << lacks_text(lacks, style);
    }
    return flush_output(EXIT_SUCCESS);
}

/// Replays one log; returns the exit code.
int replay_one(const std::string& log, const std::string& prefix) {
    const report::whatif::ReplayResult result = report::whatif::replay_log(log, read_pool_in_force);
    if (!result.error.empty()) {
        return fail(log + ": " + result.error);
    }
    if (!result.warning.empty()) {
        print_diagnostic(report::printable(log, false) + ": " +
                         report::printable(result.warning, false));
    }
    if (!result.divergence.empty()) {
        std::cout << prefix << "differs: " << report::printable(result.divergence, false) << "\n";
        return exit_differs;
    }
    std::cout << prefix << "equal: " << report::format_plural(result.events, "event") << ", "
              << report::format_plural(result.segments, "segment") << ", reserved peak "
              << report::format_bytes(result.reserved_peak) << "\n";
    return EXIT_SUCCESS;
}

}  // namespace

int whatif_command(int argc, char** argv) {
    WhatifArguments arguments;
    CLI::App app(
        "Replays a recorded program's allocations with other allocators and settings: what each "
        "would have reserved, what it costs in driver calls, whether it fits, and which to choose.",
        "memlab-report whatif");
    define(app, arguments);
    parse(app, argc, argv);
    return with_memory_for(
        arguments.log, [&] { return try_out(arguments); }, "run it");
}

int replay_command(int argc, char** argv) {
    std::vector<std::string> logs;
    CLI::App app(
        "Repeats the recorded calls on a new pool, from the log alone, and compares every block "
        "and segment: the strongest check that pool and log are right.",
        "memlab-report replay");
    app.add_option("LOG", logs, "Event logs (*.memlog); default: the newest one of this folder")
        ->type_name("");
    default_to_newest(app, logs, report::Wanted::log);
    app.footer("Exit code: 0 equal, 1 a replay differs, 2 bad input or usage.");
    parse(app, argc, argv);
    int worst = EXIT_SUCCESS;
    for (const std::string& log : logs) {
        const std::string prefix = logs.size() == 1 ? "" : report::printable(log, false) + ": ";
        const auto replay = [&] { return replay_one(log, prefix); };
        worst = std::max(worst, with_memory_for(log, replay, "run it"));
    }
    return flush_output(worst);
}

}  // namespace memlab::tools
