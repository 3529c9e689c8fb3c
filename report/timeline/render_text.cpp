// Text output of a timeline.
#include <algorithm>
#include <array>
#include <utility>

#include "model/bounded_sum.hpp"
#include "report/device_label.hpp"
#include "report/summary/place_text.hpp"
#include "report/text/names.hpp"
#include "report/text/page.hpp"
#include "report/text/plot.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"
#include "report/timeline/render.hpp"

namespace memlab::report {

namespace {

constexpr std::size_t max_lanes = 6;

/// The values of a curve in a row; 0 if unknown.
model::TimelineRow::Values row_values(const model::TimelineRow& row, model::Curve curve) {
    return row.curves.at(static_cast<std::size_t>(curve)).value_or(model::TimelineRow::Values{});
}

class TimelineText {
  public:
    TimelineText(const model::Report& report, const TimelineView& view, const MomentView* moment,
                 const ViewOptions& options)
        : report_(report), view_(view), moment_(moment), options_(options), page_(options.style) {}

    std::string render() {
        title();
        const bool any_categories =
            std::any_of(view_.devices.begin(), view_.devices.end(),
                        [](const DeviceTimeline& device) { return device.categories.has_value(); });
        for (const DeviceTimeline& device : view_.devices) {
            if (any_categories && !device.categories) {
                continue;  // the GPU below PyTorch's cache
            }
            page_.heading(device_title(*device.device, page_.style().ascii));
            if (device.categories) {
                picture_by_category(device);
                figures_by_category(*device.categories);
                continue;
            }
            if (!is_outside_curves_only(*device.device)) {
                picture(device);
                figures(device);
            } else {
                page_.line("  no device memory was allocated");
            }
            for (const KindTimeline& kind : device.kinds) {
                if (is_worth_telling(*device.device, kind.figures.highest)) {
                    picture(device, kind);
                }
            }
            if (view_.by_category) {
                page_.paragraph("  ", no_categories);
            }
        }
        if (view_.devices.empty()) {
            page_.line("No GPU memory was allocated.");
        }
        notes();
        if (moment_ != nullptr) {
            for (const SiteTable& table : moment_->tables) {
                live(table);
            }
        }
        return page_.take();
    }

  private:
    void title() {
        const std::string name = page_.clean(base_name(report_.process.executable));
        std::string text = page_.bold(name.empty() ? "?" : name) + " (pid " +
                           std::to_string(report_.process.pid) + ")  ";
        text += view_.from_ns == 0 ? "0 s" : format_duration(view_.from_ns);
        text += " to " + format_duration(view_.to_ns);
        if (view_.from_ns != 0) {
            text += " (" + format_duration(view_.to_ns - view_.from_ns) + ")";
        }
        page_.line(text);
        std::uint64_t bucket = 0;
        for (const DeviceTimeline& device : view_.devices) {
            bucket = std::max(bucket, device.bucket_ns);
        }
        if (bucket != 0) {
            page_.line(page_.dim("from the " +
                                 std::string(view_.from_log ? "event log" : "report") +
                                 ", in steps of " + format_duration(bucket)));
        }
    }

    /// Bars that do not overlap share a row; nested scopes are below the enclosing one.
    std::vector<PlotSpan> spans(std::size_t* not_drawn) const {
        std::vector<PlotSpan> drawn;
        std::vector<std::uint64_t> ends;  // of each lane
        std::vector<const TimelineScope*> order;
        for (const TimelineScope& scope : view_.scopes) {
            order.push_back(&scope);
        }
        std::stable_sort(order.begin(), order.end(),
                         [](const TimelineScope* a, const TimelineScope* b) {
                             return a->begin_ns != b->begin_ns ? a->begin_ns < b->begin_ns
                                                               : a->end_ns > b->end_ns;
                         });
        for (const TimelineScope* scope : order) {
            std::size_t lane = 0;
            while (lane < ends.size() && ends[lane] > scope->begin_ns) {
                ++lane;
            }
            if (lane == max_lanes) {
                ++*not_drawn;
                continue;
            }
            if (lane == ends.size()) {
                ends.push_back(0);
            }
            ends[lane] = scope->end_ns;
            drawn.push_back({scope->begin_ns, scope->end_ns, page_.clean(scope->name), lane});
        }
        return drawn;
    }

