// The what-if as text: the table, the failures, the choice. All text from the recording passes
// printable().
#include <algorithm>
#include <map>
#include <string_view>

#include "model/oom_explanation.hpp"
#include "report/text/names.hpp"
#include "report/text/units.hpp"
#include "report/whatif/render.hpp"

namespace memlab::report::whatif {

namespace {

using report::display_width;
using report::format_bytes;
using report::format_count;
using report::format_duration;
using report::format_percent;
using report::printable;

std::string padded(const std::string& text, std::size_t width, bool to_the_right) {
    const std::size_t have = display_width(text);
    const std::string space(have < width ? width - have : 0, ' ');
    return to_the_right ? space + text : text + space;
}

/// A column of the table. The first is left-aligned, the others right-aligned.
struct Column {
    std::string heading;
    std::function<std::string(const Row&)> cell;
    int spare = 0;  ///< on a narrow terminal the highest are left out first; 0: never
    std::size_t width = 0;
};

/// 1 - part / whole, as in fragmentation figures; "-" when `whole` is 0.
std::string rest_percent(std::uint64_t part, std::uint64_t whole) {
    return format_percent(whole - std::min(part, whole), whole);
}

class Writer {
  public:
    Writer(const Recording& recording, const report::Style& style,
           const DescribeStack& describe_stack)
        : recording_(recording), style_(style), describe_stack_(describe_stack) {}

    std::string write(const std::vector<Table>& tables) {
        const std::string& path = recording_.process.executable;
        const std::string name = report::base_name(path);
        line(std::string(style_.bold()) + clean(name.empty() ? "?" : name) +
             std::string(style_.reset()) + " (pid " + std::to_string(recording_.process.pid) +
             "), its allocations through other allocators");
        if (!recording_.warning.empty()) {
            text(recording_.warning);
        }
        for (const Table& table : tables) {
            line("");
            device(table);
            rows(table);
            failures(table);
            choice(table);
            for (const std::string& note : table.notes) {
                text(note);
            }
        }
        return std::move(out_);
    }

  private:
    static constexpr std::size_t min_label_width = 12;

    std::string clean(const std::string& raw) const { return printable(raw, style_.ascii); }
    void line(const std::string& content) { out_ += content + "\n"; }
    void text(const std::string& content, const std::string& indent = "  ") {
        const std::size_t width = static_cast<std::size_t>(style_.width) - indent.size();
        line(indent + report::wrap(clean(content), width, indent));
    }

    void device(const Table& table) {
        const Program& program = *table.program;
        const trace::DeviceInfo& info = program.device;
        line(std::string(style_.bold()) + clean(info.label()) + "  " + clean(program.device.name) +
             std::string(style_.reset()));
        std::string about = report::format_plural(program.allocations.size(), "allocation") + "; " +
                            format_bytes(table.capacity) + " to serve them from: " +
                            (table.limited ? "the limit" : "the GPU's memory");
        if (program.outside_bytes != 0) {
            about += " less " + format_bytes(program.outside_bytes) + " in use beside them";
        }
        text(about + ".");
        const Recorded& recorded = program.recorded;
        if (recorded.pooled != 0) {
            text("As recorded: " + model::pool_name(info.allocator) + " reserved " +
                 format_bytes(recorded.reserved_peak) + " at most, got memory " +
                 report::format_plural(recorded.segment_allocs, "time") + " and gave it back " +
                 report::format_plural(recorded.segment_frees, "time") + ".");
        }
        line("");
    }

    static std::string driver_calls(const Row& row) {
        const DriverCalls& calls = row.outcome.calls;
        return row.policy.kind == PolicyKind::allocator
                   ? format_count(calls.allocs + calls.maps + calls.frees + calls.unmaps)
                   : "";
    }

    std::vector<Column> columns(const Table& table) const {
        const auto allocators = [](auto cell) {
            return [cell](const Row& row) {
                return row.policy.kind == PolicyKind::allocator ? cell(row.outcome) : std::string();
            };
        };
        return {
            {"", [this](const Row& row) { return clean(row.policy.label); }},
            {"reserved", [](const Row& row) { return format_bytes(row.outcome.reserved_peak); }},
            {"of held",
             [&table](const Row& row) {
                 return format_percent(row.outcome.reserved_peak, table.bound.rounded);
             }},
            {"cached", allocators([](const Outcome& outcome) {
                 return rest_percent(outcome.active_peak, outcome.reserved_peak);
             }),
             1},
            {"external", allocators([](const Outcome& outcome) {
                 return rest_percent(outcome.at_growth.largest, outcome.at_growth.total);
             }),
             4},
            {"internal", allocators([](const Outcome& outcome) {
                 return rest_percent(outcome.requested_at_peak, outcome.allocated_peak);
             }),
             3},
            {"calls", driver_calls, 2},
            {"driver", allocators([](const Outcome& outcome) {
                 return format_duration(static_cast<std::uint64_t>(outcome.calls.time_ns));
             })},
        };
    }

