// The what-if as text: the table, the failures, the choice. All text from the recording passes
// printable().
#include <algorithm>
#include <map>
#include <string_view>

#include "model/oom_explanation.hpp"
#include "report/text/names.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"
#include "report/whatif/render.hpp"
#include "report/whatif/trials.hpp"

namespace memlab::report::whatif {

namespace {

using report::format_bytes;
using report::format_count;
using report::format_duration;
using report::format_percent;

/// 1 - part / whole, as in fragmentation figures; "-" when `whole` is 0.
std::string rest_percent(std::uint64_t part, std::uint64_t whole) {
    return format_percent(whole - std::min(part, whole), whole);
}

class Writer {
  public:
    Writer(const Recording& recording, const report::Style& style,
           const DescribeStack& describe_stack)
        : recording_(recording), page_(style), describe_stack_(describe_stack) {}

    std::string write(const std::vector<Table>& tables) {
        const std::string& path = recording_.process.executable;
        const std::string name = report::base_name(path);
        page_.line(page_.bold(page_.clean(name.empty() ? "?" : name)) + " (pid " +
                   std::to_string(recording_.process.pid) +
                   "), its allocations with other allocators");
        if (!recording_.warning.empty()) {
            text(recording_.warning);
        }
        for (const Table& table : tables) {
            page_.line("");
            device(table);
            rows(table);
            failures(table);
            choice(table);
            for (const std::string& note : table.notes) {
                text(note);
            }
        }
        return page_.take();
    }

  private:
    static constexpr std::size_t min_label_width = 12;

    void text(const std::string& content) { page_.paragraph("  ", page_.clean(content)); }

    void device(const Table& table) {
        const Program& program = *table.program;
        const trace::DeviceInfo& info = program.device;
        page_.line(page_.bold(page_.clean(info.label()) + "  " + page_.clean(program.device.name)));
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
                 format_bytes(recorded.reserved_peak) + " at most, grew " +
                 report::format_plural(recorded.segment_allocs, "time") + ", shrank " +
                 report::format_plural(recorded.segment_frees, "time") + ".");
        }
        page_.line("");
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

    report::Table<Row> columns(const Table& table) {
        constexpr std::size_t fitted = report::Column::fitted;
        const auto allocators = [](auto cell) {
            return [cell](const Row& row) {
                return row.policy.kind == PolicyKind::allocator ? cell(row.outcome) : std::string();
            };
        };
        report::Table<Row> columns(page_);
        columns.left("", fitted, [this](const Row& row) { return page_.clean(row.policy.label); })
            .bytes("reserved", fitted, [](const Row& row) { return row.outcome.reserved_peak; })
            .right("of held", fitted, [&table](const Row& row) {
                return format_percent(row.outcome.reserved_peak, table.bound.rounded);
            });
        if (table.program->attempts != 0) {
            columns.right("would fit", fitted,
                          [&table](const Row& row) { return serves_failed(table, row); });
        }
        columns
            .right("cached", fitted, allocators([](const Outcome& outcome) {
                       return rest_percent(outcome.active_peak, outcome.reserved_peak);
                   }),
                   1)
            .right("external", fitted, allocators([](const Outcome& outcome) {
                       return rest_percent(outcome.at_growth.largest, outcome.at_growth.total);
                   }),
                   4)
            .right("internal", fitted, allocators([](const Outcome& outcome) {
                       return rest_percent(outcome.requested_at_peak, outcome.allocated_peak);
                   }),
                   3)
            .right("calls", fitted, allocators([](const Outcome& outcome) {
                       const DriverCalls& calls = outcome.calls;
                       return format_count(calls.allocs + calls.maps + calls.frees + calls.unmaps);
                   }),
                   2)
            .right("driver", fitted, allocators([](const Outcome& outcome) {
                       return format_duration(static_cast<std::uint64_t>(outcome.calls.time_ns));
                   }));
        columns.fit(table.rows, min_label_width);
        return columns;
    }

    void rows(const Table& table) {
        const report::Table<Row> shown = columns(table);
        shown.head();
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
        std::string legend = "of held: of the most that the program held at once; ";
        if (shown.has("would fit")) {
            legend += "would fit: whether what failed in the recording is served; ";
        }
        if (shown.has("cached")) {
            legend += "cached: of the reserved peak, what is above the active peak; ";
        }
        if (shown.has("external")) {
            legend +=
                "external fragmentation: of the free memory, what one large request could not have "
                "used when the most was reserved; ";
        }
        if (shown.has("internal")) {
            legend += "internal fragmentation: rounding, of the allocated peak; ";
        }
        text(legend + "driver: time in calls of the driver, estimated.");
        if (!without_effect.empty()) {
            text("No different from the recorded settings: " + without_effect + ".");
        }
        page_.line("");
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

    /// With a mark in the two blanks before the first column.
    void row(const Table& table, std::size_t index, const report::Table<Row>& columns) {
        const Row& row = table.rows[index];
        const bool chosen = table.choice.row == index;
        std::string content = columns.line(row);
        if (!row.fits()) {
            page_.line(page_.red(content.replace(0, 1, "!")));
        } else {
            page_.line(chosen ? page_.bold(content.replace(0, 1, ">")) : content);
        }
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
            page_.line("");
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
            text("Set: " + setting_text(policy, recording_.options));
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
                mention("Less, but only by changing the program: ", choice.least);
            } else if (least.calls.time_ns < chosen.calls.time_ns / 2) {
                mention("As little and faster, but only by changing the program: ", choice.least);
            }
        }
    }

    const Recording& recording_;
    report::Page page_;
    const DescribeStack& describe_stack_;
};

}  // namespace

std::string render_text(const Recording& recording, const std::vector<Table>& tables,
                        const report::Style& style, const DescribeStack& describe_stack) {
    return Writer(recording, style, describe_stack).write(tables);
}

}  // namespace memlab::report::whatif
