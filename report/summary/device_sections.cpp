// The sections of the summary for one GPU: its curves, the holders of its memory, the kernels that
// ran at the peak.
#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "model/bounded_sum.hpp"
#include "model/oom_explanation.hpp"
#include "report/device_label.hpp"
#include "report/lacks.hpp"
#include "report/summary/ledger.hpp"
#include "report/summary/summary_page.hpp"
#include "report/summary/waterfall.hpp"
#include "report/text/names.hpp"
#include "report/text/plot.hpp"
#include "report/text/shell_word.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"

namespace memlab::report {
void SummaryPage::device_sections(const DeviceSummary& summary) {
    const model::Device& device = *summary.device;
    std::string name = clean(device_label(device)) + ": " + clean(device.name);
    std::string note = format_bytes(device.total_bytes);
    if (device.limit_bytes) {
        note = format_bytes(*device.limit_bytes) + " of " + note + " by MEMLAB_LIMIT";
    }
    if (device.driver_version != 0) {
        note += separator() + "CUDA " + std::to_string(device.driver_version / 1000) + "." +
                std::to_string(device.driver_version % 1000 / 10) + " driver";
    }
    heading(name, note);
    if (summary.reserve) {
        paragraph("  " + yellow(style().ascii ? "! " : "⚠ "), summary.reserve->text(), 4);
    }
    absences(device);
    const bool outside_only = is_outside_curves_only(device);
    if (outside_only) {
        line("  no device memory was allocated");
        kind_sections(summary);
    } else {
        curve_table(device);
    }
    if (is_cut_by_pytorch(device)) {
        waterfall(device);
        kind_sections(summary);
        line("");
        const std::string command =
            "memlab-report --level driver " + shell_file(summary_.file, style().ascii);
        const std::string note =
            device.kernels_at_peak ? "when, who holds it, and what ran" : "when, and who holds it";
        command_to_copy(bold(command), 0, 5 + display_width(command) + note.size() <= width(),
                        note);
        return;
    }
    if (!outside_only) {
        plot(device);
        marks(device);
        waterfall(device);
        fragmentation(device);
        const model::Holders& peak = device.at_peak;
        holders("Who holds it at the allocated peak", summary.at_peak, options_.top,
                format_plural(peak.count, "allocation") + ", at " + format_duration(peak.time_ns));
        if (summary.proposal) {
            paragraph("  ", clean(summary.proposal->text()));
        }
        categories(summary);
        nn_modules(summary);
        kernels(device);
        kind_sections(summary);
    }
    const HoldersSummary& live = summary.still_allocated;
    if (live.count != 0) {
        holders("Still allocated " + moment_text(*summary_.report), live, options_.top,
                format_plural(live.count, "allocation"));
        if (live.bytes > summary.live.bytes && !outside_only) {
            line(dim("  " + format_bytes(live.bytes - summary.live.bytes) +
                     " of it is not device memory (see Kinds of memory)"));
        }
    } else {
        heading("Still allocated " + moment_text(*summary_.report));
        line("  nothing");
    }
    kinds(device);
    stacks(summary);
}

bool SummaryPage::is_cut_by_pytorch(const model::Device& gpu) const {
    const auto& all = summary_.report->devices;
    return gpu.is_gpu() && std::any_of(all.begin(), all.end(), [&](const model::Device& device) {
               return device.is_pytorchs() && device.used() && device.gpu() == gpu.index;
           });
}

void SummaryPage::curve_table(const model::Device& device) {
    struct Row {
        model::Curve curve;
        const char* name;
        std::string meaning;
        const model::CurveSummary* figures = nullptr;
    };
    const bool gpu = device.is_gpu();
    std::array<Row, model::curve_count> rows = {{
        {model::Curve::allocated, "allocated",
         gpu ? "what the program holds" : "what it handed out"},
        {model::Curve::reserved, "reserved",
         gpu ? "taken from the driver" : "held by " + clean(cache_name(device))},
        {model::Curve::requested, "requested", "before rounding"},
        {model::Curve::active, "active", "allocated + frees pending"},
        {model::Curve::device_used, "device used", "the whole GPU, sampled"},
    }};
    const auto& reserved = device.curve(model::Curve::reserved);
    const auto is_important = [](const Row& row) {
        return row.curve == model::Curve::allocated || row.curve == model::Curve::reserved;
    };
    Table<Row> table(*this);
    table.left("", 12, &Row::name)
        .bytes("peak", [](const Row& row) { return row.figures->peak_bytes; })
        .bold(is_important)
        .duration("at", [](const Row& row) { return row.figures->peak_time_ns; })
        .right(moment_column(*summary_.report), 14, [&](const Row& row) {
            const std::uint64_t at_end = row.figures->at_end_bytes;
            return gpu && row.curve == model::Curve::device_used && at_end < reserved.at_end_bytes
                       ? "-"
                       : format_bytes(at_end);
        });
    if (width() >= 78) {
        table.last("", [this](const Row& row) { return dim(row.meaning); });
    }
    table.head();
    for (Row& row : rows) {
        const auto& curve = device.curves.at(static_cast<std::size_t>(row.curve));
        // An allocator does not tell the others.
        if (!curve || (!gpu && !is_important(row))) {
            continue;
        }
        row.figures = &*curve;
        model::CurveSummary at_least = *curve;
        if (gpu && row.curve == model::Curve::device_used &&
            curve->peak_bytes < reserved.peak_bytes) {
            // It was sampled before: then there was what is reserved, and more.
            at_least.peak_bytes = reserved.peak_bytes;
            at_least.peak_time_ns = reserved.peak_time_ns;
            row.figures = &at_least;
            row.meaning = "at least: not sampled then";
        }
        table.row(row);
    }
}

void SummaryPage::plot(const model::Device& device) {
    std::vector<PlotPoint> points;
    const auto values = [](const model::TimelineRow& row, model::Curve curve) {
        return row.curves.at(static_cast<std::size_t>(curve))
            .value_or(model::TimelineRow::Values{});
    };
    for (const model::TimelineRow& row : device.timeline.rows) {
        const auto allocated = values(row, model::Curve::allocated);
        const auto reserved = values(row, model::Curve::reserved);
        points.push_back({row.begin_ns, allocated.max, reserved.max});
        // The last value of a bucket holds until the next row.
        std::uint64_t end = 0;
        if (!__builtin_add_overflow(row.begin_ns, device.timeline.bucket_ns, &end)) {
            points.push_back({end, allocated.last, reserved.last});
        }
    }
    const std::string solid = style().ascii ? "#" : "█";
    const std::string shade = style().ascii ? "." : "░";
    plot(points, "  " + cyan(solid) + " allocated   " + dim(shade) + " reserved, not allocated",
         device.index);
}

void SummaryPage::plot(const std::vector<PlotPoint>& points, const std::string& what,
                       std::uint64_t device) {
    std::vector<PlotNote> notes;
    std::size_t number = 0;
    for (const model::Mark& mark : summary_.report->marks) {
        ++number;
        notes.push_back({mark.time_ns, number <= 9 ? static_cast<char>('0' + number) : '^'});
    }
    for (const model::Oom& oom : summary_.report->ooms) {
        if (oom.device == device) {
            notes.push_back({oom.time_ns, 'X'});
        }
    }
    PlotOptions options;
    options.width = style().width - 2;
    options.height = 8;
    options.ascii = style().ascii;
    options.allocated_color = style().cyan();
    options.reserved_color = style().dim();
    options.reset = style().reset();
    const model::Report& report = *summary_.report;
    const std::uint64_t end_ns = known_until(report).value_or(report.process.duration_ns);
    const auto lines = plot_timeline(points, end_ns, notes, options);
    if (lines.empty()) {
        return;
    }
    line("");
    std::string legend = what;
    if (!summary_.report->marks.empty()) {
        legend += "   1 2 ^ marks";
    }
    if (!summary_.report->ooms.empty()) {
        legend += "   X out of memory";
    }
    line(legend);
    for (const std::string& row : lines) {
        line("  " + row);
    }
}

void SummaryPage::waterfall(const model::Device& device) {
    const std::optional<Waterfall> fall = make_waterfall(*summary_.report, device);
    if (!fall) {
        return;
    }
    struct Level {
        std::uint64_t bytes;
        const char* name;
        std::string less;  ///< the meaning of the difference to the level above
    };
    std::vector<Level> levels;
    if (fall->device_used) {
        levels.push_back({*fall->device_used, "device used, as sampled", ""});
    }
    levels.push_back({fall->reserved, "reserved",
                      device.ledger ? "everything else on the GPU"
                                    : "CUDA contexts, kernels, other processes (the rest)"});
    if (device.is_gpu()) {
        levels.push_back({fall->active, "active", "cached for reuse"});
        levels.push_back({fall->allocated, "allocated", "freed, but the GPU may still use it"});
        levels.push_back({fall->requested, "requested", "internal fragmentation: rounding"});
    } else {
        levels.push_back({fall->allocated, "allocated", "cached for reuse"});
    }
    heading("Where it went at the allocated peak",
            fall->is_exact
                ? "at " + format_duration(fall->time_ns)
                : "highest within " + format_duration(fall->within_ns) + "; may not coincide");
    using Row = std::pair<const char*, std::uint64_t>;
    Table<Row> table(*this);
    table.left("", 2, &Row::first).bytes("", &Row::second).last("");
    for (std::size_t i = 0; i < levels.size();) {
        if (i != 0) {
            table.row({"-", levels[i - 1].bytes - levels[i].bytes}, "  " + dim(levels[i].less));
            if (i == 1 && fall->device_used) {
                remainder(device);
            }
        }
        std::string names = levels[i].name;
        const std::uint64_t bytes = levels[i].bytes;
        while (++i < levels.size() && levels[i].bytes == bytes) {
            names += std::string(", ") + levels[i].name;
        }
        paragraph(table.begin({"", bytes}), names);
    }
    std::string outside;
    for (const auto& [kind, bytes] : fall->outside_pool) {
        outside += (outside.empty() ? "" : ", ") + clean(kind) + " " + format_bytes(bytes);
    }
    if (!outside.empty() && device.is_gpu()) {
        paragraph("    ", "Allocated outside the pool: " + outside + ".");
    }
}

/// The largest groups of the ledger that are not allocations.
void SummaryPage::remainder(const model::Device& device) {
    const std::optional<LedgerPage> ledger =
        resolver_ == nullptr ? std::nullopt : ledger_page(device, *resolver_, LedgerAt::peak);
    if (!ledger) {
        return;
    }
    constexpr std::size_t max_rows = 5;
    std::size_t shown = 0;
    std::uint64_t others = ledger->rest;
    std::uint64_t all = ledger->rest;
    std::vector<const LedgerGroup*> groups;
    for (const LedgerGroup& group : ledger->groups) {
        if (group.kind == "allocations" || group.kind == "driver_pools") {
            continue;
        }
        all += group.bytes;
        if (shown++ < max_rows) {
            groups.push_back(&group);
        } else {
            others += group.bytes;
        }
    }
    const auto table = [&](std::size_t indent) {
        Table<std::uint64_t> table(*this, indent);
        table.bytes("", 14, std::identity()).last("");
        return table;
    };
    const Table<std::uint64_t> parts = table(8);
    const auto row = [&](std::uint64_t bytes, const std::string& what) {
        paragraph(parts.begin(bytes), what, 0, style().dim());
    };
    // Another moment: its rows add up to another sum.
    paragraph(
        table(6).begin(all),
        "at the sampled peak, " + format_duration(ledger->time_ns) + " (memlab-report ledger):", 0,
        style().dim());
    for (const LedgerGroup* group : groups) {
        row(group->bytes, group->title);
    }
    row(others,
        shown > max_rows ? "others, and the rest" : "the rest: other processes, not measured");
}

void SummaryPage::categories(const DeviceSummary& summary) {
    const CategoryShares& shares = summary.categories;
    const auto other = static_cast<std::size_t>(Category::other);
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < shares.size(); ++i) {
        if (shares[i].bytes != 0) {
            order.push_back(i);
        }
    }
    if (order.empty() || (order.size() == 1 && order.front() == other)) {
        return;
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return (a != other) != (b != other) ? b == other : shares[a].bytes > shares[b].bytes;
    });
    heading("By category, at the allocated peak");
    const Table<Share> table = this->shares("bytes", "category", summary.at_peak.bytes);
    table.head();
    for (const std::size_t i : order) {
        table.row({shares[i].bytes, shares[i].count}, category_name(static_cast<Category>(i)));
    }
    if (summary.doubt != nullptr) {
        paragraph("  ", summary.doubt);
    }
}

