#include "report/lines/line_tables.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>
#include <utility>

#include "profiler/trace/aggregator.hpp"
#include "profiler/trace/memory_stat_keys.hpp"
#include "report/every_record.hpp"
#include "report/read_ahead.hpp"
#include "report/symbolizer.hpp"

namespace memlab::report {

namespace {

using trace::CurveName;

/// What a column takes its values from.
enum class Source : std::uint8_t { curve, sum, statistic };
enum class Sum : std::uint8_t { bytes, count, live, at_peak };

struct ColumnKind {
    Source source = Source::curve;
    CurveName curve = CurveName::active;
    Sum sum = Sum::bytes;
    bool of_moments = false;  ///< only the event log has it
    bool of_whole_run = false;
    bool highest = true;  ///< of the moments; else the latest
    bool bytes = true;
};

constexpr std::array<std::pair<std::string_view, CurveName>, 4> curve_columns = {
    {{"active", CurveName::active},
     {"reserved", CurveName::reserved},
     {"allocated", CurveName::allocated},
     {"requested", CurveName::requested}}};
constexpr std::array<std::pair<std::string_view, Sum>, 4> sum_columns = {
    {{"bytes", Sum::bytes}, {"count", Sum::count}, {"live", Sum::live}, {"at_peak", Sum::at_peak}}};

/// "active_bytes.all.peak" is "active_bytes.all.current" at its highest.
std::string followed_key(const std::string& name) {
    constexpr std::string_view peak = ".peak";
    return name.ends_with(peak) ? name.substr(0, name.size() - peak.size()) + ".current" : name;
}

/// The statistic's place in `stats`; null when there is none of that name.
const std::uint64_t* find_statistic(const trace::MemoryStats& stats, const std::string& key) {
    const std::uint64_t* found = nullptr;
    trace::visit_memory_stats(stats, [&](std::string_view name, std::string_view pool,
                                         std::string_view figure, const std::uint64_t& value) {
        if (key.size() == name.size() + pool.size() + figure.size() && key.starts_with(name) &&
            key.ends_with(figure) && key.compare(name.size(), pool.size(), pool) == 0) {
            found = &value;
        }
    });
    return found;
}

std::optional<ColumnKind> kind_of(const std::string& name) {
    ColumnKind kind;
    for (const auto& [word, curve] : curve_columns) {
        if (name == word) {
            kind.curve = curve;
            kind.of_moments = true;
            return kind;
        }
    }
    for (const auto& [word, sum] : sum_columns) {
        if (name == word) {
            kind.source = Source::sum;
            kind.sum = sum;
            kind.bytes = sum != Sum::count;
            kind.of_whole_run = sum == Sum::live || sum == Sum::at_peak;
            return kind;
        }
    }
    static const trace::MemoryStats any;
    if (find_statistic(any, name) == nullptr) {
        return std::nullopt;
    }
    kind.source = Source::statistic;
    kind.of_moments = true;
    kind.highest = name.ends_with(".peak");
    kind.bytes = name.find("bytes") != std::string::npos;
    return kind;
}

/// `path` is `wanted`, or ends with it behind `separator`.
bool ends_as(const std::string& path, const std::string& wanted, std::string_view separator) {
    if (!path.ends_with(wanted)) {
        return false;
    }
    const std::size_t before = path.size() - wanted.size();
    return before == 0 ||
           (before >= separator.size() &&
            path.compare(before - separator.size(), separator.size(), separator) == 0);
}

/// The functions asked for, and on which of their lines each stack is.
class StackLines {
  public:
    struct On {
        std::size_t function = 0;
        int line = 0;
        // NOLINTNEXTLINE(modernize-use-nullptr): the 0 it complains of is the compiler's own.
        auto operator<=>(const On&) const = default;
    };

    StackLines(const Report& report, Resolver& resolver, const LineQuery& query)
        : resolver_(resolver), query_(query), known_(report.stacks.size()) {}

    const std::vector<On>& of(std::size_t stack) {
        static const std::vector<On> none;
        if (stack >= known_.size()) {
            return none;  // the log of a program that still runs has grown since
        }
        auto& known = known_[stack];
        if (!known) {
            known = look(stack);
        }
        return *known;
    }

    const std::vector<LineTable>& functions() const { return functions_; }

