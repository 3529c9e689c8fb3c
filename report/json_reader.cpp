// A strict parser of schema version 1 (docs/report-format.md): every type, range and index is
// checked before it is used.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "report/reader.hpp"
#include "report/table_text.hpp"
#include "trace/json/json_writer.hpp"
#include "trace/json/report_tables.hpp"

namespace memlab::report {

namespace {

using JsonValue = nlohmann::json;

constexpr std::uint64_t schema_version = 1;
/// The schema nests nine deep; unknown members of later versions may nest deeper.
constexpr int max_depth = 64;

/// Thrown at the first error. Its text is "what is wrong, where; what to do".
struct Invalid : std::runtime_error {
    using std::runtime_error::runtime_error;
};

constexpr const char* advice = "; the file is damaged or was not written by memlab: record again";

/// A JSON value and its path. The path is only formatted for an error message.
class Node {
  public:
    explicit Node(const JsonValue& value) : value_(value) {}

    Node member(const char* name) const {
        require(value_.is_object(), "an object");
        const auto found = value_.find(name);
        if (found == value_.end()) {
            throw Invalid(where() + " has no \"" + name + "\"" + advice);
        }
        return {*found, this, name, 0};
    }

    /// Null if the member does not exist.
    const JsonValue* optional_member(const char* name) const {
        require(value_.is_object(), "an object");
        const auto found = value_.find(name);
        return found == value_.end() ? nullptr : &*found;
    }

    template <typename Visit>
    void each(Visit visit) const {
        require(value_.is_array(), "a list");
        for (std::size_t i = 0; i < value_.size(); ++i) {
            visit(Node(value_[i], this, nullptr, i));
        }
    }

    template <typename Visit>
    void each_member(Visit visit) const {
        require(value_.is_object(), "an object");
        for (auto item = value_.begin(); item != value_.end(); ++item) {
            visit(item.key(), Node(item.value(), this, item.key().c_str(), 0));
        }
    }

    std::size_t size() const {
        require(value_.is_array(), "a list");
        return value_.size();
    }

    Node at(std::size_t index) const { return {value_[index], this, nullptr, index}; }

    bool is_null() const { return value_.is_null(); }

    std::uint64_t number() const {
        require(value_.is_number_unsigned(), "a whole number from 0 to 2^64-1");
        return value_.get<std::uint64_t>();
    }

    /// A line of a source file; numbers beyond int become 0, unknown.
    int line_number() const {
        const std::uint64_t line = number();
        return line <= static_cast<std::uint64_t>(std::numeric_limits<int>::max())
                   ? static_cast<int>(line)
                   : 0;
    }