    std::vector<PlotPoint> points(const DeviceTimeline& device, bool with_device_used) const {
        std::vector<PlotPoint> result;
        std::uint64_t device_used = 0;  // constant between samples
        for (std::size_t i = 0; i < device.rows.size(); ++i) {
            const model::TimelineRow& row = device.rows[i];
            const auto allocated = row_values(row, model::Curve::allocated);
            const auto active = row_values(row, model::Curve::active);
            const auto reserved = row_values(row, model::Curve::reserved);
            if (with_device_used) {
                device_used = std::max(device_used, row_values(row, model::Curve::device_used).max);
            }
            result.push_back({row.begin_ns, allocated.max, reserved.max, active.max, device_used});
            if (with_device_used) {
                device_used = row_values(row, model::Curve::device_used).last;
            }
            std::uint64_t end = 0;
            if (!__builtin_add_overflow(row.begin_ns, device.bucket_ns, &end) &&
                end <= view_.to_ns &&
                (i + 1 == device.rows.size() || end <= device.rows[i + 1].begin_ns)) {
                result.push_back({end, allocated.last, reserved.last, active.last, device_used});
            }
        }
        return result;
    }

    /// Marks, and failures on this device.
    std::vector<PlotNote> plot_notes(const DeviceTimeline& device) const {
        std::vector<PlotNote> notes;
        std::size_t number = 0;
        for (const TimelineMark& mark : view_.marks) {
            ++number;
            notes.push_back({mark.time_ns, number <= 9 ? static_cast<char>('0' + number) : '^'});
        }
        for (const TimelineOom& oom : view_.ooms) {
            if (oom.device == device.device->index) {
                notes.push_back({oom.time_ns, 'X'});
            }
        }
        return notes;
    }

    PlotOptions plot_options() const {
        const Style& style = page_.style();
        PlotOptions plot;
        plot.width = style.width - 2;
        plot.height = 12;
        plot.ascii = style.ascii;
        plot.from_ns = view_.from_ns;
        plot.allocated_color = style.cyan();
        plot.reserved_color = style.dim();
        plot.reset = style.reset();
        return plot;
    }

    void draw(std::vector<std::string> legend, const std::vector<PlotNote>& plotted,
              const std::vector<std::string>& lines, std::size_t not_drawn) {
        if (lines.empty()) {
            page_.line("  nothing was allocated in this time");
            return;
        }
        if (!view_.marks.empty()) {
            legend.emplace_back("1 2 ^ marks");
        }
        if (std::any_of(plotted.begin(), plotted.end(),
                        [](const PlotNote& note) { return note.symbol == 'X'; })) {
            legend.emplace_back("X out of memory");
        }
        std::string line = " ";
        for (const std::string& each : legend) {
            if (display_width(line) + 3 + display_width(each) > page_.width()) {
                page_.line(line);
                line = " ";
            }
            line += (line == " " ? " " : "   ") + each;
        }
        page_.line(line);
        for (const std::string& row : lines) {
            page_.line("  " + row);
        }
        if (not_drawn != 0) {
            page_.line(
                page_.dim("  " + format_plural(not_drawn, "scope") + " within these not drawn"));
        }
    }

    /// By Category. The letters tell the areas apart without colour.
    std::array<PlotLayer, category_count> layers() const {
        const Style& style = page_.style();
        return {{{"P", style.cyan()},
                 {"G", style.yellow()},
                 {"O", style.magenta()},
                 {"A", style.green()},
                 {"I", style.blue()},
                 {"W", style.dim()},
                 {"C", style.dim()},
                 {style.ascii ? "." : "·", style.dim()}}};
    }