  private:
    std::vector<On> look(std::size_t stack) {
        std::set<On> found;
        for (const StackFrame& frame : resolver_.frames(stack)) {
            if (frame.line <= 0 || !ends_as(frame.file, query_.file, "/")) {
                continue;
            }
            const std::string name =
                frame.python ? frame.function : short_function_name(frame.function);
            if (query_.function.empty() || ends_as(name, query_.function, ".") ||
                ends_as(name, query_.function, "::")) {
                found.insert({function(frame, name), frame.line});
            }
        }
        return {found.begin(), found.end()};
    }

    std::size_t function(const StackFrame& frame, const std::string& name) {
        const auto [entry, is_new] =
            index_.try_emplace(std::tuple(frame.file, name, frame.first_line), functions_.size());
        if (is_new) {
            functions_.push_back({name, frame.file, frame.first_line, frame.python, {}});
        }
        return entry->second;
    }

    Resolver& resolver_;
    const LineQuery& query_;
    std::vector<std::optional<std::vector<On>>> known_;  ///< by stack
    std::vector<LineTable> functions_;                   ///< without rows
    std::map<std::tuple<std::string, std::string, int>, std::size_t> index_;
};

/// Which allocations the filter takes: those of a site of that stack and kind on that device.
class TakenSites {
  public:
    TakenSites(const Report& report, Resolver& resolver, const Filter& filter)
        : all_(filter.empty()) {
        if (all_) {
            return;
        }
        const std::vector<bool> taken = filter.sites(report, resolver);
        for (std::size_t i = 0; i < taken.size(); ++i) {
            if (taken[i]) {
                const Site& site = report.sites[i];
                taken_.emplace(site.device, site.stack, site.kind);
            }
        }
    }
    bool has(std::uint64_t device, std::uint64_t stack, const std::string& kind) const {
        return all_ || taken_.count({device, stack, kind}) != 0;
    }

  private:
    bool all_;
    std::set<std::tuple<std::uint64_t, std::uint64_t, std::string>> taken_;
};

/// The tables in the making.
class Tables {
  public:
    Tables(StackLines& lines, const std::vector<ColumnKind>& columns)
        : lines_(lines), columns_(columns) {}

    /// change(row) for every line of the stack, in the tables of `group`.
    template <typename Change>
    void at(std::size_t group, std::size_t stack, Change change) {
        const auto& on = lines_.of(stack);
        if (on.empty()) {
            return;
        }
        if (stack >= found_.size()) {
            found_.resize(stack + 1);
        }
        Found& found = found_[stack];
        if (found.rows.empty() || found.group != group) {
            found = {group, rows(group, on)};
        }
        for (LineTable::Row* row : found.rows) {
            change(*row);
        }
    }

    std::vector<LineTables::Group> finish(std::uint64_t every, std::uint64_t steps) const {
        std::vector<LineTables::Group> result;
        for (std::size_t group = 0; group < groups_.size(); ++group) {
            if (groups_[group].empty()) {
                continue;
            }
            LineTables::Group& out = result.emplace_back();
            if (every != 0) {
                out.first_step = group * every + 1;
                out.last_step = std::min<std::uint64_t>((group + 1) * every, steps);
            }
            std::map<std::size_t, std::size_t> table_of;
            for (const auto& [on, row] : groups_[group]) {
                const auto [entry, is_new] = table_of.try_emplace(on.function, out.tables.size());
                if (is_new) {
                    out.tables.push_back(lines_.functions()[on.function]);
                }
                out.tables[entry->second].rows.emplace(on.line, row);
            }
            std::sort(out.tables.begin(), out.tables.end(),
                      [](const LineTable& a, const LineTable& b) {
                          return std::tuple(a.file, first(a), a.function) <
                                 std::tuple(b.file, first(b), b.function);
                      });
        }
        return result;
    }

  private:
    /// Rows of a stack's lines, as last looked up: events come by the million, groups in their
    /// order.
    struct Found {
        std::size_t group = 0;
        std::vector<LineTable::Row*> rows;
    };

    std::vector<LineTable::Row*> rows(std::size_t group, const std::vector<StackLines::On>& on) {
        if (group >= groups_.size()) {
            groups_.resize(group + 1);
        }
        std::vector<LineTable::Row*> rows;
        for (const StackLines::On& each : on) {
            LineTable::Row& row = groups_[group][{each.function, each.line}];
            row.values.resize(columns_.size());
            rows.push_back(&row);
        }
        return rows;
    }

