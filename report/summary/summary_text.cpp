// The summary for people. What matters first comes first: how it ended, how much, when, who; then
// what is wrong and what to do next. Everything that comes from the recording passes printable().
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "report/summary/place_text.hpp"
#include "report/summary/stack_text.hpp"
#include "report/summary/summary.hpp"
#include "report/summary/waterfall.hpp"
#include "report/symbols/symbolizer.hpp"
#include "report/text/names.hpp"
#include "report/text/plot.hpp"
#include "report/text/text.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

class TextWriter {
  public:
    TextWriter(const Summary& summary, Resolver* resolver, const TextOptions& options)
        : summary_(summary),
          resolver_(resolver),
          options_(options),
          style_(options.style),
          width_(static_cast<std::size_t>(options.style.width)) {}

    std::string full() {
        header();
        if (summary_.devices.empty()) {
            line("");
            line("  No GPU memory was allocated.");
        }
        for (const DeviceSummary& device : summary_.devices) {
            device_sections(device);
        }
        scopes();
        labels();
        steps();
        frameworks();
        ooms();
        coverage();
        warnings(summary_.warnings.size());
        next_steps();
        return std::move(out_);
    }

    std::string brief() {
        title();
        for (const DeviceSummary& device : summary_.devices) {
            const std::string where = summary_.report->devices.size() > 1
                                          ? "  GPU " + std::to_string(device.device->index) + ": "
                                          : "  ";
            const CurveSummary& allocated = device.device->curve(Curve::allocated);
            const CurveSummary& reserved = device.device->curve(Curve::reserved);
            line(where + "peak allocated " + bold(format_bytes(allocated.peak_bytes)) +
                 ", reserved " + bold(format_bytes(reserved.peak_bytes)) + ", still held " +
                 moment_text(*summary_.report) + " " + format_bytes(device.still_allocated.bytes));
            places(device.at_peak, std::min<std::size_t>(options_.top, 3), device.at_peak.bytes,
                   "");
        }
        if (summary_.devices.empty()) {
            line("  no GPU memory was allocated");
        }
        if (!summary_.steps.empty() && summary_.steps.front().steps->verdict == "growing") {
            verdict(summary_.steps.front());
        }
        if (!summary_.ooms.empty()) {
            const OomSummary& oom = summary_.ooms.front();
            line("  " + red("out of memory") + ": " +
                 format_plural(summary_.report->oom_count, "allocation") + " failed, first " +
                 format_bytes(oom.oom->requested_bytes) + " at " + location(oom.place));
        }
        if (summary_.report->coverage.bypassed_count != 0) {
            line("  " + yellow(bypassed_text()));
        }
        for (const FrameworkFinding& finding : summary_.frameworks) {
            if (!finding.command.empty()) {
                line(dim(std::string("  behind ") + finding.cache->name +
                         "'s cache: --replace=" + finding.cache->key + " shows what is in it"));
            }
        }
        warnings(3);
        return std::move(out_);
    }

  private:
    // --- pieces -------------------------------------------------------------------------------

    void line(const std::string& text) {
        out_ += text;
        out_.erase(out_.find_last_not_of(' ') + 1);
        out_ += '\n';
    }

    std::string paint(std::string_view color, const std::string& text) const {
        return text.empty() ? text : std::string(color) + text + std::string(style_.reset());
    }
    std::string bold(const std::string& text) const { return paint(style_.bold(), text); }
    std::string dim(const std::string& text) const { return paint(style_.dim(), text); }
    std::string red(const std::string& text) const { return paint(style_.red(), text); }
    std::string yellow(const std::string& text) const { return paint(style_.yellow(), text); }

    std::string clean(std::string_view text) const { return printable(text, style_.ascii); }

    /// Plain text becomes a list of lines that fit, indented.
    void paragraph(const std::string& first_indent, const std::string& indent,
                   const std::string& text) {
        line(first_indent + wrap(text, width_ - display_width(indent), indent));
    }

