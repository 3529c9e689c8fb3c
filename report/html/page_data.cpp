#include "report/html/page_data.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "model/bounded_sum.hpp"
#include "own_version.hpp"
#include "report/device_label.hpp"
#include "report/html/page_code.hpp"
#include "report/html/page_output.hpp"
#include "report/html/page_sites.hpp"
#include "report/html/page_sources.hpp"
#include "report/lacks.hpp"
#include "report/nn_module_parts.hpp"
#include "report/runs/process_rank.hpp"
#include "report/summary/summary.hpp"
#include "report/symbols/category.hpp"
#include "report/text/names.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

/// JSON without the blanks between its tokens.
std::string compact(std::string_view json) {
    std::string out;
    out.reserve(json.size() / 2);
    bool in_text = false;
    for (std::size_t i = 0; i < json.size(); ++i) {
        const char c = json[i];
        if (in_text && c == '\\' && i + 1 < json.size()) {
            out += c;
            out += json[++i];
            continue;
        }
        in_text = in_text != (c == '"');
        if (in_text || (c != ' ' && c != '\n')) {
            out += c;
        }
    }
    return out;
}

std::string text_of(const History::Event& event, const model::Report& report) {
    switch (event.what) {
        case History::What::peak:
            return "Peak of " + label_of(report, event.device) + ": " + format_bytes(event.bytes);
        case History::What::oom:
            return event.name + " of " + format_bytes(event.bytes) + " failed on " +
                   label_of(report, event.device);
        case History::What::mark:
            return event.name;
        case History::What::end:
            break;
    }
    return "End";
}

const char* word_of(History::What what) {
    constexpr std::array<const char*, 4> words = {"peak", "oom", "mark", "end"};
    return words.at(static_cast<std::size_t>(what));
}

class PageWriter {
  public:
    PageWriter(const PageData& page, const PageOptions& options, model::StringSink& to)
        : page_(page), options_(options), to_(to), json_(to) {}

    PageParts write() {
        json_.begin_object();
        json_.member("version", 2);
        json_.member("memlab", own_version);
        json_.member("title", page_.title);
        json_.member("show", page_.show);
        constexpr std::array<const char*, 3> modes = {"single", "compare", "run"};
        json_.member("mode", modes.at(static_cast<std::size_t>(page_.mode)));
        json_.member("sources", page_.sources);
        json_.key("recordings");
        json_.begin_array();
        for (const PageRecording& recording : page_.recordings) {
            json_.new_line();
            write(recording);
        }
        json_.end_array();
        part("source lines", [&] { write_sources(); });
        if (page_.mode == PageData::Mode::run) {
            part("ranks", [&] { write_run(); });
        }
        part("figures of the views", [&] {
            json_.key("documents");
            json_.begin_object();
            document("diff", page_.diff);
            json_.end_object();
        });
        json_.end_object();
        json_.finish();
        return parts_;
    }

  private:
    template <typename Write>
    void part(std::string_view name, Write write) {
        const std::size_t before = to_.text.size();  // less what JsonOutput keeps back
        write();
        parts_[name] += to_.text.size() - before;
    }

    void document(std::string_view name, const std::string& text) {
        if (!text.empty()) {
            json_.key(name);
            json_.verbatim(compact(text));
        }
    }
    void write(const PageRecording& recording) {
        const model::Report& report = *recording.report;
        const model::Process& process = report.process;
        CodeTable code(*recording.resolver);
        const PageSites sites(recording, code);
        json_.begin_object();
        json_.member("name", name_of(report));
        json_.member("path", recording.file);
        json_.member("host", process.host);
        json_.limited_member("pid", process.pid);
        json_.optional_member("rank", find_rank(process));
        json_.texts("command", process.arguments);
        json_.limited_member("duration_ns", process.duration_ns);
        json_.limited_member("events", report.log.events);
        json_.member("ended", end_text(process));
        json_.member("last_moment", moment_text(report));
        std::vector<std::string> notes = recording.notes;
        for (std::string& note : history_notes(recording)) {
            notes.push_back(std::move(note));
        }
        json_.texts("lacks", sentences(recording.lacks));
        json_.texts("notes", notes);
        part("curves", [&] { write_page_curves(recording.history, json_); });
        json_.numbers("moments", recording.history.moments, page_number);
        json_.limited_member("moment_ns", recording.history.moment_ns);
        json_.numbers("within", recording.history.within, page_number);
        write_gap(recording.history);
        write_categories(recording.history);
        part("marks", [&] { write_marks(recording.history, report); });
        part("scopes", [&] { write_scopes(recording.history, report); });
        part("call sites", [&] { write_sites(sites.all(), code); });
        part("nn.Modules", [&] { write_nn_modules(sites); });
        part("labels", [&] { write_labels(recording, code.texts()); });
        part("memory maps", [&] { write_maps(recording, sites, code.texts()); });
        part("names of code and labels", [&] { write_code(code); });
        part("changes over time", [&] { write_holders(sites.all()); });
        part("figures of the views", [&] {
            json_.key("documents");
            json_.begin_object();
            for (const auto& [name, text] : recording.documents) {
                json_.new_line();
                document(name, text);
            }
            json_.end_object();
        });
        json_.end_object();
        collect_lines(code);
    }