    std::int64_t signed_number() const {
        const bool fits =
            value_.is_number_integer() &&
            (!value_.is_number_unsigned() ||
             value_.get<std::uint64_t>() <=
                 static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
        require(fits, "a whole number");
        return value_.get<std::int64_t>();
    }

    bool boolean() const {
        require(value_.is_boolean(), "true or false");
        return value_.get<bool>();
    }

    std::string text() const {
        require(value_.is_string(), "text");
        return value_.get<std::string>();
    }

    std::optional<double> ratio() const {
        if (value_.is_null()) {
            return std::nullopt;
        }
        require(value_.is_number(), "a number or null");
        const auto ratio = value_.get<double>();
        require(std::isfinite(ratio) && ratio >= 0 && ratio <= 1, "between 0 and 1");
        return ratio;
    }

    double real() const {
        require(value_.is_number(), "a number");
        const auto number = value_.get<double>();
        require(std::isfinite(number), "a finite number");
        return number;
    }

    /// A position in a table of `size` entries.
    std::size_t index(std::size_t size, const char* table) const {
        const std::uint64_t position = number();
        if (position >= size) {
            throw Invalid(where() + " is " + std::to_string(position) + ", but " + table +
                          " has only " + std::to_string(size) + " entries" + advice);
        }
        return static_cast<std::size_t>(position);
    }

    [[noreturn]] void fail(const std::string& what) const {
        throw Invalid(where() + " " + what + advice);
    }

  private:
    Node(const JsonValue& value, const Node* parent, const char* name, std::size_t position)
        : value_(value), parent_(parent), name_(name), position_(position) {}

    void require(bool good, const char* wanted) const {
        if (!good) {
            throw Invalid(where() + " is " + kind() + ", not " + wanted + advice);
        }
    }

    std::string kind() const {
        switch (value_.type()) {
            case JsonValue::value_t::null:
                return "null";
            case JsonValue::value_t::object:
                return "an object";
            case JsonValue::value_t::array:
                return "a list";
            case JsonValue::value_t::string:
                return "text";
            case JsonValue::value_t::boolean:
                return "true or false";
            default:
                return "the number " + value_.dump();
        }
    }

    std::string where() const {
        if (parent_ == nullptr) {
            return "the report";
        }
        const std::string before = parent_->parent_ == nullptr ? "" : parent_->where();
        if (name_ == nullptr) {
            return before + "[" + std::to_string(position_) + "]";
        }
        return before.empty() ? name_ : before + "." + name_;
    }

    const JsonValue& value_;
    const Node* parent_ = nullptr;
    const char* name_ = nullptr;
    std::size_t position_ = 0;
};

Holders read_holders(const Node& node, std::size_t site_count, bool has_time) {
    Holders holders;
    holders.time_ns = has_time ? node.member("time_ns").number() : 0;
    holders.count = node.member("count").number();
    holders.bytes = node.member("bytes").number();
    node.member("sites").each([&](const Node& item) {
        Holders::Share share;
        share.site = item.member("site").index(site_count, "sites");
        share.count = item.member("count").number();
        share.bytes = item.member("bytes").number();
        if (item.optional_member("labels") != nullptr) {
            item.member("labels").each([&](const Node& label) {
                share.labels.push_back({.name = label.member("name").text(),
                                        .count = label.member("count").number(),
                                        .bytes = label.member("bytes").number()});
            });
        }
        holders.sites.push_back(std::move(share));
    });
    const Node other = node.member("other");
    holders.other_sites = other.member("sites").number();
    holders.other_count = other.member("count").number();
    holders.other_bytes = other.member("bytes").number();
    return holders;
}

constexpr std::array<const char*, curve_count> curve_names = {"requested", "allocated", "active",
                                                              "reserved", "device_used"};

CurveValues read_values(const Node& node) {
    CurveValues values;
    values.requested = node.member("requested_bytes").number();
    values.allocated = node.member("allocated_bytes").number();
    values.active = node.member("active_bytes").number();
    values.reserved = node.member("reserved_bytes").number();
    return values;
}

/// The positions of a curve's three columns.
std::array<std::size_t, 3> find_columns(const Node& columns, const char* curve) {
    std::array<std::size_t, 3> positions{};
    static constexpr std::array<const char*, 3> suffixes = {"_min", "_max", "_last"};
    for (std::size_t k = 0; k < suffixes.size(); ++k) {
        const std::string wanted = std::string(curve) + suffixes.at(k);
        std::size_t position = columns.size();
        for (std::size_t i = 0; i < columns.size(); ++i) {
            if (columns.at(i).text() == wanted) {
                position = i;
            }
        }
        if (position == columns.size()) {
            columns.fail("has no \"" + wanted + "\"");
        }
        positions.at(k) = position;
    }
    return positions;
}

Timeline read_timeline(const Node& node) {
    Timeline timeline;
    const std::uint64_t start = node.member("start_ns").number();
    timeline.bucket_ns = node.member("bucket_ns").number();
    const Node columns = node.member("columns");
    if (columns.size() == 0 || columns.at(0).text() != "bucket") {
        columns.fail("does not begin with \"bucket\"");
    }
    std::array<std::array<std::size_t, 3>, curve_count> positions{};
    for (std::size_t c = 0; c < curve_count; ++c) {
        positions.at(c) = find_columns(columns, curve_names.at(c));
    }
    node.member("rows").each([&](const Node& cells) {
        if (cells.size() != columns.size()) {
            cells.fail("does not have one number for each column");
        }
        TimelineRow row;
        std::uint64_t offset = 0;
        if (__builtin_mul_overflow(cells.at(0).number(), timeline.bucket_ns, &offset) ||
            __builtin_add_overflow(start, offset, &row.begin_ns)) {
            cells.fail("does not fit into 64 bits of nanoseconds");
        }
        if (!timeline.rows.empty() && row.begin_ns <= timeline.rows.back().begin_ns) {
            cells.fail("is not in order of time");
        }
        for (std::size_t c = 0; c < curve_count; ++c) {
            const auto& [min, max, last] = positions.at(c);
            const bool optional = c == static_cast<std::size_t>(Curve::device_used);
            if (optional && cells.at(max).is_null()) {
                continue;
            }
            row.curves.at(c) = TimelineRow::Values{cells.at(min).number(), cells.at(max).number(),
                                                   cells.at(last).number()};
        }
        timeline.rows.push_back(row);
    });
    return timeline;
}

std::optional<Work> read_work(const Node& node) {
    if (node.optional_member("work") == nullptr) {
        return std::nullopt;
    }
    Work work;
    node.member("work").each_member([&](const std::string& kind, const Node& totals) {
        work.kinds[kind] = {totals.member("count").number(), totals.member("busy_ns").number(),
                            totals.member("bytes").number()};
    });
    return work;
}

std::optional<KernelsAtPeak> read_kernels_at_peak(const Node& node) {
    if (node.optional_member("kernels_at_peak") == nullptr) {
        return std::nullopt;
    }
    const Node moment = node.member("kernels_at_peak");
    KernelsAtPeak kernels;
    kernels.from_ns = moment.member("from_ns").number();
    kernels.to_ns = moment.member("to_ns").number();
    moment.member("kernels").each([&](const Node& kernel) {
        kernels.kernels.push_back({kernel.member("name").text(), kernel.member("count").number(),
                                   kernel.member("busy_ns").number()});
    });
    const Node other = moment.member("other");
    kernels.other_names = other.member("names").number();
    kernels.other_count = other.member("count").number();
    kernels.other_ns = other.member("busy_ns").number();
    return kernels;
}

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

Device read_device(const Node& node, std::size_t site_count) {
    Device device;
    device.index = node.member("index").number();
    device.name = node.member("name").text();
    device.uuid = node.member("uuid").text();
    device.total_bytes = node.member("total_bytes").number();
    if (const JsonValue* limit = node.optional_member("limit_bytes");
        limit != nullptr && !limit->is_null()) {
        device.limit_bytes = node.member("limit_bytes").number();
    }
    device.driver_version = node.member("driver_version").number();
    const Node curves = node.member("curves");
    for (std::size_t c = 0; c < curve_count; ++c) {
        const Node curve = curves.member(curve_names.at(c));
        const bool optional = c == static_cast<std::size_t>(Curve::device_used);
        const Node peak = curve.member("peak_bytes");
        if (optional && peak.is_null()) {
            continue;
        }
        device.curves.at(c) = CurveSummary{peak.number(), curve.member("peak_time_ns").number(),
                                           curve.member("at_end_bytes").number()};
    }
    node.member("kinds").each_member([&](const std::string& kind, const Node& totals) {
        KindTotals& out = device.kinds[kind];
        out.count = totals.member("count").number();
        out.bytes = totals.member("bytes").number();
        out.peak_bytes = totals.member("peak_bytes").number();
        out.live_count = totals.member("live_count").number();
        out.live_bytes = totals.member("live_bytes").number();
    });
    node.member("memory_stats").each_member([&](const std::string& key, const Node& value) {
        if (key == "max_split_size") {
            value.signed_number();  // PyTorch's -1: no limit
            return;
        }
        device.memory_stats[key] = value.number();
    });
    const Node fragmentation = node.member("fragmentation");
    device.fragmentation.at_peak = fragmentation.member("at_peak").ratio();
    device.fragmentation.external = fragmentation.member("external").ratio();
    device.fragmentation.internal = fragmentation.member("internal").ratio();
    device.fragmentation.largest_free_bytes = fragmentation.member("largest_free_bytes").number();
    device.fragmentation.total_free_bytes = fragmentation.member("total_free_bytes").number();
    device.timeline = read_timeline(node.member("timeline"));
    device.at_peak = read_holders(node.member("at_peak"), site_count, true);
    device.live = read_holders(node.member("live"), site_count, false);
    device.work = read_work(node);
    device.kernels_at_peak = read_kernels_at_peak(node);
    return device;
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
