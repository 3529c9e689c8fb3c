// Builds the summary's page, section by section. All strings of a recording pass clean().
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "model/oom_explanation.hpp"
#include "report/device_label.hpp"
#include "report/lacks.hpp"
#include "report/steps.hpp"
#include "report/summary/place_text.hpp"
#include "report/summary/stack_text.hpp"
#include "report/summary/summary_page.hpp"
#include "report/symbols/symbolizer.hpp"
#include "report/text/names.hpp"
#include "report/text/shell_word.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

std::string SummaryPage::full() {
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
    return take();
}

std::string SummaryPage::brief() {
    title();
    for (const DeviceSummary& device : summary_.devices) {
        const std::string where = summary_.report->devices.size() > 1
                                      ? "  " + clean(device_label(*device.device)) + ": "
                                      : "  ";
        const model::CurveSummary& allocated = device.device->curve(model::Curve::allocated);
        const model::CurveSummary& reserved = device.device->curve(model::Curve::reserved);
        const bool outside_only = is_outside_curves_only(*device.device);
        const auto held_at_peak = [this](const HoldersSummary& at_peak) {
            if (!at_peak.places.empty()) {
                shares("at the peak", "where", 0, 0).head();
            }
            places(at_peak, std::min<std::size_t>(options_.top, 3));
        };
        if (!outside_only) {
            line(where + "peak allocated " + bold(format_bytes(allocated.peak_bytes)) +
                 ", reserved " + bold(format_bytes(reserved.peak_bytes)) + ", still held " +
                 moment_text(*summary_.report) + " " + format_bytes(device.still_allocated.bytes));
            if (device.reserve) {
                paragraph("  " + yellow(style().ascii ? "! " : "⚠ "), device.reserve->text(), 4);
            }
            held_at_peak(device.at_peak);
        }
        for (const KindSummary& kind : device.kinds) {
            if (!is_worth_telling(*device.device, kind.curve->curve.peak_bytes)) {
                continue;
            }
            line(where + "peak of " + kind_label(kind.kind) + " " +
                 bold(format_bytes(kind.curve->curve.peak_bytes)) + ", still held " +
                 moment_text(*summary_.report) + " " +
                 format_bytes(kind.curve->curve.at_end_bytes));
            if (outside_only) {
                held_at_peak(kind.at_peak);
            }
        }
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
    return take();
}

std::string SummaryPage::location(const Place& place) const {
    return clean(location_text(place, options_.working_directory));
}

void SummaryPage::title() {
    const model::Process& process = summary_.report->process;
    const std::string name = clean(base_name(process.executable));
    const std::string ended = summary_.succeeded ? summary_.ended : red(clean(summary_.ended));
    line(bold(name.empty() ? "?" : name) + " (pid " + std::to_string(process.pid) + ") " + ended);
}

void SummaryPage::header() {
    const model::Report& report = *summary_.report;
    const model::Process& process = report.process;
    title();
    std::string command = command_line(process.arguments, style().ascii);
    if (command.empty()) {
        command = process.executable;
    }
    line("  " + shorten_end(clean(command), remaining_width(2), style().ascii));
    std::string place =
        clean(process.executable) == clean(command) ? "" : clean(process.executable) + separator();
    place += format_wall_time(process.start_wall_ns);
    if (!process.host.empty()) {
        place += separator() + clean(process.host);
    }
    for (const auto& [name, value] : process.ranks) {
        place += separator() + clean(name) + "=" + clean(value);
    }
    line(dim("  " + shorten_end(place, remaining_width(2), style().ascii)));
}

void SummaryPage::holders(const std::string& title, const HoldersSummary& summary, std::size_t top,
                          const std::string& note) {
    heading(title + ": " + format_bytes(summary.bytes), note);
    if (summary.places.empty()) {
        line(dim(summary.bytes == 0 ? "  nothing"
                                    : "  none of it at a place that the filter takes"));
        return;
    }
    shares("bytes", "where", 0).head();
    places(summary, top);
}

Table<SummaryPage::Share> SummaryPage::shares(const std::string& bytes, const std::string& last,
                                              std::uint64_t whole, std::size_t indent) {
    Table<Share> table(*this, 2 + indent);
    table.bytes(bytes, &Share::bytes)
        .share(&Share::bytes, whole)
        .count("count", &Share::count)
        .last(last);
    return table;
}

void SummaryPage::places(const HoldersSummary& summary, std::size_t top, std::size_t indent) {
    const Table<Share> table = shares("bytes", "where", summary.bytes, indent);
    Share rest{summary.unnamed_bytes, summary.unnamed_count};
    std::size_t shown = 0;
    for (const PlaceShare& share : summary.places) {
        if (shown++ < top) {
            table.row({share.bytes, share.count},
                      describe_place(share.place, share.kind, share.api, table.last_width(),
                                     {style(), options_.working_directory}));
            note_below(table.last_column(), model::format_labels(share.labels, share.bytes));
        } else {
            rest.bytes += share.bytes;
            rest.count += share.count;
        }
    }
    if (rest.count != 0) {
        const std::size_t hidden = summary.places.size() > top ? summary.places.size() - top : 0;
        table.row(rest,
                  dim(hidden != 0 ? format_plural(hidden, "place") + " more" : "other places"));
    }
}

void SummaryPage::stacks(const DeviceSummary& summary) {
    if (options_.stacks == 0 || resolver_ == nullptr) {
        return;
    }
    std::set<std::size_t> done;
    stack_list("at the peak", summary.at_peak, done);
    stack_list("still allocated", summary.still_allocated, done);
}

void SummaryPage::stack_list(const char* when, const HoldersSummary& holders,
                             std::set<std::size_t>& done) {
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

void SummaryPage::one_stack(std::size_t stack) {
    for (const std::string& text :
         stack_lines(*summary_.report, *resolver_, stack, {style(), options_.working_directory})) {
        line(text);
    }
}

std::string SummaryPage::bypassed_text() const {
    const model::Coverage& coverage = summary_.report->coverage;
    return format_plural(coverage.bypassed_count, "allocation") + " of " +
           format_bytes(coverage.bypassed_bytes) + " bypassed memlab";
}

void SummaryPage::coverage() {
    const model::Coverage& coverage = summary_.report->coverage;
    if (!coverage.audited && coverage.bypassed_count == 0) {
        return;
    }
    heading("Audit", shorten_end(clean(coverage.cupti), remaining_width(7), style().ascii));
    const std::string driver = format_plural(coverage.driver_count, "allocation") +
                               " of the driver, " + format_bytes(coverage.driver_bytes);
    if (coverage.bypassed_count == 0) {
        line("  " + driver + ": memlab made or recorded each of them");
        return;
    }
    line("  " + driver + ": " + yellow(bypassed_text()));
    using Bypassed = model::Coverage::Bypassed;
    Table<Bypassed> table(*this);
    table.bytes("", &Bypassed::bytes).count("", &Bypassed::count).last("");
    std::size_t shown = 0;
    for (const BypassSummary& bypass : summary_.bypasses) {
        if (shown++ == options_.top) {
            line(dim("  " + format_plural(summary_.bypasses.size() - options_.top, "place") +
                     " more"));
            break;
        }
        const Bypassed& what = *bypass.bypassed;
        std::string text = what.api.empty() ? std::string("(unknown function)") : clean(what.api);
        text += what.kind == "device" ? "" : "  [" + clean(what.kind) + "]";
        text += bypass.place.recorded ? "  " + location(bypass.place) : "";
        table.row(what, text);
    }
}

/// Figures of scopes and steps are of the process, whichever devices and level are shown: they are
/// no device's.
std::string SummaryPage::whole_note() const {
    return has_framework_memory(*summary_.report) ? "tensors and other memory" : "";
}

void SummaryPage::scopes() {
    const auto& all = summary_.report->scopes;
    if (all.empty()) {
        return;
    }
    std::vector<std::size_t> order(all.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return all[a].peak_growth_bytes > all[b].peak_growth_bytes;
    });
    heading("Scopes", whole_note().empty() ? "by peak growth: what one entry adds at its peak"
                                           : "by what one entry adds at its peak: " + whole_note());
    const auto figure = [&](std::uint64_t model::Scope::*which) {
        return [&all, which](std::size_t scope) { return all[scope].*which; };
    };
    Table<std::size_t> table(*this, 1);
    table.bytes("growth", figure(&model::Scope::peak_growth_bytes))
        .bytes("peak", figure(&model::Scope::peak_bytes))
        .bytes("allocated", figure(&model::Scope::allocated_bytes))
        .bytes("most left", figure(&model::Scope::max_escaped_bytes))
        .count("entries", 9, figure(&model::Scope::entries))
        .last("scope", [&](std::size_t scope) {
            const std::string name = (all[scope].kind == "range" ? "[range] " : "") +
                                     clean(scope_path(*summary_.report, scope));
            return shorten_begin(name, table.last_width(), style().ascii);
        });
    table.head();
    if (const std::size_t more = table.rows(order, options_.top)) {
        line(dim("  " + format_plural(more, "scope") + " more; --json has all"));
    }
}

void SummaryPage::labels() {
    std::vector<const model::Label*> order;
    for (const model::Label& label : summary_.report->labels) {
        order.push_back(&label);
    }
    if (order.empty()) {
        return;
    }
    std::stable_sort(order.begin(), order.end(), [](const model::Label* a, const model::Label* b) {
        return a->peak_bytes > b->peak_bytes;
    });
    heading("Named memory");
    Table<const model::Label*> table(*this);
    table.bytes("peak", &model::Label::peak_bytes)
        .bytes(moment_column(*summary_.report), &model::Label::live_bytes)
        .count("named", &model::Label::count)
        .last("name", [&](const model::Label* label) {
            const std::string detail = label->detail.empty() ? "" : "  " + clean(label->detail);
            return shorten_end(clean(label->name) + detail, table.last_width(), style().ascii);
        });
    table.head();
    if (const std::size_t more = table.rows(order, options_.top)) {
        line(dim("  " + format_plural(more, "name") + " more; --json has all"));
    }
}

void SummaryPage::steps() {
    if (summary_.steps.empty()) {
        return;
    }
    heading("Steps", whole_note());
    constexpr std::size_t max_shown = 4;
    for (std::size_t i = 0; i < summary_.steps.size() && i < max_shown; ++i) {
        verdict(summary_.steps[i]);
    }
    if (summary_.steps.size() > max_shown) {
        line(dim("  " + format_plural(summary_.steps.size() - max_shown, "kind") +
                 " of steps more; --json has all"));
    }
}

void SummaryPage::verdict(const StepsSummary& summary) {
    const model::Steps& steps = *summary.steps;
    const std::string what = clean(describe_steps(steps)) + ": ";
    const std::string range = range_after_steps(steps);
    if (steps.verdict != "growing") {
        paragraph(
            "  ",
            what + (steps.verdict == "sawtooth"
                        ? "a sawtooth " + range + ": it grows and is given back"
                        : clean(steps.verdict) + (range.starts_with("at") ? " " : ", ") + range),
            2);
        return;
    }
    line("  " + what + red("growing"));
    if (summary.growing.empty()) {
        line("    by " + rate(steps.trend.bytes_per_step) + " in all");
    }
    using Growing = StepsSummary::Growing;
    Table<Growing> table(*this);
    table.right("", 18, [](const Growing& each) { return rate(each.bytes_per_step); })
        .last("", [this](const Growing& each) {
            const std::string function = clean(without_anonymous(each.place.function));
            return location(each.place) + (function.empty() ? "" : "  " + function);
        });
    table.rows(summary.growing, options_.top);
}

std::string SummaryPage::rate(double bytes_per_step) {
    const double positive = std::max(bytes_per_step, 0.0);
    constexpr double max_rate = 9e18;
    return format_bytes(static_cast<std::uint64_t>(std::llround(std::min(positive, max_rate)))) +
           "/step";
}

void SummaryPage::frameworks() {
    if (summary_.frameworks.empty()) {
        return;
    }
    heading("Frameworks");
    for (const FrameworkFinding& finding : summary_.frameworks) {
        paragraph("  ", clean(finding.text));
        if (!finding.command.empty()) {
            line("    " + bold(clean(finding.command)));
        }
    }
}

void SummaryPage::ooms() {
    if (summary_.ooms.empty()) {
        return;
    }
    line("");
    line(red("Out of memory") + ": " + format_plural(summary_.report->oom_count, "allocation") +
         " failed");
    constexpr std::size_t max_shown = 3;
    for (std::size_t i = 0; i < summary_.ooms.size() && i < max_shown; ++i) {
        const OomSummary& oom = summary_.ooms[i];
        const std::string function = clean(without_anonymous(oom.place.function));
        paragraph("  ", format_duration(oom.oom->time_ns) + ": " + clean(oom.oom->api) + " of " +
                            format_bytes(oom.oom->requested_bytes) + " on " +
                            clean(label_of(*summary_.report, oom.oom->device)) + " at " +
                            location(oom.place) + (function.empty() ? "" : " (" + function + ")") +
                            " failed with " + model::error_text(oom.oom->error) + ".");
        for (const std::string& sentence : oom.oom->explanation) {
            paragraph("    ", clean(sentence), 2);
        }
        if (!oom.holders.places.empty()) {
            line("    Held at that moment:");
            places(oom.holders, 5, 2);
        }
    }
    if (summary_.report->oom_count > max_shown) {
        line(dim("  " + format_plural(summary_.report->oom_count - max_shown, "failure") +
                 " more; --json has the first " + std::to_string(summary_.report->ooms.size())));
    }
}

void SummaryPage::warnings(std::size_t max_count) {
    if (summary_.warnings.empty()) {
        return;
    }
    if (max_count == summary_.warnings.size()) {
        line("");
    }
    const std::string sign = style().ascii ? "! " : "⚠ ";
    for (std::size_t i = 0; i < std::min(max_count, summary_.warnings.size()); ++i) {
        paragraph("  " + yellow(sign), clean(summary_.warnings[i]));
    }
    if (summary_.warnings.size() > max_count) {
        line(dim("    " + format_plural(summary_.warnings.size() - max_count, "warning") +
                 " more in the report"));
    }
}

std::string render_text(const Summary& summary, Resolver& resolver, const TextOptions& options) {
    return SummaryPage(summary, &resolver, options).full();
}

std::string render_short(const Summary& summary, const TextOptions& options) {
    return SummaryPage(summary, nullptr, options).brief();
}

}  // namespace memlab::report