    void write_gap(const History& history) {
        json_.key("gap");
        if (!history.gap) {
            json_.null();
            return;
        }
        json_.begin_array();
        json_.limited(history.gap->first);
        json_.limited(history.gap->second);
        json_.end_array();
    }

    void write_categories(const History& history) {
        json_.key("categories");
        json_.begin_array();
        for (const History::CategoryMost& most : history.categories) {
            json_.begin_object();
            json_.limited_member("device", most.device);
            json_.member("name", category_name(static_cast<Category>(most.category)));
            json_.limited_member("most", most.bytes);
            json_.limited_member("at", most.time_ns);
            json_.end_object();
        }
        json_.end_array();
    }

    static std::string name_of(const model::Report& report) {
        const model::Process& process = report.process;
        return base_name(process.executable) + " (pid " + std::to_string(process.pid) + ")";
    }

    void write_marks(const History& history, const model::Report& report) {
        json_.key("marks");
        json_.begin_array();
        for (const History::Event& event : history.events) {
            json_.new_line();
            json_.begin_object();
            json_.member("moment", event.moment ? static_cast<std::int64_t>(*event.moment) : -1);
            json_.limited_member("at", event.time_ns);
            json_.member("kind", word_of(event.what));
            json_.member("text", text_of(event, report));
            json_.end_object();
        }
        json_.end_array();
    }

    void write_scopes(const History& history, const model::Report& report) {
        TextTable names;
        TextTable threads;
        std::vector<std::int64_t> name;
        std::vector<std::int64_t> thread;
        for (const TimelineScope& scope : history.scopes) {
            name.push_back(names.number(scope.name.empty() ? "(unnamed)" : scope.name));
            const std::string* const known = report.thread_name(scope.thread);
            const std::string id = "thread " + std::to_string(scope.thread);
            thread.push_back(threads.number(scope.thread == 0  ? "process"
                                            : known == nullptr ? id
                                                               : *known + " (" + id + ")"));
        }
        const auto same = [](std::int64_t number) { return number; };
        json_.key("scopes");
        json_.begin_object();
        json_.texts("names", names.texts());
        json_.numbers("name", name, same);
        json_.numbers("depth", history.scopes,
                      [](const TimelineScope& scope) { return page_number(scope.depth); });
        json_.numbers("thread", thread, same);
        json_.numbers("begin", history.scopes,
                      [](const TimelineScope& scope) { return page_number(scope.begin_ns); });
        json_.numbers("end", history.scopes,
                      [](const TimelineScope& scope) { return page_number(scope.end_ns); });
        json_.limited_member("left_out", history.scopes_left_out);
        json_.end_object();
        json_.texts("threads", threads.texts());
    }

    void write_sites(const std::vector<PageSite>& sites, CodeTable& code) {
        json_.key("sites");
        json_.begin_object();
        json_.key("stack");
        json_.begin_array();
        for (const PageSite& site : sites) {
            json_.begin_array();
            for (const std::size_t frame : site.stack.frames) {
                json_.number(frame);
            }
            json_.end_array();
        }
        json_.end_array();
        json_.numbers("place", sites, [](const PageSite& site) { return site.stack.place; });
        json_.numbers("through", sites, [](const PageSite& site) { return site.stack.through; });
        json_.numbers("kind", sites,
                      [&](const PageSite& site) { return code.texts().number(site.kind); });
        json_.numbers("device", sites,
                      [](const PageSite& site) { return page_number(site.device); });
        json_.numbers("category", sites,
                      [&](const PageSite& site) { return code.texts().number(site.category); });
        json_.numbers("allocations", sites,
                      [](const PageSite& site) { return page_number(site.allocations); });
        json_.numbers("allocated_bytes", sites,
                      [](const PageSite& site) { return page_number(site.allocated_bytes); });
        json_.numbers("temporaries", sites,
                      [](const PageSite& site) { return page_number(site.temporaries); });
        json_.numbers("leaked_bytes", sites,
                      [](const PageSite& site) { return page_number(site.leaked_bytes); });
        json_.numbers("nn_module", sites, [](const PageSite& site) { return site.nn_module; });
        json_.end_object();
    }