void SummaryPage::nn_modules(const DeviceSummary& summary) {
    if (summary.nn_modules.empty()) {
        return;
    }
    constexpr std::size_t most = 5;
    heading("By nn.Module, at the allocated peak", "without those within");
    const Table<Share> table = this->shares("bytes", "nn.Module", summary.at_peak.bytes);
    table.head();
    const std::size_t shown = std::min({most, options_.top, summary.nn_modules.size()});
    Share rest;
    for (std::size_t i = 0; i < summary.nn_modules.size(); ++i) {
        const NnModuleAtPeak& each = summary.nn_modules[i];
        if (i < shown) {
            table.row({each.bytes, each.count},
                      shorten_begin(clean(each.name), table.last_width(), style().ascii));
        } else {
            model::add_to(rest.bytes, each.bytes);
            model::add_to(rest.count, each.count);
        }
    }
    if (shown != summary.nn_modules.size()) {
        table.row(rest, dim("[" + format_plural(summary.nn_modules.size() - shown, "other") + "]"));
    }
}

void SummaryPage::fragmentation(const model::Device& device) {
    const model::Fragmentation& figures = device.fragmentation;
    if (!figures.at_peak && !figures.external && !figures.internal) {
        return;
    }
    heading("Fragmentation of " + clean(model::pool_name(device.allocator)));
    using Row = std::pair<std::string, std::string>;
    Table<Row> table(*this);
    table.left("", 10, &Row::first).right("", 6, &Row::second).last("");
    const auto row = [&](const char* name, const std::optional<double>& ratio,
                         const std::string& meaning, const char* without) {
        char text[16] = "-";
        if (ratio) {
            const bool tiny = *ratio > 0 && *ratio < 0.0005;
            std::snprintf(text, sizeof text, tiny ? "<0.1%%" : "%.1f%%", *ratio * 100);
        }
        table.row({name, text}, ratio ? meaning : dim(without));
    };
    row("cached", figures.at_peak,
        device.is_gpu() ? "of the reserved peak is above the active peak"
                        : "of the reserved peak is above the allocated peak",
        "the pool reserved nothing");
    std::string external = "of the free memory is outside its largest block";
    if (figures.external && width() >= 100) {
        external += " (" + format_bytes(figures.largest_free_bytes) + " of " +
                    format_bytes(figures.total_free_bytes) + ")";
    }
    row("external", figures.external, external, "nothing was free when the pool last grew");
    if (device.is_gpu()) {
        row("internal", figures.internal, "of the allocated peak is rounding",
            "the pool served nothing");
    }
}

