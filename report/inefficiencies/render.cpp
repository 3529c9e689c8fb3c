#include "report/inefficiencies/render.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "report/device_label.hpp"
#include "report/summary/json_object.hpp"
#include "report/summary/json_values.hpp"
#include "report/summary/place_text.hpp"
#include "report/text/page.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

/// "late deallocation"
std::string words(Pattern pattern) {
    std::string text =
        pattern == Pattern::over_long_life ? "held longer than needed" : name_of(pattern);
    std::replace(text.begin(), text.end(), '_', ' ');
    return text;
}

class InefficienciesText {
  public:
    explicit InefficienciesText(const ViewOptions& options)
        : options_(options), page_(options.style) {}

    std::string write(const Inefficiencies& found) {
        for (const DeviceFindings& device : found.devices) {
            one(device, found.looked_for);
        }
        if (found.devices.empty()) {
            page_.line("No GPU memory was allocated.");
        }
        page_.warnings(found.notes);
        return page_.take();
    }

  private:
    void one(const DeviceFindings& found, const std::vector<Pattern>& looked_for) {
        const model::Device& device = *found.device;
        if (is_outside_curves_only(device)) {
            page_.heading(device_title(device, options_.style.ascii));
            page_.paragraph("  ",
                            "No device memory was allocated. Managed and pinned memory is not "
                            "searched: memlab-report sites and leaks list it.");
            return;
        }
        page_.heading(
            device_title(device, options_.style.ascii),
            "peak: " + format_bytes(device.curve(model::Curve::allocated).peak_bytes) +
                " allocated, " + format_bytes(device.curve(model::Curve::reserved).peak_bytes) +
                " reserved" +
                (options_.filter.empty() ? "" : "; only " + page_.clean(options_.filter)));
        collected(device, found.collected);
        reserve(found);
        if (found.findings.empty() && found.calls.empty()) {
            nothing(found, looked_for);
            return;
        }
        memory(device, found.findings);
        calls(found.calls, found.allocations);
    }

    /// Reserved memory that is a multiple of what was allocated goes before all else.
    void reserve(const DeviceFindings& found) {
        if (!found.reserve) {
            return;
        }
        page_.paragraph("  ", page_.bold("unused reserve") + ": " + found.reserve->text());
    }

    /// That no pattern was seen does not say that nothing can be saved.
    void nothing(const DeviceFindings& found, const std::vector<Pattern>& looked_for) {
        if (!found.reserve) {
            std::string names;
            for (const Pattern pattern : looked_for) {
                names += (names.empty() ? "" : ", ") + words(pattern);
            }
            page_.paragraph("  ", "No findings. Looked for: " + names + ".");
        }
        if (found.kept_count != 0) {
            page_.paragraph(
                "  ", format_count(found.kept_count) + " allocations of " +
                          format_bytes(found.kept_bytes) + " in all, by " +
                          page_.clean(location_text(found.kept_place, options_.working_directory)) +
                          ", were never freed: meant to be kept, or a leak (memlab-report leaks).");
        }
    }

    void collected(const model::Device& device, const model::Collected& collected) {
        if (collected.count == 0) {
            return;
        }
        page_.paragraph("  ", "Held until Python's garbage collector ran: " +
                                  format_plural(collected.count, "allocation") + " of " +
                                  format_bytes(collected.bytes) + " in all, " +
                                  format_bytes(collected.at_peak_bytes) + " of the peak, " +
                                  format_percent(collected.at_peak_bytes,
                                                 device.curve(model::Curve::allocated).peak_bytes) +
                                  ".");
    }

    void memory(const model::Device& device, const std::vector<Finding>& findings) {
        for (std::size_t i = 0; i < findings.size() && i < options_.top; ++i) {
            const Finding& finding = findings[i];
            page_.line("");
            const std::string number = (i < 9    ? "  "
                                        : i < 99 ? " "
                                                 : "") +
                                       std::to_string(i + 1) + ". ";
            const std::string indent(number.size(), ' ');
            page_.paragraph(number, page_.bold(words(finding.pattern)) + ": " +
                                        saving(device, finding) + " (" +
                                        name_of(finding.confidence) + ")");
            page_.line(indent + page_.cyan(where(finding, indent.size())));
            page_.paragraph(indent, finding.what);
            page_.paragraph(indent + (options_.style.ascii ? "> " : "→ "), finding.change);
        }
        if (findings.size() > options_.top) {
            page_.line("");
            page_.line(page_.dim("[" + format_plural(findings.size() - options_.top, "other") +
                                 "; --top shows more]"));
        }
    }