    void heading(const std::string& title, const std::string& note = "") {
        line("");
        line(bold(title) + (note.empty() ? "" : dim("  " + note)));
    }

    std::string location(const Place& place) const {
        return clean(location_text(place, options_.working_directory));
    }

    // --- header -------------------------------------------------------------------------------

    void title() {
        const Process& process = summary_.report->process;
        const std::string name = clean(base_name(process.executable));
        const std::string ended = summary_.ended_well ? summary_.ended : red(clean(summary_.ended));
        line(bold(name.empty() ? "?" : name) + " (pid " + std::to_string(process.pid) + ") " +
             ended);
    }

    void header() {
        const Report& report = *summary_.report;
        const Process& process = report.process;
        title();
        std::string command = command_line(process.arguments);
        if (command.empty()) {
            command = process.executable;
        }
        line("  " + shorten_end(clean(command), width_ - 2, style_.ascii));
        std::string place = clean(process.executable) == clean(command)
                                ? ""
                                : clean(process.executable) + separator();
        place += format_wall_time(process.start_wall_ns);
        if (!process.host.empty()) {
            place += separator() + clean(process.host);
        }
        for (const auto& [name, value] : process.ranks) {
            place += separator() + clean(name) + "=" + clean(value);
        }
        line(dim("  " + shorten_end(place, width_ - 2, style_.ascii)));
    }

    std::string separator() const { return style_.ascii ? ", " : " · "; }

    // --- one device ---------------------------------------------------------------------------

    void device_sections(const DeviceSummary& summary) {
        const Device& device = *summary.device;
        std::string name = "GPU " + std::to_string(device.index) + ": " + clean(device.name);
        std::string note = format_bytes(device.total_bytes);
        if (device.limit_bytes) {
            note = format_bytes(*device.limit_bytes) + " of " + note + " by MEMLAB_LIMIT";
        }
        if (device.driver_version != 0) {
            note += separator() + "CUDA " + std::to_string(device.driver_version / 1000) + "." +
                    std::to_string(device.driver_version % 1000 / 10) + " driver";
        }
        heading(name, note);
        curve_table(device);
        plot(device);
        marks(device);
        waterfall(device);
        fragmentation(device);
        const Holders& peak = device.at_peak;
        holders("Who holds it at the allocated peak", summary.at_peak, options_.top,
                format_plural(peak.count, "allocation") + ", at " + format_duration(peak.time_ns));
        kernels(device);
        const HoldersSummary& live = summary.still_allocated;
        if (live.count != 0) {
            holders("Still allocated " + moment_text(*summary_.report), live, options_.top,
                    format_plural(live.count, "allocation"));
            if (live.bytes > summary.live.bytes) {
                line(dim("  " + format_bytes(live.bytes - summary.live.bytes) +
                         " of it not in the curves: see Kinds of memory"));
            }
        } else {
            heading("Still allocated " + moment_text(*summary_.report));
            line("  nothing");
        }
        kinds(device);
        stacks(summary);
    }

    void curve_table(const Device& device) {
        struct Row {
            Curve curve;
            const char* name;
            const char* meaning;
        };
        static constexpr std::array<Row, curve_count> rows = {{
            {Curve::allocated, "allocated", "what the program holds"},
            {Curve::reserved, "reserved", "taken from the driver"},
            {Curve::requested, "requested", "before rounding"},
            {Curve::active, "active", "allocated + frees pending"},
            {Curve::device_used, "device used", "the whole GPU, sampled"},
        }};
        line(dim("  " + left("", 12) + right("peak", 12) + right("at", 12) +
                 right(moment_column(*summary_.report), 14)));
        for (const Row& row : rows) {
            const auto& curve = device.curves.at(static_cast<std::size_t>(row.curve));
            if (!curve) {
                continue;
            }
            const bool important = row.curve == Curve::allocated || row.curve == Curve::reserved;
            const std::string peak = right(format_bytes(curve->peak_bytes), 12);
            line("  " + left(row.name, 12) + (important ? bold(peak) : peak) +
                 right(format_duration(curve->peak_time_ns), 12) +
                 right(format_bytes(curve->at_end_bytes), 14) +
                 (width_ >= 78 ? "  " + dim(row.meaning) : ""));
        }
    }