    void picture_by_category(const DeviceTimeline& device) {
        const CategoryTimeline& timeline = *device.categories;
        std::vector<PlotStack> points;
        for (std::size_t i = 0; i < timeline.rows.size(); ++i) {
            const CategoryRow& row = timeline.rows[i];
            points.push_back({row.begin_ns, {row.bytes.begin(), row.bytes.end()}});
            const std::uint64_t end = model::saturating_add(row.begin_ns, timeline.bucket_ns);
            if (end <= view_.to_ns &&
                (i + 1 == timeline.rows.size() || end <= timeline.rows[i + 1].begin_ns)) {
                points.push_back({end, {row.last.begin(), row.last.end()}});
            }
        }
        const auto all = layers();
        std::vector<std::string> legend;
        for (std::size_t i = 0; i < category_count; ++i) {
            if (timeline.figures.at(i).highest != 0) {
                legend.push_back(std::string(all.at(i).color) + std::string(all.at(i).glyph) +
                                 std::string(page_.style().reset()) + " " +
                                 category_name(static_cast<Category>(i)));
            }
        }
        const std::vector<PlotNote> notes = plot_notes(device);
        std::size_t not_drawn = 0;
        const auto lines = plot_stacks(points, {all.begin(), all.end()}, view_.to_ns, notes,
                                       plot_options(), spans(&not_drawn));
        draw(std::move(legend), notes, lines, not_drawn);
    }

    void figures_by_category(const CategoryTimeline& timeline) {
        page_.line("");
        struct Row {
            const char* name;
            const CategoryTimeline::Figures& figures;
            std::uint64_t at_peak;
        };
        Table<Row> table(page_);
        table.left("", 16, &Row::name)
            .bytes("at start", [](const Row& row) { return row.figures.at_begin; })
            .bytes("at peak", &Row::at_peak)
            .bold()
            .bytes("highest", [](const Row& row) { return row.figures.highest; })
            .duration("at", [](const Row& row) { return row.figures.highest_ns; })
            .bytes("at end", [](const Row& row) { return row.figures.at_end; });
        table.head();
        CategoryTimeline::Figures all{.at_begin = 0,
                                      .highest = sum(timeline.at_highest),
                                      .highest_ns = timeline.highest_ns,
                                      .at_end = 0};
        for (std::size_t i = 0; i < category_count; ++i) {
            const CategoryTimeline::Figures& figures = timeline.figures.at(i);
            all.at_begin += figures.at_begin;
            all.at_end += figures.at_end;
            if (figures.highest != 0) {
                table.row(
                    {category_name(static_cast<Category>(i)), figures, timeline.at_highest.at(i)});
            }
        }
        table.row({"[allocated]", all, all.highest});
        if (timeline.doubt != nullptr) {
            page_.paragraph("  ", timeline.doubt);
        }
    }

    void picture(const DeviceTimeline& device) {
        const Style& style = page_.style();
        // If the use of the whole GPU is far above the program's, it is only in the table.
        const auto& reserved = device.curves.at(static_cast<std::size_t>(model::Curve::reserved));
        const auto& used = device.curves.at(static_cast<std::size_t>(model::Curve::device_used));
        const bool with_device_used = reserved && used && used->highest / 4 <= reserved->highest;
        const std::vector<PlotNote> notes = plot_notes(device);
        const std::vector<PlotPoint> drawn = points(device, with_device_used);
        std::size_t not_drawn = 0;
        const auto lines =
            plot_timeline(drawn, view_.to_ns, notes, plot_options(), spans(&not_drawn));
        const bool with_active =
            std::any_of(drawn.begin(), drawn.end(),
                        [](const PlotPoint& point) { return point.active > point.allocated; });
        const auto sign = [&](const char* unicode, const char* ascii) {
            return std::string(style.ascii ? ascii : unicode);
        };
        std::vector<std::string> legend = {std::string(style.cyan()) + sign("█", "#") +
                                           std::string(style.reset()) + " allocated"};
        if (with_active) {
            legend.push_back(page_.dim(sign("▒", ":")) + " freed, in use");
        }
        legend.push_back(page_.dim(sign("░", ".")) + " reserved");
        if (with_device_used) {
            legend.push_back(page_.dim(sign("┄", "~")) + " whole GPU");
        }
        draw(std::move(legend), notes, lines, not_drawn);
    }