    void write_nn_modules(const PageSites& sites) {
        json_.key("nn_modules");
        json_.begin_object();
        const auto column = [&](const char* name, auto text) {
            json_.key(name);
            json_.begin_array();
            for (const PageNnModules::NnModule& each : sites.nn_modules()) {
                if (const auto& known = text(each)) {
                    json_.string(*known);
                } else {
                    json_.null();
                }
            }
            json_.end_array();
        };
        using NnModule = PageNnModules::NnModule;
        column(
            "name", [](const NnModule& each) -> const auto& { return each.name; });
        column(
            "class", [](const NnModule& each) -> const auto& { return each.class_name; });
        const auto& all = sites.nn_modules();
        const bool unnamed =
            std::any_of(all.begin(), all.end(), [](const NnModule& each) { return !each.name; });
        json_.member("note", all.empty() ? no_nn_modules : unnamed ? how_nn_modules_get_names : "");
        json_.end_object();
    }

    void write_labels(const PageRecording& recording, TextTable& texts) {
        struct Row {
            std::size_t site;
            const model::SiteLabel* label;
        };
        std::vector<Row> rows;
        const std::vector<History::Followed>& sites = recording.history.sites;
        for (std::size_t i = 0; i < sites.size(); ++i) {
            if (!sites[i].nn_module) {
                for (const model::SiteLabel& label :
                     recording.report->sites[sites[i].site].labels) {
                    rows.push_back({i, &label});
                }
            }
        }
        json_.key("labels");
        json_.begin_object();
        json_.numbers("site", rows, [](const Row& row) { return row.site; });
        json_.numbers("name", rows, [&](const Row& row) { return texts.number(row.label->name); });
        json_.numbers("detail", rows,
                      [&](const Row& row) { return texts.number(row.label->detail); });
        json_.numbers("bytes", rows,
                      [](const Row& row) { return page_number(row.label->live_bytes); });
        json_.end_object();
    }

    void write_code(const CodeTable& code) {
        json_.key("frames");
        json_.begin_object();
        json_.numbers("function", code.frames(),
                      [](const PageFrame& frame) { return frame.function; });
        json_.numbers("file", code.frames(), [](const PageFrame& frame) { return frame.file; });
        json_.numbers("line", code.frames(), [](const PageFrame& frame) { return frame.line; });
        json_.numbers("module", code.frames(), [](const PageFrame& frame) { return frame.module; });
        json_.numbers("language", code.frames(),
                      [](const PageFrame& frame) { return frame.python ? 1 : 0; });
        json_.numbers("skipped", code.frames(),
                      [](const PageFrame& frame) { return frame.skipped ? 1 : 0; });
        json_.numbers("choice", code.frames(), [](const PageFrame& frame) { return frame.choice; });
        json_.end_object();
        json_.texts("strings", code.texts().texts());
    }

    /// The changes of all sites in columns, one site after another: those of site i are the entries
    /// from start[i] up to start[i + 1].
    void write_holders(const std::vector<PageSite>& sites) {
        json_.key("holders");
        json_.begin_object();
        json_.key("start");
        json_.begin_array();
        std::size_t start = 0;
        json_.number(start);
        for (const PageSite& site : sites) {
            start += site.holder->changes.size();
            json_.number(start);
        }
        json_.end_array();
        const auto column = [&](const char* name, auto value) {
            json_.key(name);
            json_.begin_array();
            for (const PageSite& site : sites) {
                for (const History::Change& change : site.holder->changes) {
                    json_.number(value(change));
                }
            }
            json_.end_array();
        };
        column("moment", [](const History::Change& change) { return change.moment; });
        column("bytes", [](const History::Change& change) { return page_number(change.bytes); });
        column("blocks", [](const History::Change& change) { return change.blocks; });
        json_.end_object();
    }

