#include "tools/report/report_options.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <iostream>
#include <new>
#include <system_error>
#include <utility>

#include "report/device_label.hpp"
#include "report/nn_module_parts.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/reading/found_steps.hpp"
#include "report/runs/collection.hpp"
#include "report/summary/json_values.hpp"
#include "report/summary/summary_filter.hpp"
#include "report/symbols/symbolizer.hpp"
#include "report/text/page.hpp"
#include "report/text/signal_cleanup.hpp"
#include "tools/diagnostics.hpp"
#include "tools/follow/follow.hpp"
#include "tools/report/debuginfod_option.hpp"

namespace memlab::tools {

namespace {

using namespace memlab::report;

/// The text with each stretch of blanks and ends of lines as one blank.
std::string unwrapped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        const bool blank = c == ' ' || c == '\n';
        if (!blank || out.empty() || out.back() != ' ') {
            out += blank ? ' ' : c;
        }
    }
    return out;
}

class Reports {
  public:
    Reports(const ReportOptions& options, std::string_view format,
            const std::function<std::string(const OpenReport&)>& show,
            const LogSinkFactory& make_sink)
        : options_(options),
          format_(format),
          show_(show),
          make_sink_(make_sink),
          style_(make_style(options.style)) {}

    int run() {
        for (const std::string& given : options_.files) {
            const std::string path = meant_by(given);
            // A glob over a run's folder has that file, too: what it describes is shown anyway.
            if (path != given && options_.files.size() > 1) {
                continue;
            }
            try {
                open(path);
            } catch (const std::bad_alloc&) {
                fail(path, "needs more memory than there is; read it on a larger machine");
            }
        }
        if (options_.json) {
            std::cout << json_document(format_, objects_, errors_, lacks_);
        } else {
            print(lacks_);
        }
        return flush_output(errors_.empty() ? EXIT_SUCCESS : exit_bad_input);
    }

  private:
    void open(const std::string& path) {
        if (!is_folder(path)) {
            ReadResult read = options_.reader ? options_.reader(path)
                                              : read_report(path, make_sink_,
                                                            options_.find_steps ? StepSearch::in_log
                                                                                : StepSearch::none);
            if (read.report) {
                prepare(path, *read.report);
                show(path, *read.report, find_lacks(*read.report), options_.files.size() > 1);
            } else {
                fail(path, read.error);
            }
            return;
        }
        RunCollection run = collect_run(
            {path}, options_.find_steps ? Keep::found_steps : Keep::everything, options_.reader);
        for (RunMember& member : run.members) {
            prepare(member.file, member.report);
            show(member.file, member.report, member.lacks,
                 options_.files.size() > 1 || run.members.size() > 1);
        }
        lacks_.insert(lacks_.end(), run.lacks.begin(), run.lacks.end());
        for (const auto& [file, error] : run.errors) {
            fail(file, error);
        }
    }

    void prepare(const std::string& file, model::Report& report) const {
        if (options_.find_steps && !options_.reader) {
            add_found_steps(report, find_event_log(file, report));
        }
        apply_options(report, options_);
    }

    void show(const std::string& file, const model::Report& report, const std::vector<Lack>& lacks,
              bool one_of_many) {
        if (const std::string problem = check_device(report, options_.device); !problem.empty()) {
            fail(file, problem);
            return;
        }
        Resolver resolver(report, options_.no_symbols ? nullptr : &symbolizer_, options_.skips);
        std::string shown;
        try {
            shown = show_({file, report, lacks, resolver});
        } catch (const CannotShow& reason) {
            fail(file, reason.problem);
            return;
        }
        if (options_.json) {
            objects_.push_back(with_lacks(std::move(shown), lacks));
            return;
        }
        if (one_of_many) {
            std::cout << (shown_ ? "\n" : "") << style_.dim() << "==> "
                      << printable(file, style_.ascii) << " <==" << style_.reset() << "\n";
        }
        shown_ = true;
        std::cout << shown;
        // The summary has them, and what follows, among its warnings.
        if (format_ != "memlab-summary") {
            std::vector<Lack> unsaid = lacks;
            const std::string said = unwrapped(shown);
            std::erase_if(unsaid, [&said](const Lack& lack) {
                return said.find(lack.text) != std::string::npos;
            });
            print(unsaid);
        }
        const std::string note = resolver.missing_names();
        if (!note.empty() && format_ != "memlab-summary" &&
            shown.find("+0x") != std::string::npos) {
            std::cout << style_.dim()
                      << wrap(printable(note, style_.ascii), static_cast<std::size_t>(style_.width),
                              "")
                      << style_.reset() << "\n";
        }
    }

