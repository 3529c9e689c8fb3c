#include "report/lines/line_tables.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "report/device_label.hpp"
#include "report/reading/needs_log.hpp"
#include "report/reading/read_ahead.hpp"
#include "report/text/names.hpp"
#include "report/text/units.hpp"
#include "trace/aggregate/aggregator.hpp"

namespace memlab::report {

namespace {

using Source = LineColumn::Source;
using Sum = LineColumn::Sum;

/// Whether `path` is `wanted` or ends with `separator` + `wanted`.
bool ends_as(const std::string& path, const std::string& wanted, std::string_view separator) {
    if (!path.ends_with(wanted)) {
        return false;
    }
    const std::size_t before = path.size() - wanted.size();
    return before == 0 ||
           (before >= separator.size() &&
            path.compare(before - separator.size(), separator.size(), separator) == 0);
}

/// The selected functions, and on which of their lines each stack is.
class StackLines {
  public:
    struct On {
        std::size_t function = 0;
        int line = 0;
        // NOLINTNEXTLINE(modernize-use-nullptr): the 0 it complains of is the compiler's own.
        auto operator<=>(const On&) const = default;
    };

    StackLines(const model::Report& report, Resolver& resolver, const LineQuery& query)
        : resolver_(resolver), query_(query), known_(report.stacks.size()) {
        if (query.line) {
            for (std::size_t stack = 0; stack < known_.size(); ++stack) {
                find_functions_of_line(stack);
            }
        }
    }

    const std::vector<On>& of(std::size_t stack) {
        static const std::vector<On> none;
        if (stack >= known_.size()) {
            return none;  // the log of a running program has grown since the report
        }
        auto& known = known_[stack];
        if (!known) {
            known = look(stack);
        }
        return *known;
    }

    const std::vector<LineTable>& functions() const { return functions_; }

    /// Whether a line stands for what backward allocates.
    bool any_of_backward() const { return any_of_backward_; }

  private:
    /// File, name and first line.
    using FunctionKey = std::tuple<std::string, std::string, int>;

    static FunctionKey key_of(const StackFrame& frame) {
        return {frame.file, frame.python ? frame.function : short_function_name(frame.function),
                frame.first_line};
    }

    bool is_in_file(const StackFrame& frame) const {
        return frame.line > 0 && ends_as(frame.file, query_.file, "/");
    }

    void find_functions_of_line(std::size_t stack) {
        for (const StackFrame& frame : resolver_.frames(stack)) {
            if (is_in_file(frame) && frame.line == *query_.line) {
                of_line_.insert(key_of(frame));
            }
        }
    }

    bool is_wanted(const FunctionKey& function) const {
        const std::string& name = std::get<1>(function);
        return (query_.function.empty() || ends_as(name, query_.function, ".") ||
                ends_as(name, query_.function, "::")) &&
               (!query_.line || of_line_.contains(function));
    }

    std::vector<On> look(std::size_t stack) {
        std::set<On> found;
        bool of_backward = false;
        for (const StackFrame& frame : resolver_.frames(stack)) {
            of_backward = of_backward || frame.is_forward_marker();
            if (!is_in_file(frame)) {
                continue;
            }
            const FunctionKey key = key_of(frame);
            if (is_wanted(key)) {
                found.insert({function(frame, key), frame.line});
                any_of_backward_ = any_of_backward_ || of_backward;
            }
        }
        return {found.begin(), found.end()};
    }

    std::size_t function(const StackFrame& frame, const FunctionKey& key) {
        const auto [entry, is_new] = index_.try_emplace(key, functions_.size());
        if (is_new) {
            functions_.push_back(
                {std::get<1>(key), frame.file, frame.first_line, frame.python, {}});
        }
        return entry->second;
    }

    Resolver& resolver_;
    const LineQuery& query_;
    std::vector<std::optional<std::vector<On>>> known_;  ///< by stack
    std::vector<LineTable> functions_;                   ///< without rows
    bool any_of_backward_ = false;
    std::map<FunctionKey, std::size_t> index_;
    std::set<FunctionKey> of_line_;  ///< of LineQuery::line
};

/// The sites that the filter takes, by device, stack and kind.
class TakenSites {
  public:
    TakenSites(const model::Report& report, Resolver& resolver, const Filter& filter)
        : all_(filter.empty()) {
        if (all_) {
            return;
        }
        const std::vector<bool> taken = filter.sites(report, resolver);
        for (std::size_t i = 0; i < taken.size(); ++i) {
            if (taken[i]) {
                const model::Site& site = report.sites[i];
                taken_.emplace(site.device, site.stack, site.kind);
            }
        }
    }
    bool has(std::uint64_t device, std::uint64_t stack, const std::string& kind) const {
        return all_ || taken_.count({device, stack, kind}) != 0;
    }
    bool has(std::uint64_t device, std::uint64_t stack, trace::MemoryKind kind) const {
        return all_ || has(device, stack, std::string(trace::name_of(kind)));
    }

