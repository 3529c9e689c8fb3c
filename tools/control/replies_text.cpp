#include "tools/control/replies_text.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "report/text/names.hpp"
#include "report/text/page.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"
#include "tools/live/find_processes.hpp"
#include "tools/live/live_sites.hpp"
#include "tools/live/pool_picture.hpp"

namespace memlab::tools {
namespace {

using model::IntervalDocument;
using model::StatusDocument;
using report::format_bytes;
using report::format_plural;
using report::Page;
using report::Table;

/// The program without its folder, and its arguments.
std::string command_of(const StatusDocument& status) {
    std::string command =
        report::base_name(status.arguments.empty() ? status.executable : status.arguments.front());
    for (std::size_t i = 1; i < status.arguments.size(); ++i) {
        command.append(" ").append(status.arguments[i]);
    }
    return command;
}

/// A row of the list: a GPU of a process, or why it does not answer.
struct Listed {
    pid_t process = 0;
    std::optional<std::uint64_t> gpu;
    std::optional<std::uint64_t> allocated;
    std::string command;
};

std::vector<Listed> listed(const std::vector<LiveStatus>& processes, const Page& page) {
    std::vector<Listed> rows;
    for (const LiveStatus& each : processes) {
        if (!each.status) {
            rows.push_back({each.process,
                            {},
                            {},
                            page.clean(command_line_of(each.process)) + "  (does not answer)"});
            continue;
        }
        const std::string command = page.clean(command_of(*each.status));
        if (each.status->gpus.empty()) {
            rows.push_back({each.process, {}, 0, command});
        }
        for (const StatusDocument::Gpu& gpu : each.status->gpus) {
            rows.push_back({each.process, gpu.gpu, gpu.allocated_bytes, command});
        }
    }
    return rows;
}

void add_pair(Page& page, const std::string& name, const std::string& text) {
    constexpr std::size_t column = 12;
    page.line("  " + name + std::string(column - std::min(column, name.size()), ' ') + text);
}

/// The totals below a table of holders.
void add_others(Page& page, const IntervalDocument& document) {
    const trace::Composition& all = document.totals.at_peak;
    if (all.other_sites != 0) {
        page.line(page.dim("  and " + format_bytes(all.other_bytes) + " of " +
                           format_plural(all.other_sites, "other call site")));
    }
    if (document.at_least) {
        page.warnings({"memory may be missing from these figures: the report says why"});
    }
}

}  // namespace

std::string list_text(const std::vector<LiveStatus>& processes, const report::Style& style) {
    Page page(style);
    const std::vector<Listed> rows = listed(processes, page);
    Table<Listed> table(page);
    table
        .number("pid", report::Column::fitted,
                [](const Listed& row) { return static_cast<std::uint64_t>(row.process); })
        .right("GPU", report::Column::fitted,
               [](const Listed& row) { return row.gpu ? std::to_string(*row.gpu) : "-"; })
        .bytes("allocated", [](const Listed& row) { return row.allocated; })
        .last("command", [&](const Listed& row) {
            return report::shorten_end(row.command, page.remaining_width(40), style.ascii);
        });
    table.fit(rows);
    table.head();
    table.rows(rows, rows.size());
    return page.take();
}

std::string status_text(pid_t process, const StatusDocument& status, const report::Style& style) {
    Page page(style);
    const std::string command = page.clean(command_of(status));
    page.heading("process " + std::to_string(process),
                 report::shorten_end(command, page.remaining_width(22), style.ascii));
    add_pair(page, "host",
             page.clean(status.host) +
                 (status.rank ? page.separator() + "rank " + page.clean(*status.rank) : ""));
    add_pair(page, "since",
             report::format_wall_time(status.start_wall_ns) + page.separator() +
                 report::format_duration(status.duration_ns));
    add_pair(page, "report",
             !status.recording ? "nothing is recorded (MEMLAB_RECORD=off)"
             : status.report   ? page.clean(*status.report)
                               : "none is written (MEMLAB_FILES=off)");
    add_pair(
        page, "stacks",
        status.stack_depth == 0 ? "none" : format_plural(status.stack_depth, "frame") + " at most");
    if (!status.pooling) {
        add_pair(page, "pool", "off: memory comes from the driver");
    }
    if (status.step_count) {
        add_pair(page, "steps", report::format_count(*status.step_count));
    }
    if (status.latest_mark) {
        add_pair(page, "mark", page.clean(*status.latest_mark));
    }
    if (status.pinned_bytes != 0 || status.max_pinned_bytes != 0) {
        add_pair(page, "pinned",
                 format_bytes(status.pinned_bytes) + ", at most " +
                     format_bytes(status.max_pinned_bytes));
    }
    if (status.managed_bytes != 0 || status.max_managed_bytes != 0) {
        add_pair(page, "managed",
                 format_bytes(status.managed_bytes) + ", at most " +
                     format_bytes(status.max_managed_bytes));
    }
    if (status.oom_count != 0) {
        add_pair(page, "failed",
                 page.red(format_plural(status.oom_count, "allocation") + " for lack of memory"));
    }
    const StatusDocument::Hold& hold = status.hold_on_oom;
    if (hold.waiting != 0) {
        add_pair(page, "waits",
                 page.red(format_plural(hold.waiting, "thread") + " at an out-of-memory of " +
                          format_bytes(hold.requested_bytes.value_or(0)) + " on GPU " +
                          std::to_string(hold.gpu.value_or(0)) + ", for " +
                          report::format_duration(
                              status.duration_ns -
                              std::min(status.duration_ns, hold.since_ns.value_or(0)))));
    } else if (hold.on) {
        add_pair(page, "waits",
                 "at an out-of-memory, for " + std::to_string(hold.timeout_s) + " s at most");
    }
    const StatusDocument::StepAside& aside = status.step_aside;
    if (aside.phase != "off" && aside.phase != "running") {
        add_pair(
            page, "aside",
            page.red(page.clean(aside.phase)) + ", " + format_bytes(aside.away_bytes) + " away" +
                (aside.by_driver ? " by the driver's checkpoint" : "") + ", " +
                format_plural(aside.waiting, "thread") + " waiting" +
                (aside.lost ? "; lost: the driver could not restore it, end the process" : "") +
                (aside.short_of_memory ? "; no room on the GPU to come back" : ""));
    }
    std::uint64_t unnamed = aside.staying_bytes;
    for (const StatusDocument::StepAside::Staying& each : aside.staying) {
        const std::string size = format_bytes(each.bytes) + " of GPU " + std::to_string(each.gpu);
        add_pair(page, "stays",
                 page.clean(each.kind) + " " + size +
                     (each.place.empty() ? "" : " from " + page.clean(each.place)));
        unnamed -= std::min(unnamed, each.bytes);
    }
    if (unnamed != 0) {
        add_pair(page, "stays", format_bytes(unnamed) + " more");
    }
    for (const StatusDocument::Gpu& gpu : status.gpus) {
        struct Row {
            const char* name;
            std::optional<std::uint64_t> now;
            std::optional<std::uint64_t> most;
        };
        page.heading("GPU " + std::to_string(gpu.gpu),
                     page.clean(gpu.name) + page.separator() + page.clean(gpu.uuid));
        Table<Row> table(page);
        table.left("", 12, [](const Row& row) { return row.name; })
            .bytes("now", &Row::now)
            .bytes("most so far", &Row::most);
        table.head();
        if (gpu.tensor_bytes) {
            table.row({"tensors", gpu.tensor_bytes, gpu.max_tensor_bytes});
        }
        table.row({"allocated", gpu.allocated_bytes, gpu.max_allocated_bytes});
        table.row({"reserved", gpu.reserved_bytes, gpu.max_reserved_bytes});
        table.row({"cached", gpu.cached_bytes, {}});
        if (gpu.free_bytes) {
            table.row({"free", gpu.free_bytes, {}});
        }
        if (gpu.limit_bytes) {
            table.row({"limit", gpu.limit_bytes, {}});
        }
        page.line(page.dim("  " + format_plural(gpu.live_count, "live allocation") + " of " +
                           format_plural(gpu.allocation_count, "allocation")));
    }
    if (status.at_least) {
        page.warnings({"memory may be missing from these figures: the report says why"});
    }
    return page.take();
}

std::string sites_text(pid_t process, const IntervalDocument& document, bool since_mark,
                       const report::Style& style) {
    Page page(style);
    SiteNames names;
    const LiveSites sites = names.name(document, process);
    const std::vector<LiveSite> rows = one_per_place(sites.sites);
    const std::string directory = working_directory_of(process);
    page.heading(since_mark ? "held of what was allocated since the latest mark" : "held now",
                 format_bytes(document.totals.end_bytes));
    Table<LiveSite> table(page);
    table.bytes("bytes", &LiveSite::bytes)
        .share(&LiveSite::bytes, document.totals.end_bytes)
        .count("count", &LiveSite::count)
        .number("GPU", 4, &LiveSite::gpu)
        .last("call site", [&](const LiveSite& row) {
            return site_text(row, table.last_width(), style.ascii, directory);
        });
    if (rows.empty()) {
        page.line("  nothing");
    } else {
        table.head();
        table.rows(rows, rows.size());
    }
    add_others(page, document);
    return page.take();
}

std::string nn_modules_text(const IntervalDocument& document, const report::Style& style) {
    using NnModule = IntervalDocument::NnModule;
    Page page(style);
    page.heading("held now by nn.Modules", "without those inside them");
    if (document.nn_modules.empty()) {
        page.line("  nothing: no nn.Module of PyTorch is known to hold memory now");
        return page.take();
    }
    Table<NnModule> table(page);
    table.bytes("bytes", &NnModule::bytes)
        .share(&NnModule::bytes, document.totals.end_bytes)
        .count("count", &NnModule::count)
        .last("nn.Module", [&](const NnModule& row) {
            return page.clean(row.name.value_or("(no name yet)") +
                              (row.class_name ? "  " + *row.class_name : ""));
        });
    table.head();
    table.rows(document.nn_modules, document.nn_modules.size());
    return page.take();
}

std::string pool_text(const model::PoolDocument& document, const report::Style& style) {
    Page page(style);
    for (const model::PoolDocument::Gpu& gpu : document.gpus) {
        page.heading("GPU " + std::to_string(gpu.gpu),
                     format_bytes(gpu.reserved_bytes) + " reserved in " +
                         format_plural(gpu.segment_count, "segment") + ", " +
                         format_bytes(gpu.active_bytes) + " of it active" +
                         (gpu.pending_bytes == 0
                              ? std::string()
                              : ", " + format_bytes(gpu.pending_bytes) + " freed and pending"));
        for (const std::string& line : pool_picture(gpu, page.width(), style.ascii)) {
            page.line(line);
        }
    }
    if (page.empty()) {
        page.line("memlab's pool has no memory here");
    }
    return page.take();
}

}  // namespace memlab::tools