    static int first(const LineTable& table) {
        return table.first_line != 0 ? table.first_line : table.rows.begin()->first;
    }

    StackLines& lines_;
    const std::vector<ColumnKind>& columns_;
    std::vector<std::map<StackLines::On, LineTable::Row>> groups_;  ///< maps: rows stay in place
    std::vector<Found> found_;                                      ///< by stack
};

void add(std::optional<std::uint64_t>& value, std::uint64_t more) {
    value = value.value_or(0) + more;
}

/// Looks at the figures whenever a line allocates.
class Moments final : public EveryRecord<Moments> {
  public:
    Moments(trace::Aggregator& figures, std::uint64_t device, const LineQuery& query,
            const std::vector<ColumnKind>& columns, const std::vector<std::string>& names,
            const TakenSites& taken, Tables& tables)
        : figures_(figures),
          device_(device),
          query_(query),
          columns_(columns),
          taken_(taken),
          tables_(tables) {
        for (const std::string& name : names) {
            keys_.push_back(followed_key(name));
        }
    }

    template <typename Record>
    void take(const Record& record) {
        figures_.on(record);
    }
    void take(const trace::Event& event) {
        figures_.on(event);
        if (event.type == trace::EventType::mark) {
            if (query_.mark.empty() || figures_.string(event.name) == query_.mark) {
                ++marks_;
            }
        } else if (event.type == trace::EventType::alloc && event.device == device_) {
            look(event);
        }
    }
    void take(const trace::OomEvent& oom) {
        figures_.on(oom);
        if (oom.device == device_ && taken_.has(device_, oom.stack, trace::name_of(oom.kind))) {
            tables_.at(group(), oom.stack, [](LineTable::Row& row) { ++row.ooms; });
        }
    }

    std::uint64_t marks() const { return marks_; }

  private:
    std::size_t group() const {
        return query_.every == 0 ? 0 : static_cast<std::size_t>(marks_ / query_.every);
    }

    void look(const trace::Event& event) {
        if (!taken_.has(device_, event.stack, trace::name_of(event.kind))) {
            return;
        }
        tables_.at(group(), event.stack, [&](LineTable::Row& row) {
            const trace::DeviceTotals& device = *figures_.devices()[device_];
            for (std::size_t i = 0; i < columns_.size(); ++i) {
                const ColumnKind& column = columns_[i];
                std::optional<std::uint64_t>& value = row.values[i];
                if (column.source == Source::sum) {
                    if (!column.of_whole_run) {
                        add(value, column.sum == Sum::count ? 1 : served(event));
                    }
                    continue;
                }
                const std::uint64_t now = column.source == Source::curve
                                              ? device.curve(column.curve).current
                                              : *statistic(device, i);
                value = column.highest ? std::max(value.value_or(0), now) : now;
            }
        });
    }

    static std::uint64_t served(const trace::Event& event) {
        return event.size == 0 && event.origin == trace::Origin::driver ? event.requested
                                                                        : event.size;
    }

    const std::uint64_t* statistic(const trace::DeviceTotals& device, std::size_t column) {
        if (statistics_.empty()) {
            statistics_.resize(columns_.size());
        }
        if (statistics_[column] == nullptr) {
            statistics_[column] = find_statistic(device.pool.stats, keys_[column]);
        }
        return statistics_[column];
    }