    void print(const std::vector<Lack>& lacks) const { std::cout << lacks_text(lacks, style_); }

    void fail(const std::string& file, const std::string& error) {
        // Flush the output so far before the error, in case both go to one file.
        std::cout.flush();
        errors_.emplace_back(file, error);
        print_diagnostic(printable(file, false) + ": " + printable(error, false));
    }

    const ReportOptions& options_;
    std::string_view format_;
    const std::function<std::string(const OpenReport&)>& show_;
    const LogSinkFactory& make_sink_;
    Style style_;
    Symbolizer symbolizer_;
    bool shown_ = false;
    std::vector<std::string> objects_;
    std::vector<Lack> lacks_;  ///< of the runs, beside those of their processes
    std::vector<std::pair<std::string, std::string>> errors_;
};

/// 0 if it is not a file.
std::uintmax_t bytes_of(const std::string& path) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    return error ? 0 : size;
}

constexpr const char* what_files_are =
    "Reports (memlab.*.json) or event logs (*.memlog), as they are or compressed (.gz, .zst), - "
    "for "
    "standard input, or the folder of a run";

/// An option that adds patterns to a filter or to skips.
template <typename Patterns>
void add_patterns(CLI::App& app, const std::string& name, Patterns& to, const std::string& what,
                  const std::string& prefix = "") {
    const auto add = [&to, name, prefix](const std::vector<std::string>& patterns) {
        for (const std::string& pattern : patterns) {
            if (const std::string problem = to.add(prefix + pattern); !problem.empty()) {
                throw CLI::ValidationError(name, problem);
            }
        }
    };
    add_repeated(app, name, add, what)->type_name("TEXT");
}

/// The newest recording of the current folder, with a line that says so.
std::string newest_here(Wanted wanted) {
    std::string name = newest_recording(".", wanted);
    if (name.empty()) {
        throw CLI::ValidationError(
            wanted == Wanted::log ? "no event log (*.memlog) in this folder; name one"
                                  : "no recording (memlab.*.json, *.memlog) in this folder; name "
                                    "one, or the folder of a run");
    }
    print_diagnostic(name == "." ? "this folder's run"
                                 : printable(name, false) + ", the newest recording here");
    return name;
}

}  // namespace