void SummaryPage::marks(const model::Device& device) {
    const auto& all = summary_.report->marks;
    struct Row {
        std::size_t number;
        const model::Mark* mark;
        const model::Mark::OnDevice* on;
    };
    std::vector<Row> rows;
    std::uint64_t largest = 0;
    // For marks before the first use of the device.
    static const model::Mark::OnDevice nothing;
    for (std::size_t i = 0; i < all.size(); ++i) {
        Row row{i + 1, &all[i], &nothing};
        for (const model::Mark::OnDevice& on : all[i].devices) {
            if (on.device == device.index) {
                row.on = &on;
                largest = std::max({largest, on.values.allocated, on.values.reserved});
            }
        }
        rows.push_back(row);
    }
    if (rows.empty()) {
        return;
    }
    heading("Marks");
    // One unit for all columns, so that they can be compared at a glance.
    const ByteUnit unit = unit_for(largest);
    // An allocator does not tell what was requested.
    const auto figure = [unit](std::uint64_t model::CurveValues::*which) {
        return [unit, which](const Row& row) { return format_bytes(row.on->values.*which, unit); };
    };
    Table<Row> table(*this);
    table.number("#", 3, &Row::number)
        .duration("time", [](const Row& row) { return row.mark->time_ns; })
        .right("allocated", 13, figure(&model::CurveValues::allocated))
        .right("reserved", 13, figure(&model::CurveValues::reserved));
    if (device.is_gpu()) {
        table.right("requested", 13, figure(&model::CurveValues::requested));
    }
    table.last("name");
    table.head();
    constexpr std::size_t max_rows = 24;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows.size() > max_rows && i == max_rows / 2) {
            const std::size_t skipped = rows.size() - max_rows;
            line(dim("       " + format_plural(skipped, "mark") + " more; --json has all"));
            i += skipped;
        }
        const Row& row = rows[i];
        std::string name = clean(row.mark->name);
        if (row.mark->type == "scope_begin") {
            name += " {";
        } else if (row.mark->type == "scope_end") {
            name.insert(0, "} ");
        }
        table.row(row, shorten_end(name, table.last_width(), style().ascii));
    }
}