    void write_maps(const PageRecording& recording, const PageSites& sites, TextTable& texts) {
        const model::Report& report = *recording.report;
        json_.key("maps");
        json_.begin_array();
        for (const History::Map& map : recording.history.maps) {
            json_.new_line();
            json_.begin_object();
            json_.limited_member("moment", map.moment);
            json_.key("segments");
            json_.begin_array();
            for (const History::Segment& segment : map.segments) {
                json_.begin_object();
                json_.limited_member("device", segment.device);
                std::array<char, 18> digits{'0', 'x'};
                const auto end = std::to_chars(digits.data() + 2, digits.data() + digits.size(),
                                               segment.address, 16);
                json_.member("address", std::string_view(digits.data(), end.ptr));
                json_.limited_member("size", segment.size);
                json_.member("pool", label_of(report, segment.device));
                json_.numbers("offset", segment.parts,
                              [](const History::Part& part) { return page_number(part.offset); });
                json_.numbers("length", segment.parts,
                              [](const History::Part& part) { return page_number(part.length); });
                json_.numbers("site", segment.parts, [&](const History::Part& part) {
                    return sites.number_of(part.site, part.nn_modules);
                });
                json_.numbers("label", segment.parts,
                              [&](const History::Part& part) { return texts.number(part.label); });
                json_.numbers("label_detail", segment.parts, [&](const History::Part& part) {
                    return texts.number(part.label_detail);
                });
                json_.end_object();
            }
            json_.end_array();
            json_.end_object();
        }
        json_.end_array();
    }

    void collect_lines(const CodeTable& code) {
        if (!page_.sources) {
            return;
        }
        for (const PageFrame& frame : code.frames()) {
            if (frame.file >= 0 && frame.line > 0) {
                wanted_[code.texts().texts()[static_cast<std::size_t>(frame.file)]].insert(
                    frame.line);
            }
        }
    }

    void write_sources() {
        std::uint64_t recorded_ns = 0;
        for (const PageRecording& recording : page_.recordings) {
            recorded_ns = std::max(recorded_ns, recording.report->process.start_wall_ns);
        }
        std::vector<std::string> newer;
        const std::vector<PageSource> sources =
            read_page_sources(wanted_, options_.source_folders, recorded_ns, newer);
        json_.key("files");
        json_.begin_array();
        for (const PageSource& source : sources) {
            json_.new_line();
            json_.begin_object();
            json_.member("path", source.path);
            json_.member("first_line", source.first_line);
            json_.member("changed_since",
                         std::find(newer.begin(), newer.end(), source.path) != newer.end());
            json_.texts("lines", source.lines);
            json_.end_object();
        }
        json_.end_array();
    }

    void write_run() {
        json_.key("run");
        json_.begin_object();
        json_.limited_member("curve_ns", page_.rank_curve_ns);
        json_.key("ranks");
        json_.begin_array();
        for (const PageRank& rank : page_.ranks) {
            json_.new_line();
            json_.begin_object();
            json_.optional_member("recording", rank.recording);
            json_.member("name", rank.name);
            json_.optional_member("rank", rank.rank);
            json_.member("host", rank.host);
            json_.limited_member("peak_bytes", rank.peak_bytes);
            json_.limited_member("at_end_bytes", rank.at_end_bytes);
            json_.key("outlier");
            if (rank.outlier.empty()) {
                json_.null();
            } else {
                json_.string(rank.outlier);
            }
            json_.numbers("curve", rank.curve, page_number);
            json_.end_object();
        }
        json_.end_array();
        json_.key("documents");
        json_.begin_object();
        document("merge", page_.merge);
        json_.end_object();
        json_.end_object();
    }

    const PageData& page_;
    const PageOptions& options_;
    const model::StringSink& to_;
    PageOutput json_;
    PageParts parts_;
    WantedLines wanted_;
};

}  // namespace

PageParts write_page_data(PageData& page, const PageOptions& options, std::size_t changes,
                          model::StringSink& to) {
    for (PageRecording& recording : page.recordings) {
        limit_changes(recording.history, *recording.report, recording.categories, changes);
    }
    return PageWriter(page, options, to).write();
}

}  // namespace memlab::report
