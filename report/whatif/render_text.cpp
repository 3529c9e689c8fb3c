// The what-if as text: the table, the failures, the choice. All text from the recording passes
// printable().
#include <algorithm>

#include "report/text/names.hpp"
#include "report/text/units.hpp"
#include "report/whatif/render.hpp"
#include "trace/json/oom_explanation.hpp"

namespace memlab::whatif {

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
    bool spare = false;  ///< omitted on a narrow terminal
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
            text("As recorded: " + report::pool_name(info.allocator) + " reserved " +
                 format_bytes(recorded.reserved_peak) + " at most, got memory " +
                 format_count(recorded.segment_allocs) + " times and gave it back " +
                 format_count(recorded.segment_frees) + " times.");
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
            {"unused", allocators([](const Outcome& outcome) {
                 return rest_percent(outcome.active_peak, outcome.reserved_peak);
             })},
            {"pieces", allocators([](const Outcome& outcome) {
                 return rest_percent(outcome.at_growth.largest, outcome.at_growth.total);
             }),
             true},
            {"rounding", allocators([](const Outcome& outcome) {
                 return rest_percent(outcome.requested_at_peak, outcome.allocated_peak);
             }),
             true},
            {"calls", driver_calls},
            {"driver", allocators([](const Outcome& outcome) {
                 return format_duration(static_cast<std::uint64_t>(outcome.calls.time_ns));
             })},
        };
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
        for (Column& column : all) {
            column.width = column.heading.size();
            for (const Row& row : table.rows) {
                column.width = std::max(column.width, display_width(column.cell(row)));
            }
        }
        const auto width = static_cast<std::size_t>(style_.width);
        if (total_width(all) > width) {
            std::erase_if(all, [](const Column& column) { return column.spare; });
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
        for (std::size_t index = 0; index < table.rows.size(); ++index) {
            row(table, index, shown);
        }
        std::string legend =
            "of held: of the most that the program held at once; unused: of the reserved peak, "
            "above the active one; ";
        if (std::any_of(shown.begin(), shown.end(), [](const Column& c) { return c.spare; })) {
            legend +=
                "pieces: of the free memory, what one large request could not have used when the "
                "most was reserved; rounding: of the allocated; ";
        }
        text(legend + "driver: time in calls of the driver, estimated.");
        line("");
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

    void failures(const Table& table) {
        bool any = false;
        for (const Row& row : table.rows) {
            if (row.fits()) {
                continue;
            }
            any = true;
            const Failure& failure = *row.outcome.failure;
            const Allocation& asked = table.program->allocations[failure.allocation];
            std::string content = "! " + row.policy.label + " is out of memory at event " +
                                  format_count(asked.event) + " (" +
                                  format_duration(asked.time_ns) +
                                  "): " + format_bytes(asked.requested) + " asked";
            const std::string place = describe_stack_(asked.stack);
            if (!place.empty()) {
                content += " by " + place;
            }
            content += ", " + format_bytes(failure.allocated) + " allocated, " +
                       format_bytes(failure.reserved) + " reserved of " +
                       format_bytes(row.capacity) + ".";
            text(content);
        }
        if (any) {
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
        mention("Less or quicker, but not from outside the program: ",
                choice.least != choice.ours ? choice.least : std::nullopt);
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

}  // namespace memlab::whatif
