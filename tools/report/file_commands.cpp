#include "tools/report/commands.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <new>
#include <string>
#include <tuple>
#include <vector>

#include "report/lacks.hpp"
#include "report/output_file.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/reading/reader.hpp"
#include "report/reading/validate.hpp"
#include "report/runs/collection.hpp"
#include "report/symbols/embed_symbols.hpp"
#include "report/text/shell_word.hpp"
#include "report/text/units.hpp"
#include "tools/report/debuginfod_option.hpp"
#include "tools/report/report_options.hpp"
#include "tools/report/subcommand.hpp"

namespace memlab::tools {

namespace {

using namespace memlab::report;

constexpr const char* too_large_to_do =
    "needs more memory than there is; do it on a larger machine";

std::string for_terminal(const std::string& text) {
    return printable(text, false);
}

// ---- validate -----------------------------------------------------------------------------------

/// The reports and logs of a folder, or the file itself.
std::vector<std::string> files_of(const std::string& path, std::string* problem) {
    if (!is_folder(path)) {
        return {path};
    }
    std::vector<std::string> files;
    std::error_code error;
    for (std::filesystem::directory_iterator item(path, error), end; !error && item != end;
         item.increment(error)) {
        const std::string name = item->path().filename().string();
        const auto known = recording_name(name);
        // Skip the run's description.
        if (known && (known->is_log || !name.starts_with("memlab-run."))) {
            files.push_back(item->path().string());
        }
    }
    if (error || files.empty()) {
        *problem = path + (error ? ": cannot be read; check its permissions"
                                 : ": holds no report and no event log of memlab; name files");
    }
    std::sort(files.begin(), files.end());
    return files;
}

class Validate {
  public:
    int run(const std::vector<std::string>& paths) {
        for (const std::string& path : paths) {
            std::string problem;
            const std::vector<std::string> files = files_of(path, &problem);
            if (!problem.empty()) {
                sound_ = false;
                fail(problem);
            }
            for (const std::string& file : files) {
                try {
                    look_at(file);
                } catch (const std::bad_alloc&) {
                    say(file, too_large_to_do);
                }
            }
            if (is_folder(path)) {
                look_at_run(path);
            }
        }
        return flush_output(sound_ ? 0 : exit_bad_input);
    }

  private:
    /// The recording of one process: its report and its log.
    using Identity = std::tuple<std::string, std::uint64_t, std::uint64_t>;
    struct Text {
        std::string file;
        std::string json;
        bool from_log = false;
    };

    void look_at(const std::string& file) {
        const DeriveResult read = read_with_model(file);
        const Validation found = validate(read);
        if (!found.sound()) {
            for (const std::string& problem : found.problems) {
                say(file, problem);
            }
            if (found.more != 0) {
                say(file, "and " + format_plural(found.more, "problem") + " more");
            }
            return;
        }
        std::string note;
        if (const model::Process& process = read.model.report->process;
            process.ended != "running") {
            const Identity identity(process.host, process.pid, process.start_wall_ns);
            const auto [other, first] =
                seen_.try_emplace(identity, Text{file, read.json, read.from_log});
            if (!first && other->second.from_log != read.from_log) {
                const Text& known = other->second;
                const std::string where = read.from_log ? find_difference(known.json, read.json)
                                                        : find_difference(read.json, known.json);
                if (!where.empty()) {
                    say(file, "differs from " + known.file + " at " + where +
                                  "; one of them was changed, or is of another version");
                    return;
                }
                note = ", the same as " + known.file;
            }
        }
        std::cout << for_terminal(file + ": sound: " + found.what + note) << "\n";
        for (const Lack& lack : found.lacks) {
            std::cout << for_terminal(file + ": " + std::string(info(lack.kind).name) + ": " +
                                      lack.text)
                      << "\n";
        }
    }

    /// What is not here at all.
    void look_at_run(const std::string& folder) {
        const RunCollection run = collect_run({folder}, Keep::totals);
        for (const Lack& lack : run.lacks) {
            sound_ = false;
            std::cout << for_terminal(folder + ": NOT COMPLETE: " + lack.text) << "\n";
        }
    }

    void say(const std::string& file, const std::string& problem) {
        sound_ = false;
        std::cout << for_terminal(file + ": NOT SOUND: " + problem) << "\n";
    }