    /// Of memory that the device's curves do not include.
    void picture(const DeviceTimeline& device, const KindTimeline& kind) {
        page_.heading(page_.clean(kind_label(*device.device, kind.kind)));
        std::vector<PlotPoint> points;
        for (const model::KindCurve::Row& row : kind.rows) {
            points.push_back({row.begin_ns, row.max, row.max});
            const std::uint64_t end = model::saturating_add(row.begin_ns, kind.bucket_ns);
            if (end <= view_.to_ns) {
                points.push_back({end, row.last, row.last});
            }
        }
        const std::vector<PlotNote> notes = plot_notes(device);
        const auto lines = plot_timeline(points, view_.to_ns, notes, plot_options(), {});
        draw({std::string(page_.style().cyan()) + (page_.style().ascii ? "#" : "█") +
              std::string(page_.style().reset()) + " " + kind_label(kind.kind)},
             notes, lines, 0);
        Table<CurveFigures> table(page_);
        table.left("", 12, [&kind](const CurveFigures&) { return kind.kind; })
            .bytes("at start", &CurveFigures::at_begin)
            .bytes("lowest", &CurveFigures::lowest)
            .bytes("highest", &CurveFigures::highest)
            .bold()
            .duration("at", &CurveFigures::highest_ns)
            .bytes("at end", &CurveFigures::at_end);
        page_.line("");
        table.head();
        table.row(kind.figures);
    }

    void figures(const DeviceTimeline& device) {
        struct Row {
            model::Curve curve;
            const char* name;
        };
        static constexpr std::array<Row, model::curve_count> rows = {
            {{model::Curve::allocated, "allocated"},
             {model::Curve::reserved, "reserved"},
             {model::Curve::requested, "requested"},
             {model::Curve::active, "active"},
             {model::Curve::device_used, "device used"}}};
        const auto curve = [&](const Row& row) -> const auto& {
            return device.curves.at(static_cast<std::size_t>(row.curve));
        };
        const auto any_bound = [&](bool DeviceTimeline::Curve::*bound) {
            return std::any_of(device.curves.begin(), device.curves.end(),
                               [&](const auto& each) { return each && (*each).*bound; });
        };
        Table<Row> table(page_);
        table.left("", 12, &Row::name)
            .bytes("at start", [&](const Row& row) { return curve(row)->at_begin; })
            .bytes(any_bound(&DeviceTimeline::Curve::lowest_at_least) ? "at least" : "lowest",
                   [&](const Row& row) { return curve(row)->lowest; })
            .bytes(any_bound(&DeviceTimeline::Curve::highest_at_most) ? "at most" : "highest",
                   [&](const Row& row) { return curve(row)->highest; })
            .bold()
            .duration("at", [&](const Row& row) { return curve(row)->highest_ns; })
            .bytes("at end", [&](const Row& row) { return curve(row)->at_end; });
        page_.line("");
        table.head();
        for (const Row& row : rows) {
            if (curve(row)) {
                table.row(row);
            }
        }
    }

