#include "tools/report/commands.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "report/anonymize/recordings.hpp"
#include "report/output_file.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/reading/input_file.hpp"
#include "report/reading/reader.hpp"
#include "report/runs/collection.hpp"
#include "report/symbols/embed_symbols.hpp"
#include "report/symbols/symbolizer.hpp"
#include "report/text/terminal.hpp"
#include "report/text/units.hpp"
#include "tools/report/debuginfod_option.hpp"
#include "tools/report/report_options.hpp"
#include "tools/report/subcommand.hpp"

namespace memlab::tools {

namespace {

using namespace memlab::report;

struct AnonymizeArguments {
    std::string input;
    std::string output;
    bool force = false;
    bool no_symbols = false;
};

void define(CLI::App& app, AnonymizeArguments& arguments) {
    app.add_option("FILE", arguments.input,
                   "A report (memlab.*.json), an event log (*.memlog), or the folder of a run; "
                   "default: the newest recording of this folder")
        ->type_name("");
    app.add_option("-o,--output", arguments.output,
                   "The copy: a report (.json; its event log goes beside it), an event log "
                   "(.memlog), or for a run a folder that does not exist yet")
        ->required()
        ->type_name("FILE");
    app.add_flag("--force", arguments.force, "Overwrite existing files");
    add_symbols(app, arguments.no_symbols);
    default_to_newest(app, arguments.input);
    app.footer(
        "Removed: host and user names, UUIDs of GPUs and folders (each becomes a number, as in "
        "/1/train.py), arguments of programs except the script, commands of parent processes. "
        "Kept: figures, line numbers, and the names of functions, files, libraries, kernels, marks "
        "and labels. Symbols are looked up first, since the copy cannot find the binaries.\n"
        "\n"
        "Examples:\n"
        "  memlab-report anonymize memlab.train.4711.json -o shared.json\n"
        "  memlab-report anonymize run/ -o shared/\n"
        "  memlab-report html --no-source -o page.html shared.json\n"
        "\n"
        "Exit code: 0 success, 2 FILE cannot be read or written, or the usage is wrong.");
}

class Anonymize {
  public:
    explicit Anonymize(const AnonymizeArguments& arguments) : arguments_(arguments) {}

    int run() {
        if (!is_folder(arguments_.input)) {
            return one(arguments_.input, arguments_.output);
        }
        std::error_code error;
        const bool made = std::filesystem::create_directories(arguments_.output, error);
        if (error || (!made && !arguments_.force)) {
            return fail(arguments_.output + (error ? ": " + error.message()
                                                   : ": exists; name another folder, or add "
                                                     "--force"));
        }
        return folder();
    }

  private:
    int folder() {
        std::set<std::string> there;
        std::set<std::string> reports;  // their stems
        std::error_code error;
        for (std::filesystem::directory_iterator each(arguments_.input, error), end;
             !error && each != end; each.increment(error)) {
            const std::string name = each->path().filename();
            there.insert(name);
            if (const auto known = recording_name(name); known && !known->is_log) {
                reports.insert(known->stem);
            }
        }
        // A manifest knows the host's name.
        std::vector<std::string> names(there.begin(), there.end());
        std::stable_partition(names.begin(), names.end(), [](const std::string& name) {
            return name.starts_with("memlab-run.");
        });
        const std::string from = arguments_.input + "/";
        std::size_t copied = 0;
        for (const std::string& name : names) {
            const std::string path = from + name;
            const auto known = recording_name(name);
            if (!known || (known->is_log && reports.contains(known->stem))) {
                continue;
            }
            const std::string unpacked = known->stem + (known->is_log ? ".memlog" : ".json");
            if (name != unpacked && there.contains(unpacked)) {
                continue;
            }
            if (is_run_manifest(path)) {
                if (const int code = manifest(path, unpacked); code != 0) {
                    return code;
                }
            } else if (const int code =
                           one(path, arguments_.output + "/" + anonymizer_.file_name(unpacked));
                       code != 0) {
                return code;
            }
            ++copied;
        }
        return copied != 0
                   ? flush_output(0)
                   : fail(arguments_.input + ": holds no report and no event log of memlab");
    }

    int manifest(const std::string& path, const std::string& name) {
        std::ifstream file(find_input(path).path);
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        std::string error;
        const std::string json = anonymize_json(text, anonymizer_, error);
        if (json.empty()) {
            return fail(path + ": " + error);
        }
        return put(arguments_.output + "/" + anonymizer_.file_name(name), json);
    }

    int one(const std::string& input, const std::string& output) {
        const DeriveResult read = read_with_model(input);
        if (!read.error.empty() || !read.model.report) {
            return fail(input + ": " + (read.error.empty() ? read.model.error : read.error));
        }
        const std::string log = read.from_log ? input : find_event_log(input, *read.model.report);
        const bool log_alone = output.ends_with(".memlog");
        if (log_alone && log.empty()) {
            return fail(input + ": has no event log beside it; name a report: -o FILE.json");
        }
        if (log_alone) {
            return copy_log(log, output, [] { return std::string(); });
        }
        OutputFile file(output, existing());
        const auto put_report = [&] {
            std::string error;
            const std::string json = anonymous_report(read.json, error);
            if (json.empty()) {
                return input + ": " + error;
            }
            if (file.write(json.data(), json.size())) {
                file.complete();
            }
            return file.problem();
        };
        // Neither has its name before both are complete.
        if (log.empty()) {
            if (const std::string problem = put_report(); !problem.empty()) {
                return fail(problem);
            }
        } else {
            const std::string stem =
                output.substr(0, output.size() - (output.ends_with(".json") ? 5 : 0));
            if (const int code = copy_log(log, stem + ".memlog", put_report); code != 0) {
                return code;
            }
        }
        return file.finish() ? say(output + ": the report") : fail(file.problem());
    }

    std::string anonymous_report(const std::string& report, std::string& error) {
        if (!arguments_.no_symbols) {
            Symbolizer symbolizer;
            if (const EmbedResult named = embed_symbols(report, symbolizer); named.error.empty()) {
                return anonymize_json(named.json, anonymizer_, error);
            }
        }
        return anonymize_json(report, anonymizer_, error);
    }

    int copy_log(const std::string& log, const std::string& output,
                 const std::function<std::string()>& before) {
        const AnonymizedLog copy = anonymize_log(log, output, existing(), anonymizer_, before);
        if (!copy.error.empty()) {
            return fail(copy.error);
        }
        return say(output + ": " + format_plural(copy.records, "record") +
                   (copy.warning.empty() ? "" : "; " + copy.warning));
    }

    model::Existing existing() const {
        return arguments_.force ? model::Existing::replace : model::Existing::refuse;
    }

    int put(const std::string& output, const std::string& json) {
        const std::string problem = write_output(output, json, existing());
        return problem.empty() ? say(output + ": the report") : fail(problem);
    }

    static int say(const std::string& text) {
        std::cout << printable(text, false) << "\n";
        return flush_output(0);
    }

    const AnonymizeArguments& arguments_;
    Anonymizer anonymizer_;
};

}  // namespace

int anonymize_command(int argc, char** argv) {
    AnonymizeArguments arguments;
    CLI::App app(
        "Copies a recording without host, user, GPU UUIDs, folders and arguments, so that it can "
        "be shared.",
        "memlab-report anonymize");
    define(app, arguments);
    parse(app, argc, argv);
    return with_memory_for(
        arguments.input, [&] { return Anonymize(arguments).run(); }, "do it");
}

}  // namespace memlab::tools