void SummaryPage::kernels(const model::Device& device) {
    if (!device.kernels_at_peak) {
        return;
    }
    const model::KernelsAtPeak& moment = *device.kernels_at_peak;
    const std::uint64_t length = moment.to_ns - std::min(moment.from_ns, moment.to_ns);
    heading("What ran at that peak", "within " + format_duration(length));
    if (moment.kernels.empty()) {
        line("  no kernel");
        return;
    }
    using Kernel = model::KernelsAtPeak::Kernel;
    Table<Kernel> table(*this);
    table.duration("busy", &Kernel::busy_ns).count("times", &Kernel::count).last("kernel");
    table.head();
    Kernel rest;
    rest.count = moment.other_count;
    rest.busy_ns = moment.other_ns;
    std::uint64_t rest_names = moment.other_names;
    for (std::size_t i = 0; i < moment.kernels.size(); ++i) {
        const Kernel& kernel = moment.kernels[i];
        if (i >= options_.top) {
            ++rest_names;
            rest.count += kernel.count;
            rest.busy_ns += kernel.busy_ns;
            continue;
        }
        const std::string name =
            kernel.name.empty()
                ? std::string("(no name)")
                : collapse_templates(without_anonymous(demangle(kernel.name.c_str())),
                                     style().ascii);
        table.row(kernel, shorten_end(clean(name), table.last_width(), style().ascii));
    }
    if (rest_names != 0) {
        table.row(rest, dim(format_plural(rest_names, "kernel") + " more"));
    }
}

}  // namespace memlab::report