  private:
    bool all_;
    std::set<std::tuple<std::uint64_t, std::uint64_t, std::string>> taken_;
};

/// The tables under construction.
class Tables {
  public:
    struct Line {
        LineTable::Row row;
        std::uint64_t latest = 0;  ///< number of the last allocation in `row`
    };

    Tables(StackLines& lines, const std::vector<LineColumn>& columns)
        : lines_(lines), columns_(columns) {}

    /// change(line) for every line of the stack, in the tables of `group`.
    template <typename Change>
    void at(std::size_t group, std::size_t stack, Change change) {
        for (const StackLines::On& on : lines_.of(stack)) {
            if (group >= groups_.size()) {
                groups_.resize(group + 1);
            }
            Line& line = groups_[group][on];
            line.row.values.resize(columns_.size());
            change(line);
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
            for (const auto& [on, line] : groups_[group]) {
                const auto [entry, is_new] = table_of.try_emplace(on.function, out.tables.size());
                if (is_new) {
                    out.tables.push_back(lines_.functions()[on.function]);
                }
                out.tables[entry->second].rows.emplace(on.line, line.row);
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
    static int first(const LineTable& table) {
        return table.first_line != 0 ? table.first_line : table.rows.begin()->first;
    }

    StackLines& lines_;
    const std::vector<LineColumn>& columns_;
    std::vector<std::map<StackLines::On, Line>> groups_;
};

void add(std::optional<std::uint64_t>& value, std::uint64_t more) {
    value = value.value_or(0) + more;
}

/// Adds the moments of stacks to the lines of the stacks.
void add_moments(const StackMoments& moments, std::uint64_t device, const TakenSites& taken,
                 Tables& tables) {
    const std::vector<LineColumn>& columns = moments.columns();
    for (const StackMoments::Group& group : moments.groups()) {
        for (std::size_t index = 0; index < group.allocations.size(); ++index) {
            const StackMoments::Allocations& allocations = group.allocations[index];
            if (allocations.device != device ||
                !taken.has(device, allocations.stack, allocations.kind)) {
                continue;
            }
            const std::uint64_t* const values = &group.values[index * columns.size()];
            tables.at(group.number, allocations.stack, [&](Tables::Line& line) {
                line.row.ooms += allocations.ooms;
                for (std::size_t i = 0; allocations.latest != 0 && i < columns.size(); ++i) {
                    std::optional<std::uint64_t>& value = line.row.values[i];
                    if (columns[i].source != Source::sum) {
                        if (columns[i].highest) {
                            value = std::max(value.value_or(0), values[i]);
                        } else if (allocations.latest > line.latest) {
                            value = values[i];
                        }
                    } else if (!columns[i].of_whole_run) {
                        add(value, values[i]);
                    }
                }
                line.latest = std::max(line.latest, allocations.latest);
            });
        }
    }
}

/// Adds the sums of the report: all, or with `of_whole_run_only` those that the moments lack.
void add_sums(const model::Report& report, const model::Device& device, const TakenSites& taken,
              const std::vector<LineColumn>& columns, bool of_whole_run_only, Tables& tables) {
    const auto put = [&](std::size_t stack, Sum sum, std::uint64_t amount) {
        tables.at(0, stack, [&](Tables::Line& line) {
            for (std::size_t i = 0; i < columns.size(); ++i) {
                if (columns[i].source == Source::sum && columns[i].sum == sum &&
                    (columns[i].of_whole_run || !of_whole_run_only)) {
                    add(line.row.values[i], amount);
                }
            }
        });
    };
    for (const model::Site& site : report.sites) {
        if (site.device == device.index && taken.has(site.device, site.stack, site.kind)) {
            put(site.stack, Sum::bytes, site.bytes);
            put(site.stack, Sum::count, site.count);
            put(site.stack, Sum::live, site.live_bytes);
        }
    }
    for (const model::Holders::Share& share : device.at_peak.sites) {
        const model::Site& site = report.sites[share.site];
        if (taken.has(site.device, site.stack, site.kind)) {
            put(site.stack, Sum::at_peak, share.bytes);
        }
    }
}

/// The one that held most; a framework's cache, where one was seen from inside, before the GPUs.
const model::Device* choose_device(const model::Report& report,
                                   const std::optional<std::uint64_t>& wanted) {
    const model::Device* found = nullptr;
    for (const model::Device& device : report.devices) {
        if (wanted ? !is_on(device.index, *wanted) : !device.used()) {
            continue;
        }
        const bool better =
            found == nullptr || (device.is_gpu() == found->is_gpu()
                                     ? device.curve(model::Curve::allocated).peak_bytes >
                                           found->curve(model::Curve::allocated).peak_bytes
                                     : !device.is_gpu());
        found = better ? &device : found;
    }
    return found;
}

/// What ends the steps of --every.
StepEnds step_ends(const model::Report& report, const LineQuery& query) {
    if (query.every == 0) {
        return {};
    }
    if (!query.step.empty()) {
        return StepEnds::named(query.step);
    }
    const auto is_mark = [](const model::Mark& mark) { return mark.type == "mark"; };
    const std::optional<std::size_t> steps = choose_steps(report, "");
    if (!steps || std::any_of(report.marks.begin(), report.marks.end(), is_mark)) {
        return StepEnds::all_marks();
    }
    const model::Steps& chosen = report.steps[*steps];
    return chosen.anchor ? StepEnds::at(*chosen.anchor) : StepEnds::path(chosen.name);
}

std::string in_this(const LineQuery& query) {
    if (query.line) {
        return "line " + std::to_string(*query.line) + " of " + query.file;
    }
    return query.function.empty() ? query.file : query.function + " of " + query.file;
}

}  // namespace

LineTables line_tables(const model::Report& report, Resolver& resolver, const FoundLog& log,
                       const LineQuery& query, std::string* problem,
                       const StackMoments* collected) {
    LineTables result;
    if (query.every != 0 && log.empty()) {
        *problem = needs_log(log, "has sums of the whole run, not the steps of --every");
        return result;
    }
    const std::vector<LineColumn> columns = select_columns(query);
    for (const LineColumn& column : columns) {
        result.columns.push_back({column.name, column.bytes});
        if (column.of_moments && log.empty()) {
            *problem = needs_log(log, "has no moments, which the column " + column.name + " shows");
            return result;
        }
        if (column.of_whole_run && query.every != 0) {
            *problem = "the column " + column.name + " is of the whole run; leave --every out";
            return result;
        }
    }
    const model::Device* device = choose_device(report, query.device);
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
        const auto wanted = [&](std::uint64_t on, std::uint32_t stack, trace::MemoryKind kind) {
            return on == device->index && taken.has(on, stack, kind) && !lines.of(stack).empty();
        };
        StackMoments again(query, wanted, step_ends(report, query));
        const bool known = collected != nullptr && collected->log() == log.path;
        if (!known) {
            trace::Aggregator figures;
            read_log_ahead(log.path, *again.follow(log.path, figures));
        }
        const StackMoments& moments = known ? *collected : again;
        add_moments(moments, device->index, taken, tables);
        if (const auto gap_end = moments.gap_end_ns()) {
            result.notes.push_back(
                "The event log keeps its beginning and its newest part, from " +
                format_duration(*gap_end) +
                " on (MEMLAB_LOG_LIMIT): what is counted or shown of single allocations is of "
                "these; at_peak and live are of the whole run.");
        }
        if (query.every != 0 && moments.steps_ended() == 0) {
            *problem = query.step.empty() ? "has no steps for --every; mark them with memlab_mark, "
                                            "memlab_scope_begin or NVTX "
                                            "(docs/scopes.md)"
                                          : "has no marks or scopes named " + query.step +
                                                "; the summary lists those "
                                                "that there are";
            return result;
        }
        steps = moments.steps_ended() + 1;
    }
    add_sums(report, *device, taken, columns, !log.empty(), tables);
    result.groups = tables.finish(query.every, steps);
    if (result.groups.empty()) {
        *problem = "no allocation was made in " + in_this(query) +
                   (query.filter.empty() ? "" : " that the filter takes") +
                   "; memlab-report sites lists the functions and files that made some";
        return result;
    }
    if (lines.any_of_backward()) {
        result.notes.push_back(
            "What backward allocates counts at the line of the forward that made the operation.");
    }
    if (device->at_peak.other_bytes != 0 &&
        std::any_of(columns.begin(), columns.end(),
                    [](const LineColumn& column) { return column.name == "at_peak"; })) {
        result.notes.push_back("at_peak covers only the largest " +
                               std::to_string(device->at_peak.sites.size()) +
                               " call sites: the report has no others at the peak.");
    }
    return result;
}

}  // namespace memlab::report