    bool sound_ = true;
    std::map<Identity, Text> seen_;
};

// ---- recover, symbolize -------------------------------------------------------------------------

struct Conversion {
    std::string input;
    std::string output;
    bool force = false;
};

void define(CLI::App& app, Conversion& arguments, const std::string& what, Wanted wanted) {
    app.add_option("FILE", arguments.input, what)->type_name("");
    app.add_option("-o,--output", arguments.output, "The report to write")
        ->required()
        ->type_name("FILE");
    app.add_flag("--force", arguments.force, "Replace a file that is there already");
    default_to_newest(app, arguments.input, wanted);
}

/// Writes the report; the exit code.
int put(const Conversion& arguments, const std::string& json) {
    const std::string problem =
        report::write_output(arguments.output, json,
                             arguments.force ? model::Existing::replace : model::Existing::refuse);
    return problem.empty() ? 0 : fail(problem);
}

void print_next(const std::string& file) {
    std::cout << "Next: memlab-report " << shell_file(file) << "\n";
}

int recover(const Conversion& arguments) {
    if (is_folder(arguments.input)) {
        return fail(arguments.input + ": a folder; give one event log of it, a memlab.*.memlog");
    }
    const DeriveResult read = read_with_model(arguments.input);
    if (!read.error.empty()) {
        return fail(arguments.input + ": " + read.error);
    }
    if (!read.from_log) {
        return fail(arguments.input +
                    ": no event log; memlab-report validate finds the errors of a report");
    }
    if (!read.model.report) {
        return fail(arguments.input + ": " + read.model.error);
    }
    if (const int code = put(arguments, read.json); code != 0) {
        return code;
    }
    std::cout << for_terminal(arguments.output + ": the report of " +
                              format_plural(read.records, "record"))
              << "\n";
    const model::Report& report = *read.model.report;
    if (!read.warning.empty()) {
        std::cout << for_terminal(read.warning + " What follows there is lost.") << "\n";
    } else if (report.process.recording) {
        std::cout << "The process still runs and writes the log: the report is of this moment.\n";
    } else if (report.process.ended == "cut off") {
        std::cout
            << "The log has no end: the process was killed, ended by _exit, or became another "
               "program.\nWhat it did until its last record is in the report.\n";
    } else if (report.log.gap) {
        std::cout << "The log kept its beginning and its newest part (MEMLAB_LOG_LIMIT): of the " +
                         format_plural(report.log.events, "event") +
                         " all sums, peaks and curves are in the report.\n";
    } else if (report.log.dropped == 0) {
        std::cout << "Nothing is lost: the log is whole.\n";
    }
    if (report.log.dropped != 0) {
        std::cout << for_terminal("The log itself lacks " +
                                  format_plural(report.log.dropped, "event") + ": " +
                                  report.log.stopped_because)
                  << "\n";
    }
    print_next(arguments.output);
    return flush_output(0);
}

int symbolize(const Conversion& arguments) {
    const DeriveResult read = read_json(arguments.input);
    if (!read.error.empty()) {
        return fail(arguments.input + ": " + read.error);
    }
    Symbolizer symbolizer;
    const EmbedResult result = embed_symbols(read.json, symbolizer);
    if (!result.error.empty()) {
        return fail(arguments.input + ": " + result.error);
    }
    if (const int code = put(arguments, result.json); code != 0) {
        return code;
    }
    std::cout << for_terminal(arguments.output + ": " + format_count(result.named) + " of " +
                              format_plural(result.frames, "frame") + " have names now")
              << "\n";
    for (const std::string& module : result.changed) {
        std::cout << for_terminal(module +
                                  " is not the binary that ran (its build id differs): its frames "
                                  "stay without names. Restore the old one and run symbolize "
                                  "again.")
                  << "\n";
    }
    if (!read.warning.empty()) {
        std::cout << for_terminal(read.warning) << "\n";
    }
    print_next(arguments.output);
    return flush_output(0);
}

int convert(int argc, char** argv, CLI::App& app, const Conversion& arguments,
            int (*run)(const Conversion&)) {
    parse(app, argc, argv);
    return with_memory_for(
        arguments.input, [&] { return run(arguments); }, "do it");
}

}  // namespace

int validate_command(int argc, char** argv) {
    std::vector<std::string> paths;
    CLI::App app(
        "Checks whether reports and event logs are sound: format and version, checksums, every "
        "index, and that all sums agree; of a report and its own log, also that both agree. Prints "
        "a line for each file, for each problem, and for each thing that a sound recording lacks; "
        "for a folder also for each process and rank that is missing.",
        "memlab-report validate");
    app.add_option(
           "FILE", paths,
           "Reports (memlab.*.json), event logs (*.memlog), or the folder of a run; default: "
           "the newest recording of this folder")
        ->type_name("");
    default_to_newest(app, paths);
    app.footer(
        "Examples:\n"
        "  memlab-report validate memlab.train.4711.json memlab.train.4711.memlog\n"
        "  memlab-report validate run/\n"
        "\n"
        "Exit code: 0 all are sound, 2 one is not or is missing, or the usage is wrong.");
    parse(app, argc, argv);
    return Validate().run(paths);
}

int recover_command(int argc, char** argv) {
    Conversion arguments;
    CLI::App app(
        "Makes a report of an event log whose process was killed, or whose end is missing or "
        "damaged: all that comes before is in it. Says what is lost.",
        "memlab-report recover");
    define(app, arguments, "An event log (*.memlog); default: the newest one of this folder",
           Wanted::log);
    app.footer(
        "Example:\n"
        "  memlab-report recover memlab.train.4711.memlog -o memlab.train.4711.json\n"
        "\n"
        "Exit code: 0 success, 2 there is nothing to recover, FILE is there already, or the usage "
        "is "
        "wrong.");
    return convert(argc, argv, app, arguments, recover);
}

int symbolize_command(int argc, char** argv) {
    Conversion arguments;
    CLI::App app(
        "Puts the names of functions, files and lines into a report, so that it can be read on a "
        "machine that does not have the binaries. Names of other builds are never used.",
        "memlab-report symbolize");
    define(app, arguments,
           "A report (memlab.*.json) or an event log (*.memlog); default: the newest recording of "
           "this folder",
           Wanted::any);
    add_debuginfod(app);
    app.footer(
        "Example:\n"
        "  memlab-report symbolize memlab.train.4711.json -o train.json\n"
        "\n"
        "Exit code: 0 success, 2 FILE cannot be read or written, or the usage is wrong.");
    return convert(argc, argv, app, arguments, symbolize);
}

}  // namespace memlab::tools