    /// Whether the row serves what failed in the recording: "yes", "no", "2 of 3".
    static std::string serves_failed(const Table& table, const Row& row) {
        const std::uint64_t attempts = table.program->attempts;
        const std::uint64_t served = row.outcome.attempts_served;
        if (row.policy.kind != PolicyKind::allocator) {
            return "";
        }
        return served == attempts ? "yes"
               : served == 0      ? "no"
                                  : format_count(served) + " of " + format_count(attempts);
    }

    /// Two blanks between columns, and two at the left for the mark of a row.
    static std::size_t total_width(const std::vector<Column>& columns) {
        std::size_t width = 0;
        for (const Column& column : columns) {
            width += column.width + 2;
        }
        return width;
    }

    std::vector<Column> fitting_columns(const Table& table) const {
        std::vector<Column> all = columns(table);
        if (table.program->attempts != 0) {
            all.insert(all.begin() + 3, {"would fit", [&table](const Row& row) {
                                             return serves_failed(table, row);
                                         }});
        }
        for (Column& column : all) {
            column.width = column.heading.size();
            for (const Row& row : table.rows) {
                column.width = std::max(column.width, display_width(column.cell(row)));
            }
        }
        const auto width = static_cast<std::size_t>(style_.width);
        for (int spare = 4; spare > 0 && total_width(all) > width; --spare) {
            std::erase_if(all, [spare](const Column& column) { return column.spare == spare; });
        }
        if (total_width(all) > width) {  // shorten the labels
            const std::size_t over = total_width(all) - width;
            all.front().width -= std::min(over, all.front().width - min_label_width);
        }
        return all;
    }

    void rows(const Table& table) {
        const std::vector<Column> shown = fitting_columns(table);
        std::string heading = "  " + padded("", shown.front().width, false);
        for (std::size_t i = 1; i < shown.size(); ++i) {
            heading += "  " + padded(shown[i].heading, shown[i].width, true);
        }
        line(std::string(style_.dim()) + heading + std::string(style_.reset()));
        std::string without_effect;
        for (std::size_t index = 0; index < table.rows.size(); ++index) {
            if (has_no_effect(table, index)) {
                without_effect +=
                    (without_effect.empty() ? "" : ", ") +
                    table.rows[index].policy.label.substr(std::string_view("memlab ").size());
            } else {
                row(table, index, shown);
            }
        }
        const auto has = [&shown](const char* heading) {
            return std::any_of(shown.begin(), shown.end(),
                               [heading](const Column& c) { return c.heading == heading; });
        };
        std::string legend = "of held: of the most that the program held at once; ";
        if (has("would fit")) {
            legend += "would fit: whether what failed in the recording is served; ";
        }
        if (has("cached")) {
            legend += "cached: of the reserved peak, what is above the active peak; ";
        }
        if (has("external")) {
            legend +=
                "external fragmentation: of the free memory, what one large request could not have "
                "used when the most was reserved; ";
        }
        if (has("internal")) {
            legend += "internal fragmentation: rounding, of the allocated peak; ";
        }
        text(legend + "driver: time in calls of the driver, estimated.");
        if (!without_effect.empty()) {
            text("The same as with the recorded settings: " + without_effect + ".");
        }
        line("");
    }

    /// Whether a setting of memlab's pool that nobody asked for changes nothing.
    static bool has_no_effect(const Table& table, std::size_t index) {
        const Row& row = table.rows[index];
        if (!row.policy.by_default || !row.policy.ours || row.policy.is_recorded_pool() ||
            table.choice.row == index) {
            return false;
        }
        return std::any_of(table.rows.begin(), table.rows.end(), [&row](const Row& recorded) {
            const Outcome& a = row.outcome;
            const Outcome& b = recorded.outcome;
            return recorded.policy.is_recorded_pool() && row.fits() == recorded.fits() &&
                   a.attempts_served == b.attempts_served && a.reserved_peak == b.reserved_peak &&
                   a.allocated_peak == b.allocated_peak && a.active_peak == b.active_peak &&
                   a.calls.time_ns == b.calls.time_ns;
        });
    }