    void plot(const Device& device) {
        std::vector<PlotPoint> points;
        const auto values = [](const TimelineRow& row, Curve curve) {
            return row.curves.at(static_cast<std::size_t>(curve)).value_or(TimelineRow::Values{});
        };
        for (const TimelineRow& row : device.timeline.rows) {
            const auto allocated = values(row, Curve::allocated);
            const auto reserved = values(row, Curve::reserved);
            points.push_back({row.begin_ns, allocated.max, reserved.max});
            // After its bucket the last value holds until the next row.
            std::uint64_t end = 0;
            if (!__builtin_add_overflow(row.begin_ns, device.timeline.bucket_ns, &end)) {
                points.push_back({end, allocated.last, reserved.last});
            }
        }
        std::vector<PlotNote> notes;
        std::size_t number = 0;
        for (const Mark& mark : summary_.report->marks) {
            ++number;
            notes.push_back({mark.time_ns, number <= 9 ? static_cast<char>('0' + number) : '+'});
        }
        for (const Oom& oom : summary_.report->ooms) {
            if (oom.device == device.index) {
                notes.push_back({oom.time_ns, 'X'});
            }
        }
        PlotOptions options;
        options.width = style_.width - 2;
        options.height = 8;
        options.ascii = style_.ascii;
        options.allocated_color = style_.cyan();
        options.reserved_color = style_.dim();
        options.reset = style_.reset();
        const auto lines =
            plot_timeline(points, summary_.report->process.duration_ns, notes, options);
        if (lines.empty()) {
            return;
        }
        line("");
        const std::string solid = style_.ascii ? "#" : "█";
        const std::string shade = style_.ascii ? "." : "░";
        std::string legend = "  " + paint(style_.cyan(), solid) + " allocated   " + dim(shade) +
                             " reserved, not allocated";
        if (!summary_.report->marks.empty()) {
            legend += "   1 2 .. marks";
        }
        if (!summary_.report->ooms.empty()) {
            legend += "   X out of memory";
        }
        line(legend);
        for (const std::string& row : lines) {
            line("  " + row);
        }
    }

    /// From what the GPU shows down to what was asked for: each level is the one above it less what
    /// stands between them. Levels with nothing between them share a line.
    void waterfall(const Device& device) {
        const std::optional<Waterfall> fall = waterfall_of(*summary_.report, device);
        if (!fall) {
            return;
        }
        struct Level {
            std::uint64_t bytes;
            const char* name;
            std::string less;  ///< what stands between it and the level above
        };
        std::vector<Level> levels;
        if (fall->device_used) {
            levels.push_back({*fall->device_used, "device used, as sampled", ""});
        }
        levels.push_back(
            {fall->reserved, "reserved", "contexts, modules, other processes: what remains"});
        levels.push_back({fall->active, "active", "cached for reuse"});
        levels.push_back({fall->allocated, "allocated", "freed, while the GPU may still use it"});
        levels.push_back({fall->requested, "requested", "rounding"});
        heading("Where it went at the allocated peak",
                "each the most within " + format_duration(fall->within_ns));
        for (std::size_t i = 0; i < levels.size();) {
            if (i != 0) {
                line("  - " + right(format_bytes(levels[i - 1].bytes - levels[i].bytes), 12) +
                     "    " + dim(levels[i].less));
            }
            std::string names = levels[i].name;
            const std::uint64_t bytes = levels[i].bytes;
            while (++i < levels.size() && levels[i].bytes == bytes) {
                names += std::string(", ") + levels[i].name;
            }
            line("    " + right(format_bytes(bytes), 12) + "  " + names);
        }
        std::string outside;
        for (const auto& [kind, bytes] : fall->outside_pool) {
            outside += (outside.empty() ? "" : ", ") + clean(kind) + " " + format_bytes(bytes);
        }
        if (!outside.empty()) {
            paragraph("    ", "    ", "Allocated outside the pool: " + outside + ".");
        }
    }

