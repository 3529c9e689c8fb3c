// A strict parser of schema version 1 (docs/report-format.md): every type, range and index is
// checked before it is used.
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "report/json_device_reader.hpp"
#include "report/json_node.hpp"
#include "report/reader.hpp"
#include "report/table_text.hpp"
#include "trace/json/json_writer.hpp"
#include "trace/json/report_tables.hpp"

namespace memlab::report {

namespace {

constexpr std::uint64_t schema_version = 1;
/// The schema nests nine deep; unknown members of later versions may nest deeper.
constexpr int max_depth = 64;

/// Reports of earlier versions have no coverage.
Coverage read_coverage(const Node& root, std::size_t stack_count) {
    Coverage coverage;
    if (root.optional_member("coverage") == nullptr) {
        coverage.because = "This report was written by a memlab without an audit.";
        return coverage;
    }
    const Node node = root.member("coverage");
    coverage.audited = node.member("audited").boolean();
    coverage.because = node.member("because").text();
    coverage.cupti = node.member("cupti").text();
    coverage.driver_count = node.member("driver_count").number();
    coverage.driver_bytes = node.member("driver_bytes").number();
    coverage.lost_records = node.member("lost_records").number();
    coverage.bypassed_count = node.member("bypassed_count").number();
    coverage.bypassed_bytes = node.member("bypassed_bytes").number();
    node.member("bypassed").each([&](const Node& item) {
        Coverage::Bypassed bypassed;
        bypassed.device = item.member("device").number();
        bypassed.kind = item.member("kind").text();
        bypassed.api = item.member("api").text();
        bypassed.stack = item.member("stack").index(stack_count, "stacks");
        bypassed.count = item.member("count").number();
        bypassed.bytes = item.member("bytes").number();
        bypassed.first_time_ns = item.member("first_time_ns").number();
        coverage.bypassed.push_back(std::move(bypassed));
    });
    return coverage;
}

/// Reads the fields of a table's entry. `size`: of the table that it refers to.
class EntryReader {
  public:
    EntryReader(const Node& node, std::size_t size) : node_(node), size_(size) {}

    void position(const char*) {}
    void number(const char* name, std::uint64_t& value) { value = node_.member(name).number(); }
    void extra(const char* name, std::uint64_t& value) {
        const JsonValue* const found = node_.optional_member(name);
        value = found != nullptr && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
    }
    void index(const char* name, std::size_t& value, const char* table) {
        value = node_.member(name).index(size_, table);
    }
    void text(const char* name, std::string& value) { value = node_.member(name).text(); }
    void flag(const char* name, bool& value) { value = node_.member(name).boolean(); }
    void indexes(const char* name, std::vector<std::size_t>& values, const char* table) {
        node_.member(name).each(
            [&](const Node& item) { values.push_back(item.index(size_, table)); });
    }
    template <typename Object>
    void object_or_null(const char* name, std::optional<Object>& value) {
        if (const Node object = node_.member(name); !object.is_null()) {
            value = read_entry<Object>(object, size_);
        }
    }
    template <typename Item>
    void list_if_any(const char* name, std::vector<Item>& items) {
        if (node_.optional_member(name) != nullptr) {
            node_.member(name).each(
                [&](const Node& item) { items.push_back(read_entry<Item>(item, size_)); });
        }
    }
    template <typename Entry>
    static Entry read_entry(const Node& node, std::size_t size) {
        Entry entry;
        EntryReader reader(node, size);
        Entry::fields(entry, reader);
        return entry;
    }