    trace::Aggregator& figures_;
    const std::uint64_t device_;
    const LineQuery& query_;
    const std::vector<ColumnKind>& columns_;
    const TakenSites& taken_;
    Tables& tables_;
    std::vector<std::string> keys_;
    std::vector<const std::uint64_t*> statistics_;
    std::uint64_t marks_ = 0;
};

/// The sums that the report has: all of them, or with `of_whole_run_only` those that the moments do
/// not add up to.
void add_sums(const Report& report, const Device& device, const TakenSites& taken,
              const std::vector<ColumnKind>& columns, bool of_whole_run_only, Tables& tables) {
    const auto put = [&](std::size_t stack, Sum sum, std::uint64_t amount) {
        tables.at(0, stack, [&](LineTable::Row& row) {
            for (std::size_t i = 0; i < columns.size(); ++i) {
                if (columns[i].source == Source::sum && columns[i].sum == sum &&
                    (columns[i].of_whole_run || !of_whole_run_only)) {
                    add(row.values[i], amount);
                }
            }
        });
    };
    for (const Site& site : report.sites) {
        if (site.device == device.index && taken.has(site.device, site.stack, site.kind)) {
            put(site.stack, Sum::bytes, site.bytes);
            put(site.stack, Sum::count, site.count);
            put(site.stack, Sum::live, site.live_bytes);
        }
    }
    for (const Holders::Share& share : device.at_peak.sites) {
        const Site& site = report.sites[share.site];
        if (taken.has(site.device, site.stack, site.kind)) {
            put(site.stack, Sum::at_peak, share.bytes);
        }
    }
}

const Device* choose_device(const Report& report, const std::optional<std::uint64_t>& wanted) {
    const Device* found = nullptr;
    for (const Device& device : report.devices) {
        if (wanted ? device.index == *wanted
                   : device.used() &&
                         (found == nullptr || device.curve(Curve::allocated).peak_bytes >
                                                  found->curve(Curve::allocated).peak_bytes)) {
            found = &device;
        }
    }
    return found;
}

std::string in_this(const LineQuery& query) {
    return query.function.empty() ? query.file : query.function + " of " + query.file;
}

}  // namespace

std::string check_column(const std::string& name) {
    if (kind_of(name)) {
        return {};
    }
    return "takes active, reserved, allocated, requested, bytes, count, live, at_peak or a key of "
           "torch.cuda.memory_stats like active_bytes.all.peak, not " +
           name;
}

LineTables line_tables(const Report& report, Resolver& resolver, const std::string& log,
                       const LineQuery& query, std::string* problem) {
    LineTables result;
    if (query.every != 0 && log.empty()) {
        *problem = "has sums of the whole run; for --every give the event log (*.memlog)";
        return result;
    }
    std::vector<std::string> names = query.columns;
    if (names.empty()) {
        names = log.empty() ? std::vector<std::string>{"at_peak", "bytes", "live"}
                            : std::vector<std::string>{"active", "reserved", "bytes"};
    }
    std::vector<ColumnKind> columns;
    for (const std::string& name : names) {
        columns.push_back(*kind_of(name));
        result.columns.push_back({name, columns.back().bytes});
        if (columns.back().of_moments && log.empty()) {
            *problem = "has no moments, which the column " + name +
                       " shows; give the event log (*.memlog)";
            return result;
        }
        if (columns.back().of_whole_run && query.every != 0) {
            *problem = "the column " + name + " is of the whole run; leave --every out";
            return result;
        }
    }
    const Device* device = choose_device(report, query.device);
    if (device == nullptr) {
        *problem = "used no GPU memory; there is nothing to show";
        return result;
    }
    result.device = device->index;

    StackLines lines(report, resolver, query);
    Tables tables(lines, columns);
    const TakenSites taken(report, resolver, query.filter);
    std::uint64_t steps = 0;
    if (!log.empty()) {
        trace::Aggregator figures;
        Moments moments(figures, device->index, query, columns, names, taken, tables);
        read_log_ahead(log, moments);
        if (query.every != 0 && moments.marks() == 0) {
            *problem = query.mark.empty()
                           ? "has no marks, which end the steps of --every; set them with "
                             "memlab_mark()"
                           : "has no marks named " + query.mark + "; the summary lists its marks";
            return result;
        }
        steps = moments.marks() + 1;
    }
    add_sums(report, *device, taken, columns, !log.empty(), tables);
    result.groups = tables.finish(query.every, steps);
    if (result.groups.empty()) {
        *problem = "no allocation was made in " + in_this(query) +
                   (query.filter.empty() ? "" : " that the filter takes") +
                   "; memlab-report sites lists the functions and files that made some";
        return result;
    }
    if (device->at_peak.other_bytes != 0 &&
        std::find(names.begin(), names.end(), "at_peak") != names.end()) {
        result.notes.push_back("at_peak is of the largest " +
                               std::to_string(device->at_peak.sites.size()) +
                               " call sites alone: the report has no more of that moment.");
    }
    return result;
}

}  // namespace memlab::report