    void fragmentation(const Device& device) {
        const Fragmentation& figures = device.fragmentation;
        if (!figures.at_peak && !figures.external && !figures.internal) {
            return;
        }
        heading("Fragmentation of memlab's pool");
        const auto row = [&](const std::optional<double>& ratio, const std::string& meaning,
                             const char* without) {
            char text[16] = "-";
            if (ratio) {
                const bool tiny = *ratio > 0 && *ratio < 0.0005;
                std::snprintf(text, sizeof text, tiny ? "<0.1%%" : "%.1f%%", *ratio * 100);
            }
            line("  " + right(text, 6) + "  " + (ratio ? meaning : dim(without)));
        };
        row(figures.at_peak, "of the reserved peak lies above the active peak: cached",
            "cached: the pool reserved nothing");
        std::string pieces = "of the free memory lies outside its largest block: in pieces";
        if (figures.external && width_ >= 100) {
            pieces += " (" + format_bytes(figures.largest_free_bytes) + " of " +
                      format_bytes(figures.total_free_bytes) + ")";
        }
        row(figures.external, pieces, "in pieces: nothing was free when the pool last grew");
        row(figures.internal, "of the allocated peak was not asked for: rounding",
            "rounding: the pool served nothing");
    }

    // --- tables of places ---------------------------------------------------------------------

    void holders(const std::string& title, const HoldersSummary& summary, std::size_t top,
                 const std::string& note) {
        heading(title + ": " + format_bytes(summary.bytes), note);
        if (summary.places.empty()) {
            return;
        }
        line(dim("  " + right("bytes", 12) + right("share", 8) + right("count", 8) + "  where"));
        places(summary, top, summary.bytes, "");
    }

    void places(const HoldersSummary& summary, std::size_t top, std::uint64_t whole,
                const std::string& indent) {
        std::size_t shown = 0;
        std::uint64_t rest_bytes = summary.unnamed_bytes;
        std::uint64_t rest_count = summary.unnamed_count;
        for (const PlaceShare& share : summary.places) {
            if (shown++ < top) {
                place_row(share.bytes, share.count, whole, describe(share, indent), indent);
                if (const std::string names = labels_text(share.labels, share.bytes);
                    !names.empty()) {
                    const std::size_t column = indent.size() + 32;
                    line(std::string(column, ' ') +
                         dim(shorten_end(clean(names), room_beside(column), style_.ascii)));
                }
            } else {
                rest_bytes += share.bytes;
                rest_count += share.count;
            }
        }
        if (rest_count != 0) {
            const std::size_t named = summary.places.size() > top ? summary.places.size() - top : 0;
            const std::string text =
                named != 0 ? format_plural(named, "place") + " more" : "other places";
            place_row(rest_bytes, rest_count, whole, dim(text), indent);
        }
    }

    void place_row(std::uint64_t bytes, std::uint64_t count, std::uint64_t whole,
                   const std::string& text, const std::string& indent) {
        line(indent + "  " + right(format_bytes(bytes), 12) +
             right(format_percent(bytes, whole), 8) + right(format_count(count), 8) + "  " + text);
    }

    std::string describe(const PlaceShare& share, const std::string& indent) const {
        return describe_place(share.place, share.kind, share.api, room_beside(indent.size() + 32),
                              {style_, options_.working_directory});
    }

    /// The columns that are left beside `used` ones; 20 at least.
    std::size_t room_beside(std::size_t used) const { return width_ - std::min(width_ - 20, used); }

    // --- marks, kinds, stacks -----------------------------------------------------------------

