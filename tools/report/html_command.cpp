// memlab-report html: the page to look at a recording in a browser, and to send around.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/parse_size.hpp"
#include "report/device_label.hpp"
#include "report/html/page.hpp"
#include "report/levels.hpp"
#include "report/output_file.hpp"
#include "report/reading/reader.hpp"
#include "report/runs/collection.hpp"
#include "report/runs/render.hpp"
#include "report/symbols/symbolizer.hpp"
#include "report/text/units.hpp"
#include "report/views/suppressions.hpp"
#include "tools/report/commands.hpp"
#include "tools/report/debuginfod_option.hpp"
#include "tools/report/recorded_pool.hpp"
#include "tools/report/report_options.hpp"
#include "tools/report/run_members.hpp"

namespace memlab::tools {

namespace {

struct HtmlArguments : ReportOptions {
    std::string recording;
    std::string after;
    std::string output;
    std::string title;
    std::string show;
    std::string max_size;
    std::string page;
    std::vector<std::string> sources;
    bool no_source = false;
};

void define(CLI::App& app, HtmlArguments& arguments) {
    app.add_option("RECORDING", arguments.recording,
                   "A report (memlab.*.json) or an event log (*.memlog), or the folder of a run; "
                   "default: the newest recording of this folder")
        ->type_name("");
    default_to_newest(app, arguments.recording);
    app.add_option("AFTER", arguments.after, "A report or an event log to compare it with")
        ->type_name("");
    app.add_option("-o,--output", arguments.output,
                   "Write the page to FILE; an existing one is replaced")
        ->type_name("FILE");
    app.add_option("--title", arguments.title, "The page's title (default: the program's name)")
        ->type_name("TEXT");
    app.add_option("--show", arguments.show,
                   "What the page shows first: the part of its address after the #, "
                   "from=...&to=...")
        ->type_name("TEXT");
    app.add_option("--max-size", arguments.max_size,
                   "Merge small holders of memory until the page is at most SIZE (such as "
                   "900KiB); one that cannot be made so small is not written")
        ->type_name("SIZE");
    app.add_flag("--no-source", arguments.no_source,
                 "Leave out source lines and the programs' arguments, to share the page");
    add_repeated(app, "--sources", arguments.sources,
                 "Look for moved source files in this folder, too; may be repeated")
        ->type_name("DIR")
        ->excludes("--no-source");
    add_device(app, arguments);
    add_skip(app, arguments.skips);
    add_json(app, arguments, "the page's data");
    app.add_option("--page", arguments.page,
                   "A page template to use instead of the built-in one, for development")
        ->type_name("FILE");
    add_symbols(app, arguments.no_symbols);
    app.footer(
        "The page is one self-contained file: open it in any browser, also offline. docs/html.md "
        "describes it.\n"
        "\n"
        "Examples:\n"
        "  memlab-report html -o page.html train.memlog\n"
        "  memlab-report html -o page.html --no-source train.memlog          to share\n"
        "  memlab-report html -o page.html before.memlog after.memlog        to compare\n"
        "  memlab-report html -o page.html run/                              many ranks\n"
        "\n"
        "Exit code: 0 success, 2 a file could not be read or the usage is wrong.");
}

/// The empty page. Sets `problem` if there is none.
std::string empty_page(const HtmlArguments& arguments, std::string* problem) {
    if (arguments.page.empty()) {
        const std::string_view built_in = report::built_in_page();
        if (built_in.empty()) {
            *problem =
                "html is not in this build, which was made without Node.js; build with "
                "-DMEMLAB_HTML=ON, or install a package of memlab";
        }
        return std::string(built_in);
    }
    std::ifstream file(arguments.page, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file) {
        *problem = arguments.page + ": cannot be read; give the page that report/html/web builds";
    } else if (report::find_placeholder(text) == std::string::npos) {
        *problem = arguments.page + ": is no empty page: exactly one script element must hold " +
                   std::string(report::page_placeholder) +
                   "; give the page that report/html/web builds";
    }
    return text;
}

/// Makes the page of the arguments.
class PageMaker {
  public:
    explicit PageMaker(const HtmlArguments& arguments)
        : arguments_(arguments), suppressions_(report::read_suppressions({}, true)) {
        options_.sources = !arguments.no_source;
        options_.source_folders = arguments.sources;
        options_.skips = arguments.skips;
        options_.suppressions = &suppressions_.list;
        options_.pool_settings = pool_settings_of;
    }