    void notes() {
        struct Note {
            std::string sign;
            std::uint64_t time_ns;
        };
        Table<Note> table(page_, 0);
        table.right("", 5, &Note::sign).duration("", &Note::time_ns, 13).last("");
        if (!view_.marks.empty()) {
            page_.heading("Marks");
            for (std::size_t i = 0; i < view_.marks.size() && i < options_.top; ++i) {
                const TimelineMark& mark = view_.marks[i];
                table.row(
                    {std::to_string(i + 1), mark.time_ns},
                    shorten_end(page_.clean(mark.name), table.last_width(), page_.style().ascii));
            }
            more(view_.marks.size(), "mark");
        }
        if (!view_.ooms.empty()) {
            page_.heading("Out of memory");
            for (std::size_t i = 0; i < view_.ooms.size() && i < options_.top; ++i) {
                const TimelineOom& oom = view_.ooms[i];
                table.row({"X", oom.time_ns}, page_.clean(label_of(report_, oom.device)) + ": " +
                                                  format_bytes(oom.requested_bytes) + " requested");
            }
            more(view_.ooms.size(), "failure");
        }
        std::vector<std::string> warnings;
        if (view_.left_out != 0) {
            warnings.push_back("There are " + format_count(view_.left_out) +
                               " marks, failures and scopes more; a narrower --from and --to "
                               "shows them.");
        }
        const bool coarse = std::any_of(view_.devices.begin(), view_.devices.end(),
                                        [](const DeviceTimeline& each) { return !each.exact; });
        if (coarse && view_.from_log) {
            warnings.emplace_back(
                "Where single events are missing, the curves are those of the report: the least "
                "and the most in each of its intervals.");
        }
        page_.warnings(warnings);
    }

    /// Below a table of `all` rows, what of them it leaves out.
    void more(std::size_t all, const char* what) {
        if (all > options_.top) {
            page_.line(page_.dim("       " + format_plural(all - options_.top, what) + " more"));
        }
    }

    void live(const SiteTable& table) {
        const std::vector<LiveMemory> all = live_memory(table, *moment_);
        for (const LiveMemory& memory : all) {
            // Where there is nothing but other kinds, these alone; a few bytes where they are
            // asked for.
            const bool told = memory.kind.empty()
                                  ? memory.count != 0 || all.size() == 1
                                  : all.front().count == 0 || !options_.filter.empty() ||
                                        is_worth_telling(*table.device, memory.bytes);
            if (told) {
                live(table, memory);
            }
        }
    }

    void live(const SiteTable& table, const LiveMemory& memory) {
        const std::uint64_t whole = memory.bytes;
        page_.heading(page_.clean(live_heading(table, *moment_, memory)),
                      format_plural(memory.count, "allocation") +
                          (options_.filter.empty() ? "" : ", " + page_.clean(options_.filter)));
        if (whole == 0) {
            page_.line("  nothing");
            return;
        }
        using Row = LiveMemory::Row;
        const ByteUnit unit = unit_for(whole);
        const bool by_nn_module = options_.by == SitesBy::nn_module;
        const char* const what = by_nn_module ? "nn.Module" : "place";
        const PlaceTextOptions text{page_.style(), options_.working_directory, options_.templates};
        Table<Row> figures(page_);
        figures.right("bytes", 12, [unit](const Row& row) { return format_bytes(row.bytes, unit); })
            .share(&Row::bytes, whole)
            .count("count", 9, &Row::count)
            .last("where");
        figures.head();
        const std::size_t width = figures.last_width();
        Row rest{nullptr};
        for (std::size_t shown = 0; const Row& row : memory.rows) {
            if (const SiteRow& site = *row.row; shown++ < options_.top) {
                figures.row(row, by_nn_module ? nn_module_text(site, width, options_.style.ascii)
                                              : describe_place(site.place, site.kind, site.api,
                                                               width, text));
            } else {
                rest.bytes += row.bytes;
                rest.count += row.count;
            }
        }
        if (memory.rows.size() > options_.top) {
            const std::size_t left = memory.rows.size() - options_.top;
            figures.row(rest, page_.dim(format_plural(left, what) + " more"));
        }
    }

    const model::Report& report_;
    const TimelineView& view_;
    const MomentView* moment_;
    const ViewOptions& options_;
    Page page_;
};

}  // namespace

std::string render_timeline_text(const model::Report& report, const TimelineView& view,
                                 const MomentView* moment, const ViewOptions& options) {
    return TimelineText(report, view, moment, options).render();
}

}  // namespace memlab::report