    void row(const Table& table, std::size_t index, const std::vector<Column>& all) {
        const Row& row = table.rows[index];
        const bool chosen = table.choice.row == index;
        std::string content = !row.fits() ? "! " : chosen ? "> " : "  ";
        for (std::size_t i = 0; i < all.size(); ++i) {
            std::string cell = all[i].cell(row);
            if (i == 0) {
                content += padded(report::shorten_end(cell, all[i].width, style_.ascii),
                                  all[i].width, false);
            } else {
                content += "  " + padded(cell, all[i].width, true);
            }
        }
        content.erase(content.find_last_not_of(' ') + 1);
        const std::string_view color = !row.fits() ? style_.red() : chosen ? style_.bold() : "";
        line(std::string(color) + content +
             std::string(color.empty() ? std::string_view() : style_.reset()));
    }

    /// One paragraph for all rows that fail at the same allocation.
    void failures(const Table& table) {
        std::map<std::uint32_t, std::vector<const Row*>> failed;
        for (std::size_t index = 0; index < table.rows.size(); ++index) {
            const Row& row = table.rows[index];
            if (!row.fits() && !has_no_effect(table, index)) {
                failed[row.outcome.failure->allocation].push_back(&row);
            }
        }
        for (const auto& [allocation, rows] : failed) {
            const Allocation& asked = table.program->allocations[allocation];
            std::string content = "! ";
            for (const Row* row : rows) {
                content += (row == rows.front() ? "" : ", ") + row->policy.label;
            }
            content += std::string(rows.size() == 1 ? " is" : ": each is") +
                       " out of memory at event " + format_count(asked.event) + " (" +
                       format_duration(asked.time_ns) + "): " + format_bytes(asked.requested) +
                       " asked";
            const std::string place = describe_stack_(asked.stack);
            if (!place.empty()) {
                content += " by " + place;
            }
            const auto [least, most] =
                std::minmax_element(rows.begin(), rows.end(), [](const Row* a, const Row* b) {
                    return a->outcome.failure->reserved < b->outcome.failure->reserved;
                });
            const Failure& first = *(*least)->outcome.failure;
            const Failure& last = *(*most)->outcome.failure;
            content +=
                ", " + format_bytes(first.allocated) + " allocated, " +
                format_bytes(first.reserved) +
                (first.reserved == last.reserved ? "" : " to " + format_bytes(last.reserved)) +
                " reserved of " + format_bytes(rows.front()->capacity) + ".";
            text(content);
        }
        if (!failed.empty()) {
            line("");
        }
    }

    void choice(const Table& table) {
        const Choice& choice = table.choice;
        if (!choice.row) {
            text("Choose: " + choice.why + ".");
            return;
        }
        const Policy& policy = table.rows[*choice.row].policy;
        text("Choose: " + policy.label + ". It " + choice.why + ".");
        if (!policy.how.empty()) {
            text("Set: " + policy.how);
        }
        const auto mention = [&](const char* what, std::optional<std::size_t> index) {
            if (index && index != choice.row) {
                const Row& row = table.rows[*index];
                text(what + row.policy.label + " (" + format_bytes(row.outcome.reserved_peak) +
                     ").");
            }
        };
        mention("Of memlab's own pool: ", choice.ours);
        if (choice.least && choice.least != choice.ours) {
            const Outcome& least = table.rows[*choice.least].outcome;
            const Outcome& chosen = table.rows[*choice.row].outcome;
            if (least.reserved_peak < chosen.reserved_peak) {
                mention("Less, but not from outside the program: ", choice.least);
            } else if (least.calls.time_ns < chosen.calls.time_ns / 2) {
                mention("As little and quicker, but not from outside the program: ", choice.least);
            }
        }
    }

    const Recording& recording_;
    const report::Style& style_;
    const DescribeStack& describe_stack_;
    std::string out_;
};

}  // namespace

std::string render_text(const Recording& recording, const std::vector<Table>& tables,
                        const report::Style& style, const DescribeStack& describe_stack) {
    return Writer(recording, style, describe_stack).write(tables);
}

}  // namespace memlab::report::whatif