    /// None: problem() says why.
    std::optional<report::PageData> make() {
        std::optional<report::PageData> page =
            arguments_.after.empty() ? of_one(arguments_.recording) : of_two();
        if (page) {
            page->sources = options_.sources;
            page->title = arguments_.title.empty() ? page->title : arguments_.title;
            page->show = arguments_.show;
        }
        return page;
    }

    const std::string& problem() const { return problem_; }
    const report::PageOptions& options() const { return options_; }
    /// Files of the run that could not be read: file, "what is wrong; what to do".
    const report::RunCollection& errors() const { return errors_; }

  private:
    /// Leaves out what the options do not want. False: the GPU was not used.
    bool choose(const std::string& file, model::Report& report) {
        report::choose_level(report, arguments_.level);
        if (const std::string wrong = check_device(report, arguments_.device); !wrong.empty()) {
            problem_ = file + ": " + wrong;
            return false;
        }
        if (arguments_.device) {
            std::erase_if(report.devices, [&](const model::Device& device) {
                return !report::is_on(device.index, *arguments_.device);
            });
            std::erase_if(report.ooms, [&](const model::Oom& oom) {
                return !report::is_on(oom.device, *arguments_.device);
            });
        }
        return true;
    }

    std::optional<report::PageRecording> read(LoadedReport loaded) {
        if (!choose(loaded.file, loaded.report)) {
            return std::nullopt;
        }
        return report::read_recording(loaded.file, std::move(loaded.report), symbols(), options_,
                                      report::lacks_of_run(std::move(loaded.lacks)));
    }

    std::optional<report::PageData> of_recording(LoadedReport loaded) {
        std::optional<report::PageRecording> recording = read(std::move(loaded));
        if (!recording) {
            return std::nullopt;
        }
        report::PageData page;
        page.title = report::process_title(recording->report->process);
        page.recordings.push_back(std::move(*recording));
        return page;
    }

    std::optional<report::PageData> of_one(const std::string& path) {
        if (!report::is_folder(path)) {
            std::optional<LoadedReport> loaded = load_report(
                path, &problem_, "name the report of one of them", {}, report::StepSearch::in_log);
            return loaded ? of_recording(std::move(*loaded)) : std::nullopt;
        }
        // A thousand ranks do not fit into memory whole. Of a choice of GPUs they have to.
        const bool all = arguments_.device || arguments_.level != report::Level::all;
        report::RunCollection run = report::collect_run(
            {path}, all ? report::Keep::everything : report::Keep::totals_and_stacks);
        errors_.errors = run.errors;
        if (run.members.empty()) {
            problem_ = run.errors.empty() ? path + ": holds no report and no event log of memlab"
                                          : std::string();
            return std::nullopt;
        }
        if (run.members.size() == 1) {
            const report::RunMember& member = run.members.front();
            return of_recording({member.file, all_lacks(run), read_whole(member)});
        }
        for (report::RunMember& member : run.members) {
            if (!choose_of_run(member.file, member.report)) {
                return std::nullopt;
            }
        }
        return of_run(report::view_run(path, std::move(run)));
    }

    /// As choose(), but a process that did not use the GPU only has no part in it.
    bool choose_of_run(const std::string& file, model::Report& report) {
        if (!options_.sources) {
            report::leave_out_arguments(report.process);
        }
        if (arguments_.device && !check_device(report, arguments_.device).empty()) {
            report.devices.clear();
            return true;
        }
        return choose(file, report);
    }