    void marks(const Device& device) {
        const auto& all = summary_.report->marks;
        struct Row {
            std::size_t number;
            const Mark* mark;
            const Mark::OnDevice* on;
        };
        std::vector<Row> rows;
        std::uint64_t largest = 0;
        // A mark from before the device's first use: it held nothing then.
        static const Mark::OnDevice nothing;
        for (std::size_t i = 0; i < all.size(); ++i) {
            Row row{i + 1, &all[i], &nothing};
            for (const Mark::OnDevice& on : all[i].devices) {
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
        // One unit for the column: the program's own story, told as PyTorch's memory_allocated()
        // and memory_reserved() would tell it.
        const ByteUnit unit = unit_for(largest);
        const std::size_t name_width = std::max<std::size_t>(width_ - 4 - 2 - 12 - 3 * 13, 10);
        line(dim("  " + right("#", 3) + right("time", 12) + right("allocated", 13) +
                 right("reserved", 13) + right("requested", 13) + "  name"));
        constexpr std::size_t most = 24;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (rows.size() > most && i == most / 2) {
                const std::size_t skipped = rows.size() - most;
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
            line("  " + right(std::to_string(row.number), 3) +
                 right(format_duration(row.mark->time_ns), 12) +
                 right(format_bytes(row.on->values.allocated, unit), 13) +
                 right(format_bytes(row.on->values.reserved, unit), 13) +
                 right(format_bytes(row.on->values.requested, unit), 13) + "  " +
                 shorten_end(name, name_width, style_.ascii));
        }
    }

    void kernels(const Device& device) {
        if (!device.kernels_at_peak) {
            return;
        }
        const KernelsAtPeak& moment = *device.kernels_at_peak;
        const std::uint64_t length = moment.to_ns - std::min(moment.from_ns, moment.to_ns);
        heading("What ran at that peak", "within " + format_duration(length));
        if (moment.kernels.empty()) {
            line("  no kernel");
            return;
        }
        line(dim("  " + right("busy", 12) + right("times", 8) + "  kernel"));
        std::uint64_t rest_count = moment.other_count;
        std::uint64_t rest_ns = moment.other_ns;
        std::uint64_t rest_names = moment.other_names;
        for (std::size_t i = 0; i < moment.kernels.size(); ++i) {
            const KernelsAtPeak::Kernel& kernel = moment.kernels[i];
            if (i >= options_.top) {
                ++rest_names;
                rest_count += kernel.count;
                rest_ns += kernel.busy_ns;
                continue;
            }
            const std::string name =
                kernel.name.empty()
                    ? std::string("(no name)")
                    : collapse_templates(without_anonymous(demangle(kernel.name.c_str())),
                                         style_.ascii);
            line("  " + right(format_duration(kernel.busy_ns), 12) +
                 right(format_count(kernel.count), 8) + "  " +
                 shorten_end(clean(name), width_ - std::min<std::size_t>(width_ - 20, 24),
                             style_.ascii));
        }
        if (rest_names != 0) {
            line("  " + right(format_duration(rest_ns), 12) + right(format_count(rest_count), 8) +
                 "  " + dim(format_plural(rest_names, "kernel") + " more"));
        }
    }

    void kinds(const Device& device) {
        const bool only_device =
            device.kinds.empty() || (device.kinds.size() == 1 && device.kinds.count("device") != 0);
        if (only_device) {
            return;
        }
        heading("Kinds of memory");
        line(dim("  " + left("", 11) + right("count", 10) + right("bytes in all", 14) +
                 right("peak", 12) + right(moment_column(*summary_.report), 12)));
        for (const auto& [kind, totals] : device.kinds) {
            const bool outside = !is_in_curves(kind);
            const char* note = kind == "managed"      ? "not in the curves: it migrates"
                               : kind == "pinned"     ? "host memory, not in the curves"
                               : kind == "ipc_import" ? "another process holds it"
                                                      : "";
            line("  " + left(clean(kind), 11) + right(format_count(totals.count), 10) +
                 right(format_bytes(totals.bytes), 14) +
                 right(format_bytes(totals.peak_bytes), 12) +
                 right(format_bytes(totals.live_bytes), 12) +
                 (outside && width_ >= 92 ? "  " + dim(note)
                  : outside               ? dim("  *")
                                          : ""));
        }
        if (width_ < 92 && (device.kinds.count("managed") + device.kinds.count("pinned") +
                            device.kinds.count("ipc_import")) != 0) {
            line(dim("  * not in the curves: it is on the host, migrates, or is held elsewhere"));
        }
    }

    void stacks(const DeviceSummary& summary) {
        if (options_.stacks == 0 || resolver_ == nullptr) {
            return;
        }
        std::set<std::size_t> done;
        stack_list("at the peak", summary.at_peak, done);
        stack_list("still allocated", summary.still_allocated, done);
    }

    void stack_list(const char* when, const HoldersSummary& holders, std::set<std::size_t>& done) {
        std::size_t shown = 0;
        for (const PlaceShare& share : holders.places) {
            if (shown++ == options_.stacks) {
                return;
            }
            for (const std::size_t stack : share.stacks) {
                if (!done.insert(stack).second) {
                    continue;
                }
                heading("Stack of " + format_bytes(share.bytes) + " " + when,
                        format_plural(share.count, "allocation") + ", " + clean(share.api) +
                            (share.stacks.size() > 1
                                 ? ", one of " + std::to_string(share.stacks.size()) + " ways here"
                                 : ""));
                one_stack(stack);
                break;
            }
        }
    }

    void one_stack(std::size_t stack) {
        for (const std::string& text :
             stack_lines(*summary_.report, *resolver_, stack, style_, options_.working_directory)) {
            line(text);
        }
    }

    // --- what memlab did not see --------------------------------------------------------------

    std::string bypassed_text() const {
        const Coverage& coverage = summary_.report->coverage;
        return format_plural(coverage.bypassed_count, "allocation") + " of " +
               format_bytes(coverage.bypassed_bytes) + " bypassed memlab";
    }

    void coverage() {
        const Coverage& coverage = summary_.report->coverage;
        if (!coverage.audited && coverage.bypassed_count == 0) {
            return;
        }
        heading("Audit", clean(coverage.cupti));
        const std::string seen = format_plural(coverage.driver_count, "allocation") +
                                 " of the driver, " + format_bytes(coverage.driver_bytes);
        if (coverage.bypassed_count == 0) {
            line("  " + seen + ": memlab made or recorded each of them");
            return;
        }
        line("  " + seen + ": " + yellow(bypassed_text()));
        std::size_t shown = 0;
        for (const BypassSummary& bypass : summary_.bypasses) {
            if (shown++ == options_.top) {
                line(dim("  " + format_plural(summary_.bypasses.size() - options_.top, "place") +
                         " more"));
                break;
            }
            const Coverage::Bypassed& what = *bypass.bypassed;
            std::string text =
                what.api.empty() ? std::string("(unknown function)") : clean(what.api);
            text += what.kind == "device" ? "" : "  [" + clean(what.kind) + "]";
            text += bypass.place.recorded ? "  " + location(bypass.place) : "";
            line("  " + right(format_bytes(what.bytes), 12) + right(format_count(what.count), 8) +
                 "  " + text);
        }
    }

    // --- scopes, names, steps ------------------------------------------------------------------

    void scopes() {
        const auto& all = summary_.report->scopes;
        if (all.empty()) {
            return;
        }
        std::vector<std::size_t> order(all.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return all[a].peak_growth_bytes > all[b].peak_growth_bytes;
        });
        heading("Scopes", "by what one entry adds at its peak");
        const std::size_t name_width = std::max<std::size_t>(width_ - 2 - 4 * 12 - 10 - 2, 12);
        line(dim("  " + right("adds", 12) + right("peak", 12) + right("allocated", 12) +
                 right("escaped", 12) + right("entries", 10) + "  scope"));
        for (std::size_t i = 0; i < order.size() && i < options_.top; ++i) {
            const Scope& scope = all[order[i]];
            const std::string name = (scope.kind == "range" ? "[range] " : "") +
                                     clean(scope_path(*summary_.report, order[i]));
            line("  " + right(format_bytes(scope.peak_growth_bytes), 12) +
                 right(format_bytes(scope.peak_bytes), 12) +
                 right(format_bytes(scope.allocated_bytes), 12) +
                 right(format_bytes(scope.escaped.bytes), 12) +
                 right(format_count(scope.entries), 10) + "  " +
                 shorten_begin(name, name_width, style_.ascii));
        }
        if (order.size() > options_.top) {
            line(dim("  " + format_plural(order.size() - options_.top, "scope") +
                     " more; --json has all"));
        }
    }

    void labels() {
        std::vector<const Label*> order;
        for (const Label& label : summary_.report->labels) {
            order.push_back(&label);
        }
        if (order.empty()) {
            return;
        }
        std::stable_sort(order.begin(), order.end(), [](const Label* a, const Label* b) {
            return a->peak_bytes > b->peak_bytes;
        });
        heading("Named memory");
        line(dim("  " + right("peak", 12) + right(moment_column(*summary_.report), 12) +
                 right("count", 8) + "  name"));
        for (std::size_t i = 0; i < order.size() && i < options_.top; ++i) {
            line("  " + right(format_bytes(order[i]->peak_bytes), 12) +
                 right(format_bytes(order[i]->live_bytes), 12) +
                 right(format_count(order[i]->live_count), 8) + "  " +
                 shorten_end(clean(order[i]->name), width_ - 36, style_.ascii));
        }
        if (order.size() > options_.top) {
            line(dim("  " + format_plural(order.size() - options_.top, "name") +
                     " more; --json has all"));
        }
    }

    void steps() {
        if (summary_.steps.empty()) {
            return;
        }
        heading("Steps");
        constexpr std::size_t most = 4;
        for (std::size_t i = 0; i < summary_.steps.size() && i < most; ++i) {
            verdict(summary_.steps[i]);
        }
        if (summary_.steps.size() > most) {
            line(dim("  " + format_plural(summary_.steps.size() - most, "kind") +
                     " of steps more; --json has all"));
        }
    }

    /// What became of memory from step to step, and the places that grow.
    void verdict(const StepsSummary& summary) {
        const Steps& steps = *summary.steps;
        const std::string what = format_plural(steps.steps, "step") + " by " + clean(steps.kind) +
                                 " \"" + clean(steps.name) + "\": ";
        const std::string between = "between " + format_bytes(steps.trend.min_bytes) + " and " +
                                    format_bytes(steps.trend.max_bytes) + " after each";
        if (steps.verdict != "growing") {
            paragraph("  ", "    ",
                      what + (steps.verdict == "sawtooth"
                                  ? "a sawtooth " + between + ": it grows and is given back"
                                  : clean(steps.verdict) + ", " + between));
            return;
        }
        line("  " + what + red("growing"));
        if (summary.growing.empty()) {
            line("    by " + rate(steps.trend.bytes_per_step) + " in all");
        }
        for (std::size_t i = 0; i < summary.growing.size() && i < options_.top; ++i) {
            const StepsSummary::Growing& growing = summary.growing[i];
            const std::string function = clean(without_anonymous(growing.place.function));
            line("  " + right(rate(growing.bytes_per_step), 18) + "  " + location(growing.place) +
                 (function.empty() ? "" : "  " + function));
        }
    }

    static std::string rate(double bytes_per_step) {
        const double positive = std::max(bytes_per_step, 0.0);
        constexpr double most = 9e18;
        return format_bytes(static_cast<std::uint64_t>(std::llround(std::min(positive, most)))) +
               "/step";
    }

    // --- the end ------------------------------------------------------------------------------

    void frameworks() {
        if (summary_.frameworks.empty()) {
            return;
        }
        heading("Frameworks");
        for (const FrameworkFinding& finding : summary_.frameworks) {
            paragraph("  ", "  ", clean(finding.text));
            if (!finding.command.empty()) {
                line("    " + bold(clean(finding.command)));
            }
        }
    }

    void ooms() {
        if (summary_.ooms.empty()) {
            return;
        }
        line("");
        line(paint(style_.red(), "Out of memory") + ": " +
             format_plural(summary_.report->oom_count, "allocation") + " failed");
        constexpr std::size_t most = 3;
        for (std::size_t i = 0; i < summary_.ooms.size() && i < most; ++i) {
            const OomSummary& oom = summary_.ooms[i];
            const std::string function = clean(without_anonymous(oom.place.function));
            paragraph("  ", "  ",
                      format_duration(oom.oom->time_ns) + ": " + clean(oom.oom->api) + " of " +
                          format_bytes(oom.oom->requested_bytes) + " on GPU " +
                          std::to_string(oom.oom->device) + " at " + location(oom.place) +
                          (function.empty() ? "" : " (" + function + ")") + " failed with error " +
                          std::to_string(oom.oom->error) + ".");
            for (const std::string& sentence : oom.oom->explanation) {
                paragraph("    ", "      ", clean(sentence));
            }
            if (!oom.holders.places.empty()) {
                line("    Held at that moment:");
                places(oom.holders, 5, oom.holders.bytes, "  ");
            }
        }
        if (summary_.report->oom_count > most) {
            line(dim("  " + format_plural(summary_.report->oom_count - most, "failure") +
                     " more; --json has the first " +
                     std::to_string(summary_.report->ooms.size())));
        }
    }

    void warnings(std::size_t most) {
        if (summary_.warnings.empty()) {
            return;
        }
        if (most == summary_.warnings.size()) {
            line("");
        }
        const std::string sign = style_.ascii ? "! " : "⚠ ";
        for (std::size_t i = 0; i < std::min(most, summary_.warnings.size()); ++i) {
            paragraph("  " + yellow(sign), "    ", clean(summary_.warnings[i]));
        }
        if (summary_.warnings.size() > most) {
            line(dim("    " + format_plural(summary_.warnings.size() - most, "warning") +
                     " more in the report"));
        }
    }

    void next_steps() {
        const std::string file = shell_word(summary_.file);
        std::vector<std::pair<std::string, std::string>> steps;
        bool any_place = false;
        bool any_live = false;
        bool any_function = false;
        bool any_line = false;
        for (const DeviceSummary& device : summary_.devices) {
            any_live |= device.still_allocated.count != 0;
            for (const PlaceShare& share : device.at_peak.places) {
                any_place |= share.place.recorded;
                any_function |= !share.place.function.empty();
                any_line |= !share.place.file.empty();
            }
        }
        if (any_place && options_.stacks == 0) {
            steps.emplace_back("memlab-report --stacks 3 " + file, "whole call stacks");
        }
        if (any_place) {
            steps.emplace_back("memlab-report tree " + file, "by which calls");
        }
        if (any_live) {
            steps.emplace_back("memlab-report leaks " + file, "memory that was never freed");
        }
        steps.emplace_back("memlab-report --json " + file, "for scripts");
        line("");
        line(bold("Next"));
        std::size_t widest = 0;
        for (const auto& [command, meaning] : steps) {
            widest = std::max(widest, display_width(command));
        }
        for (const auto& [command, meaning] : steps) {
            line("  " + left(clean(command), widest) + dim("   " + meaning));
        }
        if (any_function && !any_line) {
            paragraph(
                "  ", "  ",
                "No source lines are known: build the program with -g (nvcc: -g, or -Xcompiler "
                "-g) to see them.");
        }
    }

    const Summary& summary_;
    Resolver* resolver_;
    const TextOptions& options_;
    const Style& style_;
    std::size_t width_;
    std::string out_;
};

}  // namespace

std::string render_text(const Summary& summary, Resolver& resolver, const TextOptions& options) {
    return TextWriter(summary, &resolver, options).full();
}

std::string render_short(const Summary& summary, const TextOptions& options) {
    return TextWriter(summary, nullptr, options).brief();
}

}  // namespace memlab::report