    static std::string saving(const model::Device& device, const Finding& finding) {
        const Saving& saving = finding.saving;
        if (saving.peak_bytes != 0) {
            return "saves " + std::string(saving.peak_is_exact ? "" : "up to ") +
                   format_bytes(saving.peak_bytes) + " of the peak, " +
                   format_percent(saving.peak_bytes,
                                  device.curve(model::Curve::allocated).peak_bytes);
        }
        if (saving.reserved_bytes != 0) {
            return "saves " + format_bytes(saving.reserved_bytes) + " reserved, in a replay, " +
                   format_percent(saving.reserved_bytes,
                                  device.curve(model::Curve::reserved).peak_bytes);
        }
        return format_bytes(saving.end_bytes) + " were held at the end";
    }

    std::string where(const Finding& finding, std::size_t used) const {
        return describe_place(finding.place, finding.kind, finding.api, page_.remaining_width(used),
                              {options_.style, options_.working_directory, options_.templates});
    }

    void calls(const std::vector<Finding>& findings, std::uint64_t all) {
        if (findings.empty()) {
            return;
        }
        page_.line("");
        page_.line("A few buffers that are kept would serve all allocations of these places:");
        Table<Finding> table(page_);
        table.count("calls", 12, &Finding::count)
            .share(&Finding::count, all)
            .count("buffers", 9, &Finding::buffers)
            .bytes("of each", &Finding::buffer_bytes)
            .last("where", [&](const Finding& finding) {
                return where(finding, table.last_column()) +
                       (finding.pattern == Pattern::temporary_churn ? page_.dim(" *") : "");
            });
        table.head();
        if (const std::size_t more = table.rows(findings, options_.top)) {
            page_.line(page_.dim("  [" + format_plural(more, "other") + "]"));
        }
        if (std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
                return finding.pattern == Pattern::temporary_churn;
            })) {
            page_.paragraph("  * ", "most are freed before their thread allocates anything else");
        }
    }

    const ViewOptions& options_;
    Page page_;
};

ordered_json finding_json(const Finding& finding, const model::Report& report, Resolver& resolver) {
    ordered_json out;
    out["pattern"] = name_of(finding.pattern);
    out["confidence"] = name_of(finding.confidence);
    out["place"] = place_json(finding.place);
    out["kind"] = finding.kind;
    out["api"] = finding.api;
    out["count"] = finding.count;
    out["bytes"] = finding.bytes;
    out["saves"] = {{"peak_bytes", finding.saving.peak_bytes},
                    {"peak_is_exact", finding.saving.peak_is_exact},
                    {"reserved_bytes", finding.saving.reserved_bytes},
                    {"end_bytes", finding.saving.end_bytes},
                    {"calls", finding.saving.calls}};
    out["buffers"] = finding.saves_calls_only() ? ordered_json(finding.buffers) : nullptr;
    out["buffer_bytes"] = finding.saves_calls_only() ? ordered_json(finding.buffer_bytes) : nullptr;
    out["what"] = finding.what;
    out["change"] = finding.change;
    out["stack"] = stack_json(resolver.frames(report.sites[finding.sites.front()].stack));
    out["sites"] = finding.sites;
    return out;
}

}  // namespace

std::string render_inefficiencies(const Inefficiencies& found, const ViewOptions& options) {
    return InefficienciesText(options).write(found);
}

std::string inefficiencies_json(const model::Report& report, Resolver& resolver,
                                const Inefficiencies& found, const ViewOptions& options) {
    ordered_json out;
    out["steps"] = text_or_null(found.steps);
    out["filter"] = text_or_null(options.filter);
    out["looked_for"] = ordered_json::array();
    for (const Pattern pattern : found.looked_for) {
        out["looked_for"].push_back(name_of(pattern));
    }
    out["devices"] = ordered_json::array();
    for (const DeviceFindings& device : found.devices) {
        ordered_json& shown = out["devices"].emplace_back();
        shown["index"] = device.device->index;
        shown["name"] = device.device->name;
        shown["allocated_peak_bytes"] = device.device->curve(model::Curve::allocated).peak_bytes;
        shown["reserved_peak_bytes"] = device.device->curve(model::Curve::reserved).peak_bytes;
        shown["collected"] = {{"count", device.collected.count},
                              {"bytes", device.collected.bytes},
                              {"at_peak_count", device.collected.at_peak_count},
                              {"at_peak_bytes", device.collected.at_peak_bytes}};
        shown["reserve"] = device.reserve ? JsonObject::of(*device.reserve) : ordered_json();
        shown["never_freed"] = device.kept_count == 0
                                   ? ordered_json()
                                   : ordered_json{{"place", place_json(device.kept_place)},
                                                  {"count", device.kept_count},
                                                  {"bytes", device.kept_bytes}};
        shown["findings"] = ordered_json::array();
        for (const auto* list : {&device.findings, &device.calls}) {
            for (const Finding& finding : *list) {
                shown["findings"].push_back(finding_json(finding, report, resolver));
            }
        }
    }
    out["notes"] = found.notes;
    return json_text(out);
}

}  // namespace memlab::report