  private:
    const Node& node_;
    const std::size_t size_;
};

Process read_process(const Node& node) {
    Process process;
    process.pid = node.member("pid").number();
    process.parent_pid = node.member("parent_pid").number();
    process.executable = node.member("executable").text();
    node.member("arguments").each([&](const Node& argument) {
        process.arguments.push_back(argument.text());
    });
    process.host = node.member("host").text();
    process.start_wall_ns = node.member("start_wall_ns").number();
    process.duration_ns = node.member("duration_ns").number();
    process.ended = node.member("ended").text();
    process.started_late = node.member("started_late").boolean();
    node.member("ranks").each_member(
        [&](const std::string& name, const Node& value) { process.ranks[name] = value.text(); });
    if (node.optional_member("recorded_ns") != nullptr) {
        process.recorded_ns = node.member("recorded_ns").number();
    }
    if (node.optional_member("signal") != nullptr) {
        process.signal = node.member("signal").text();
    }
    if (node.optional_member("exit_code") != nullptr) {
        process.exit_code = node.member("exit_code").number();
    }
    return process;
}

Oom read_oom(const Node& node, std::size_t stack_count, std::size_t site_count) {
    Oom oom;
    oom.time_ns = node.member("time_ns").number();
    oom.device = node.member("device").number();
    oom.thread = node.member("thread").number();
    oom.api = node.member("api").text();
    oom.kind = node.member("kind").text();
    oom.stack = node.member("stack").index(stack_count, "stacks");
    oom.requested_bytes = node.member("requested_bytes").number();
    oom.device_free_bytes = node.member("device_free_bytes").number();
    oom.device_total_bytes = node.member("device_total_bytes").number();
    oom.largest_free_block_bytes = node.member("largest_free_block_bytes").number();
    oom.error = node.member("error").signed_number();
    oom.current = read_values(node.member("current"));
    oom.holders = read_holders(node.member("holders"), site_count, false);
    if (node.optional_member("explanation") != nullptr) {
        node.member("explanation").each([&](const Node& sentence) {
            oom.explanation.push_back(sentence.text());
        });
    }
    return oom;
}

Mark read_mark(const Node& node) {
    Mark mark;
    mark.type = node.member("type").text();
    mark.name = node.member("name").text();
    mark.time_ns = node.member("time_ns").number();
    node.member("devices").each([&](const Node& item) {
        Mark::OnDevice on;
        on.device = item.member("device").number();
        on.values = read_values(item);
        on.allocated_peak_bytes = item.member("allocated_peak_bytes").number();
        on.reserved_peak_bytes = item.member("reserved_peak_bytes").number();
        mark.devices.push_back(on);
    });
    return mark;
}

Scope read_scope(const Node& node, std::size_t index, std::size_t site_count) {
    Scope scope;
    if (const Node parent = node.member("parent"); !parent.is_null()) {
        scope.parent = parent.index(index, "what comes before it");
    }
    scope.kind = node.member("kind").text();
    scope.name = node.member("name").text();
    scope.entries = node.member("entries").number();
    scope.open = node.member("open").number();
    scope.duration_ns = node.member("duration_ns").number();
    scope.allocated_count = node.member("allocated_count").number();
    scope.allocated_bytes = node.member("allocated_bytes").number();
    scope.other_threads_count = node.member("other_threads_count").number();
    scope.other_threads_bytes = node.member("other_threads_bytes").number();
    scope.freed_count = node.member("freed_count").number();
    scope.freed_bytes = node.member("freed_bytes").number();
    scope.peak_bytes = node.member("peak_bytes").number();
    scope.peak_growth_bytes = node.member("peak_growth_bytes").number();
    const Node escaped = node.member("escaped");
    scope.max_escaped_bytes = escaped.member("most_bytes").number();
    scope.escaped.count = escaped.member("count").number();
    scope.escaped.bytes = escaped.member("bytes").number();
    escaped.member("sites").each([&](const Node& share) {
        scope.escaped.sites.push_back({share.member("site").index(site_count, "sites"),
                                       share.member("count").number(),
                                       share.member("bytes").number()});
    });
    scope.escaped.other_count = escaped.member("other").member("count").number();
    scope.escaped.other_bytes = escaped.member("other").member("bytes").number();
    return scope;
}

Trend read_trend(const Node& node) {
    return {node.member("bytes_per_step").real(), node.member("first_bytes").number(),
            node.member("last_bytes").number(), node.member("min_bytes").number(),
            node.member("max_bytes").number()};
}

Steps read_steps(const Node& node, std::size_t site_count) {
    Steps steps;
    steps.kind = node.member("kind").text();
    steps.name = node.member("name").text();
    steps.steps = node.member("steps").number();
    steps.warm_up_steps = node.member("warm_up_steps").number();
    steps.verdict = node.member("verdict").text();
    steps.trend = read_trend(node);
    const Node blocks = node.member("blocks");
    steps.steps_per_block = blocks.member("steps").number();
    blocks.member("min_bytes").each([&](const Node& value) {
        steps.block_min_bytes.push_back(value.number());
    });
    blocks.member("max_bytes").each([&](const Node& value) {
        steps.block_max_bytes.push_back(value.number());
    });
    steps.by_site = node.member("by_site").boolean();
    node.member("growing_sites").each([&](const Node& site) {
        steps.growing.push_back({site.member("site").index(site_count, "sites"), read_trend(site)});
    });
    steps.growing_site_count = node.member("growing_site_count").number();
    steps.sites_left_out = node.member("sites_left_out").number();
    return steps;
}

LiveAllocation read_live(const Node& node, std::size_t site_count) {
    LiveAllocation live;
    live.address = node.member("address").number();
    live.site = node.member("site").index(site_count, "sites");
    live.thread = node.member("thread").number();
    live.time_ns = node.member("time_ns").number();
    live.requested_bytes = node.member("requested_bytes").number();
    live.bytes = node.member("bytes").number();
    if (const Node label = node.member("label"); !label.is_null()) {
        live.label = label.text();
    }
    return live;
}

/// The program's own annotations; empty ones are not written.
void read_annotations(const Node& root, Report& report) {
    const std::size_t sites = report.sites.size();
    if (root.optional_member("scopes") != nullptr) {
        root.member("scopes").each([&](const Node& node) {
            report.scopes.push_back(read_scope(node, report.scopes.size(), sites));
        });
    }
    if (root.optional_member("unbalanced_scopes") != nullptr) {
        const Node node = root.member("unbalanced_scopes");
        report.unbalanced_scopes = {
            node.member("ends_without_begin").number(), node.member("ended_with_thread").number(),
            node.member("too_many_open").number(), node.member("open_at_end").number()};
    }
    if (root.optional_member("steps") != nullptr) {
        root.member("steps").each(
            [&](const Node& node) { report.steps.push_back(read_steps(node, sites)); });
    }
    if (root.optional_member("labels") != nullptr) {
        root.member("labels").each([&](const Node& node) {
            report.labels.push_back({node.member("name").text(), node.member("count").number(),
                                     node.member("live_count").number(),
                                     node.member("live_bytes").number(),
                                     node.member("peak_bytes").number()});
        });
    }
    if (root.optional_member("largest_live") != nullptr) {
        root.member("largest_live").each([&](const Node& node) {
            report.largest_live.push_back(read_live(node, sites));
        });
    }
}

void check_identity(const Node& root) {
    const JsonValue* format = root.optional_member("format");
    if (format == nullptr || !format->is_string() || *format != "memlab-report") {
        throw Invalid(
            "JSON, but not a memlab report (its \"format\" is not \"memlab-report\"); "
            "give a memlab.*.json or .memlog file");
    }
    const std::uint64_t version = root.member("version").number();
    if (version != schema_version) {
        throw Invalid("has format version " + std::to_string(version) +
                      ", this memlab-report reads version " + std::to_string(schema_version) +
                      "; use the memlab-report of the memlab that recorded it");
    }
}

/// Thrown if the fast table parser rejects the text: the whole document has to be parsed.
struct TableRejected {};

/// Appends what `root` has of both tables.
void read_tables(const Node& root, Report& report) {
    root.member("stacks").each([&](const Node& node) {
        report.stacks.push_back(EntryReader::read_entry<Stack>(node, report.frames.size()));
    });
    root.member("sites").each([&](const Node& node) {
        report.sites.push_back(EntryReader::read_entry<Site>(node, report.stacks.size()));
    });
}

/// `add_tables(report)` adds stacks and sites, which the rest of `root` refers to.
template <typename AddTables>
Report read_root(const Node& root, AddTables add_tables) {
    check_identity(root);
    Report report;
    report.memlab_version = root.member("memlab_version").text();
    report.process = read_process(root.member("process"));
    root.member("options").each_member(
        [&](const std::string& name, const Node& value) { report.options[name] = value.text(); });
    if (root.optional_member("threads") != nullptr) {
        root.member("threads").each([&](const Node& node) {
            report.thread_names[node.member("id").number()] = node.member("name").text();
        });
    }
    root.member("modules").each([&](const Node& node) {
        report.modules.push_back({node.member("path").text(), node.member("build_id").text()});
    });
    if (root.optional_member("python_frames") != nullptr) {
        root.member("python_frames").each([&](const Node& node) {
            report.python_frames.push_back(
                {node.member("function").text(), node.member("file").text(),
                 node.member("line").line_number(), node.member("first_line").line_number()});
        });
    }
    root.member("frames").each([&](const Node& node) {
        Frame frame{node.member("module").index(report.modules.size(), "modules"),
                    node.member("address").number()};
        if (node.optional_member("python") != nullptr) {
            frame.python =
                node.member("python").index(report.python_frames.size(), "python_frames");
        }
        if (node.optional_member("source") != nullptr) {
            node.member("source").each([&](const Node& source) {
                frame.source.push_back(
                    {source.member("function").text(), source.member("file").text(),
                     source.member("line").line_number(), source.member("inlined").boolean()});
            });
        }
        // Code generated at run time has another address in each run.
        frame.address = frame.module == 0 ? 0 : frame.address;
        report.frames.push_back(std::move(frame));
    });
    add_tables(report);
    read_tables(root, report);
    root.member("devices").each([&](const Node& node) {
        report.devices.push_back(read_device(node, report.sites.size()));
    });
    root.member("ooms").each([&](const Node& node) {
        report.ooms.push_back(read_oom(node, report.stacks.size(), report.sites.size()));
    });
    report.oom_count = root.member("oom_count").number();
    root.member("marks").each([&](const Node& node) { report.marks.push_back(read_mark(node)); });
    report.mark_count = root.member("mark_count").number();
    read_annotations(root, report);
    root.member("missed").each([&](const Node& node) {
        report.missed.push_back({node.member("reason").text(), node.member("count").number(),
                                 node.member("bytes").number(),
                                 node.member("first_time_ns").number()});
    });
    report.coverage = read_coverage(root, report.stacks.size());
    const Node integrity = root.member("integrity");
    report.integrity.unmatched_frees = integrity.member("unmatched_frees").number();
    report.integrity.unmatched_segment_frees = integrity.member("unmatched_segment_frees").number();
    report.integrity.overwritten_allocations = integrity.member("overwritten_allocations").number();
    report.integrity.overwritten_segments = integrity.member("overwritten_segments").number();
    report.integrity.incomplete = integrity.member("incomplete").boolean();
    const Node log = root.member("log");
    report.log.events = log.member("events").number();
    report.log.dropped = log.member("dropped").number();
    report.log.stopped_because = log.member("stopped_because").text();
    return report;
}

/// A message about the file; nlohmann's name the classes of the library.
std::string describe(const JsonValue::parse_error& error, std::size_t size) {
    if (error.byte > size) {
        return "ends in the middle (after " + std::to_string(size) +
               " bytes); copy it again, or derive it from the .memlog beside it";
    }
    return "not valid JSON at byte " + std::to_string(error.byte) + advice;
}

/// None if the text is not as memlab writes it, or invalid.
std::optional<Report> read_with_tables(std::string_view text, const TableTexts& tables) {
    if (!tables.found) {
        return std::nullopt;
    }
    try {
        const JsonValue root = JsonValue::parse(without_tables(text, tables));
        return read_root(Node(root), [&](Report& report) {
            if (!read_stacks(tables.stacks, report.frames.size(), report.stacks) ||
                !read_sites(tables.sites, report.stacks.size(), report.sites)) {
                throw TableRejected();
            }
        });
    } catch (const TableRejected&) {
    } catch (const Invalid&) {
    } catch (const JsonValue::exception&) {
    }
    return std::nullopt;
}

/// `read()`, with what it throws as an error. `size`: of the text.
template <typename Read>
ReadResult without_exceptions(std::size_t size, Read read) {
    ReadResult result;
    try {
        result.report = read();
    } catch (const Invalid& error) {
        result.error = error.what();
    } catch (const JsonValue::parse_error& error) {
        result.error = describe(error, size);
    } catch (const JsonValue::exception& error) {
        result.error = std::string("has a number out of range") + advice;
    } catch (const std::bad_alloc&) {
        result.error = too_large_to_read;
    } catch (const std::exception& error) {
        result.error = std::string(error.what()) + advice;
    }
    return result;
}

/// The check that the readers make of each entry.
void check_index(std::size_t position, std::size_t size, const char* what) {
    if (position >= size) {
        throw Invalid(std::string("refers to ") + what + " that is not in it" + advice);
    }
}

}  // namespace

ReadResult parse_report(std::string_view text) {
    return without_exceptions(text.size(), [&]() -> Report {
        // Depth is checked by scanning brackets. The parser's callback would make parsing
        // quadratic: with one, nlohmann walks the whole list again after each of its objects.
        TableTexts tables;
        if (!scan_tables(text, max_depth, &tables)) {
            throw Invalid(std::string("is nested too deeply") + advice);
        }
        if (std::optional<Report> report = read_with_tables(text, tables)) {
            return std::move(*report);
        }
        const JsonValue root = JsonValue::parse(text.begin(), text.end());
        if (!root.is_object()) {
            throw Invalid("JSON, but not a memlab report; give a memlab.*.json or .memlog file");
        }
        return read_root(Node(root), [](Report&) {});
    });
}

ReadResult make_report(const trace::Aggregator& from, Moment moment) {
    return without_exceptions(0, [&] {
        const JsonValue root =
            JsonValue::parse(report_to_string(from, moment, LargeTables::left_out));
        return read_root(Node(root), [&](Report& report) {
            const ReportTables tables(from);
            report.stacks.reserve(tables.stack_count());
            for (std::size_t i = 0; i < tables.stack_count(); ++i) {
                report.stacks.push_back(tables.stack(i));
                for (const std::size_t frame : report.stacks.back().frames) {
                    check_index(frame, report.frames.size(), "a frame");
                }
            }
            report.sites.reserve(tables.site_count());
            for (std::size_t i = 0; i < tables.site_count(); ++i) {
                report.sites.push_back(tables.site(i));
                check_index(report.sites.back().stack, report.stacks.size(), "a stack");
            }
        });
    });
}

}  // namespace memlab::report