    std::optional<report::PageData> of_run(const report::RunView& view) {
        Resolvers resolvers(view.collection, symbols(), options_.skips);
        report::RunParts parts;
        parts.resolver = [&](std::size_t member) -> report::Resolver& { return resolvers(member); };
        parts.whole = [&](std::size_t member) {
            const report::RunMember& of = view.collection.members.at(member);
            model::Report whole = read_whole(of);
            choose_of_run(of.file, whole);
            return whole;
        };
        return report::page_of_run(view, parts, symbols(), options_);
    }

    std::optional<report::PageData> of_two() {
        auto loaded = load_two_reports(arguments_.recording, arguments_.after, &problem_,
                                       "name the report of one of them");
        if (!loaded) {
            return std::nullopt;
        }
        std::optional<report::PageRecording> before = read(std::move(loaded->first));
        std::optional<report::PageRecording> after =
            before ? read(std::move(loaded->second)) : std::nullopt;
        if (!before || !after) {
            return std::nullopt;
        }
        return report::page_of_two(std::move(*before), std::move(*after));
    }

    report::Symbolizer* symbols() { return arguments_.no_symbols ? nullptr : &symbolizer_; }

    const HtmlArguments& arguments_;
    report::SuppressionList suppressions_;
    report::PageOptions options_;
    report::Symbolizer symbolizer_;
    report::RunCollection errors_;
    std::string problem_;
};

/// Bytes of data in a page of at most `max_size`, empty: by default. Sets `problem` if it has no
/// room for any.
std::size_t data_limit(const std::string& max_size, std::size_t empty_page, std::string* problem) {
    if (max_size.empty()) {
        return report::max_page_data;
    }
    const std::optional<std::uint64_t> limit = model::parse_size(max_size);
    if (!limit) {
        *problem = "--max-size takes a size like 700KiB, not " + max_size;
    } else if (*limit <= empty_page) {
        *problem = "--max-size " + max_size + " has no room: the empty page alone takes " +
                   std::to_string(empty_page) + " bytes; allow more";
    } else {
        return std::min<std::size_t>(*limit - empty_page, report::max_page_data);
    }
    return 0;
}

int html(const HtmlArguments& arguments) {
    std::string problem;
    const std::string empty = arguments.output.empty() ? "" : empty_page(arguments, &problem);
    const std::size_t max_data =
        problem.empty() ? data_limit(arguments.max_size, empty.size(), &problem) : 0;
    if (!problem.empty()) {
        return fail(problem);
    }
    PageMaker maker(arguments);
    std::optional<report::PageData> page = maker.make();
    const int unread = report_errors(maker.errors());
    if (!page) {
        return maker.problem().empty() ? exit_bad_input : fail(maker.problem());
    }
    std::string too_large;
    std::string text;
    if (!arguments.output.empty()) {
        text = report::make_page(empty, *page, maker.options(), max_data, &too_large);
    } else {
        text = report::page_json(*page, maker.options(), max_data, &too_large);
    }
    if (!too_large.empty() && !arguments.max_size.empty()) {
        return fail("--max-size " + arguments.max_size + ": the page takes " +
                    report::format_bytes(text.size()) + " at least, and is not written; of its " +
                    "data, before they are packed: " + too_large + "; allow more");
    }
    if (!arguments.output.empty()) {
        problem = report::write_output(arguments.output, text);
        if (!problem.empty()) {
            return fail(problem);
        }
        if (arguments.json) {
            text = report::page_json(*page, maker.options(), max_data);
        }
    }
    if (arguments.json) {
        std::cout << text;
    }
    return flush_output(unread);
}

}  // namespace

int html_command(int argc, char** argv) {
    HtmlArguments arguments;
    CLI::App app(
        "Writes one page for a browser: memory over time, who held it at any moment, what changed, "
        "maps of the pool, leaks, failures; of one recording, of two, or of a run of many ranks.",
        "memlab-report html");
    define(app, arguments);
    parse(app, argc, argv);
    if (arguments.output.empty() && !arguments.json) {
        return fail("name the file to write: -o page.html");
    }
    return with_memory_for(arguments.recording, [&] { return html(arguments); });
}

}  // namespace memlab::tools