std::string meant_by(const std::string& path) {
    if (!report::is_run_manifest(path)) {
        return path;
    }
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

std::string lacks_text(const std::vector<Lack>& lacks, const Style& style) {
    Page page(style);
    page.warnings(sentences(lacks));
    return page.take();
}

std::string check_positive(const std::string& text) {
    const bool zero = text.find_first_not_of('0') == std::string::npos;
    return zero ? "takes a number from 1 on, not " + text : check_whole_number(text);
}

void default_to_newest(CLI::App& app, std::vector<std::string>& files, Wanted wanted) {
    app.callback([&files, wanted] {
        if (files.empty()) {
            files.push_back(newest_here(wanted));
        }
    });
}

void default_to_newest(CLI::App& app, ReportOptions& options) {
    app.callback([&options] {
        if (options.files.empty()) {
            options.files.push_back(newest_here(options.follow ? Wanted::log : Wanted::any));
        }
    });
}

void default_to_newest(CLI::App& app, std::string& file, Wanted wanted) {
    app.callback([&file, wanted] {
        if (file.empty()) {
            file = newest_here(wanted);
        }
    });
}

void add_files(CLI::App& app, ReportOptions& options) {
    app.add_option("FILE", options.files,
                   what_files_are + std::string("; default: the newest recording of this folder"))
        ->type_name("");
    default_to_newest(app, options);
}

void add_required_files(CLI::App& app, ReportOptions& options) {
    app.add_option("FILE", options.files, what_files_are)->required()->type_name("");
}

void add_one_file(CLI::App& app, ReportOptions& options) {
    app.add_option("FILE", options.files,
                   "A report (memlab.*.json) or an event log (*.memlog), or the folder of a run of "
                   "one process; default: the newest recording of this folder")
        ->expected(1)
        ->type_name("");
    default_to_newest(app, options);
}

void add_json(CLI::App& app, ReportOptions& options, const std::string& what) {
    app.add_flag("--json", options.json, "Print " + what + " as JSON, for scripts");
}

void add_top(CLI::App& app, ReportOptions& options, const std::string& what,
             std::size_t default_count) {
    options.top = default_count;
    app.add_option("--top", options.top, what + " (default " + std::to_string(default_count) + ")")
        ->type_name("N")
        ->check(check_positive);
}

void add_sort(CLI::App& app, ReportOptions& options, const std::vector<std::string>& orders) {
    options.sort = orders.front();
    app.add_option("--sort", options.sort,
                   "By " + alternatives(orders) + " (default " + orders.front() + ")")
        ->type_name("ORDER")
        ->check(one_of(orders));
}

void add_device(CLI::App& app, ReportOptions& options) {
    app.add_option("--device", options.device, "Only this GPU, by its index in the program")
        ->type_name("N")
        ->check(check_whole_number);
    add_level(app, "driver: what CUDA handed out; framework: what PyTorch's cache handed out; all",
              true, [&options](report::Level level) { options.level = level; });
}

void add_level(CLI::App& app, const char* what, bool both,
               const std::function<void(report::Level)>& chosen) {
    app.add_option_function<std::string>(
           "--level",
           [chosen](const std::string& text) {
               chosen(text == "driver"      ? report::Level::driver
                      : text == "framework" ? report::Level::framework
                                            : report::Level::all);
           },
           what)
        ->type_name("LEVEL")
        ->check(one_of(both ? std::vector<std::string>{"driver", "framework", "all"}
                            : std::vector<std::string>{"driver", "framework"}));
}

void add_filter(CLI::App& app, ReportOptions& options, bool nn_modules) {
    add_patterns(
        app, "--filter", options.filter,
        "Only call stacks with TEXT in a function, file or module; or func=TEXT, file=TEXT, "
        "module=TEXT, kind=TEXT, scope=TEXT (what outlived that scope). TEXT may be a pattern "
        "(*Step*). If repeated, all must match");
    if (nn_modules) {
        add_patterns(
            app, "--nn-module", options.filter,
            "Only what this PyTorch nn.Module, or one inside it, held: a name or a pattern "
            "('encoder.*'), with or without the model's name; also as "
            "--filter nn_module=TEXT",
            "nn_module=");
    } else {
        options.filter.without_nn_modules();
    }
}

void apply_options(model::Report& report, const ReportOptions& options) {
    report::choose_level(report, options.level);
    if (options.tells_nn_modules_apart()) {
        report::separate_nn_modules(report);
    }
}

std::string check_order(const ReportOptions& options) {
    const bool known = options.sort == "peak" || options.sort == "live";
    return known || !options.tells_nn_modules_apart()
               ? std::string()
               : "--sort " + options.sort +
                     " is of the whole run, which a recording does not have by nn.Module; sort by "
                     "peak or live";
}

void add_skip(CLI::App& app, report::FrameSkips& skips) {
    add_patterns(
        app, "--skip", skips,
        "Name call sites by the caller of TEXT, a function, file or binary (such as an allocator "
        "of your own); or func=TEXT, file=TEXT, module=TEXT. May be repeated");
    app.add_flag_callback(
        "--no-default-skip", [&skips] { skips.leave_defaults_out(); },
        "Do not skip the allocators and containers of std, thrust, RMM, PyTorch and others");
}

void add_templates(CLI::App& app, ReportOptions& options) {
    app.add_flag_callback(
        "--templates",
        [&options] {
            options.templates = true;
            options.style.uncut = true;
        },
        "Show template arguments in full instead of <…>; lines are not cut");
}

void add_follow(CLI::App& app, ReportOptions& options) {
    CLI::Option* const follow = app.add_flag(
        "--follow", options.follow,
        "Show it again and again while the program runs: of an event log, the folder of a run or a "
        "process id. On a terminal in place (q ends), else when something changed");
    app.add_option("--interval", options.interval_s,
                   "With --follow, the time between two looks (default 1)")
        ->type_name("SECONDS")
        ->check(CLI::Range(0.1, 3600.0).description(""))
        ->needs(follow);
}

void add_rendering(CLI::App& app, ReportOptions& options) {
    add_style_options(app, options.style);
    add_symbols(app, options.no_symbols);
}

std::string check_device(const model::Report& report, const std::optional<std::uint64_t>& device) {
    const bool there =
        !device ||
        std::any_of(report.devices.begin(), report.devices.end(), [&](const model::Device& each) {
            return each.used() && report::is_on(each.index, *device);
        });
    return there ? std::string()
                 : "GPU " + std::to_string(*device) +
                       " was not used; omit --device to see those that were";
}

report::Summary make_summary(const OpenReport& open, const ReportOptions& options) {
    report::Summary summary = report::summarize(open.file, open.report, open.resolver);
    if (!options.filter.empty()) {
        report::filter_summary(summary, options.filter.sites(open.report, open.resolver));
    }
    if (options.sort == "count") {
        report::order_by_count(summary);
    }
    return summary;
}

int show_reports(const ReportOptions& options, std::string_view format,
                 const std::function<std::string(const OpenReport&)>& show,
                 const LogSinkFactory& make_sink) {
    return Reports(options, format, show, make_sink).run();
}

int show_or_follow(ReportOptions& options, const std::function<int()>& show,
                   const LogSinkFactory& make_sink) {
    if (!options.follow) {
        return show();
    }
    for (std::string& file : options.files) {
        file = meant_by(file);
    }
    const auto show_by = [&](const RecordingReader& reader) {
        options.reader = reader;
        return show();
    };
    return follow({options.files, options.interval_s, options.json, options.style.ascii,
                   options.find_steps ? StepSearch::in_log : StepSearch::none, make_sink, show_by});
}

std::optional<LoadedReport> load_report(const std::string& given, std::string* problem,
                                        const std::string& several_hint,
                                        const LogSinkFactory& make_sink, StepSearch search,
                                        const RecordingReader& reader) {
    const std::string path = meant_by(given);
    if (!is_folder(path)) {
        ReadResult read = reader ? reader(path) : read_report(path, make_sink, search);
        if (!read.report) {
            *problem = path + ": " + read.error;
            return std::nullopt;
        }
        std::vector<Lack> lacks = find_lacks(*read.report);
        return LoadedReport{path, std::move(lacks), std::move(*read.report)};
    }
    RunCollection run = collect_run({path}, Keep::everything, reader);
    if (run.members.size() == 1) {
        RunMember& member = run.members.front();
        const std::vector<Lack> of_run = all_lacks(run);
        member.lacks.insert(member.lacks.end(), of_run.begin(), of_run.end());
        return LoadedReport{member.file, std::move(member.lacks), std::move(member.report)};
    }
    if (run.members.empty()) {
        *problem = run.errors.empty() ? path + ": holds no report and no event log of memlab"
                                      : run.errors.front().first + ": " + run.errors.front().second;
    } else {
        *problem = path + ": a run of " + std::to_string(run.members.size()) + " processes; " +
                   several_hint;
    }
    return std::nullopt;
}

std::optional<std::pair<LoadedReport, LoadedReport>> load_two_reports(
    const std::string& first, const std::string& second, std::string* problem,
    const std::string& several_hint) {
    struct Loading {
        std::optional<LoadedReport> report;
        std::string problem;
    };
    const auto load = [&several_hint](const std::string& path) {
        Loading loading;
        loading.report = load_report(path, &loading.problem, several_hint);
        return loading;
    };
    // This thread, which shows the progress, reads the larger one.
    const bool first_here = bytes_of(first) >= bytes_of(second);
    std::future<Loading> there;
    {
        const SignalBlocker held(SignalBlocker::Which::all);
        there = std::async(std::launch::async | std::launch::deferred, load,
                           first_here ? second : first);
    }
    Loading here = load(first_here ? first : second);
    Loading other = there.get();
    Loading& a = first_here ? here : other;
    Loading& b = first_here ? other : here;
    if (!a.report || !b.report) {
        *problem = a.report ? b.problem : a.problem;
        return std::nullopt;
    }
    return std::pair(std::move(*a.report), std::move(*b.report));
}

}  // namespace memlab::tools
