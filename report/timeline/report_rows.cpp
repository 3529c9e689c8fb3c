#include "report/timeline/report_rows.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "report/text/units.hpp"

namespace memlab::report {

namespace {

using Curve = DeviceTimeline::Curve;

/// The last nanosecond of a row of `timeline`.
std::uint64_t end_of_row(const model::Timeline& timeline, const model::TimelineRow& row) {
    std::uint64_t last = 0;
    return timeline.bucket_ns == 0 ||
                   __builtin_add_overflow(row.begin_ns, timeline.bucket_ns - 1, &last)
               ? std::numeric_limits<std::uint64_t>::max()
               : last;
}

/// Whether the value of a stretch that reaches beyond what is shown may be from there.
void widen(Curve& figures, const model::TimelineRow::Values& values, std::uint64_t time_ns,
           bool whole) {
    if (values.max > figures.highest) {
        figures.highest = values.max;
        figures.highest_ns = time_ns;
        figures.highest_at_most = !whole;
    }
    if (values.min < figures.lowest) {
        figures.lowest = values.min;
        figures.lowest_at_least = !whole;
    }
}

/// Puts the row where its time is, into the one that begins at the same time, if there is one.
void insert(std::vector<model::TimelineRow>& rows, const model::TimelineRow& row) {
    const auto at = std::lower_bound(rows.begin(), rows.end(), row.begin_ns,
                                     [](const model::TimelineRow& each, std::uint64_t time_ns) {
                                         return each.begin_ns < time_ns;
                                     });
    if (at == rows.end() || at->begin_ns != row.begin_ns) {
        rows.insert(at, row);
        return;
    }
    for (std::size_t i = 0; i < model::curve_count; ++i) {
        if (const auto& values = row.curves[i]) {
            auto& into = at->curves[i];
            into = {.min = into ? std::min(into->min, values->min) : values->min,
                    .max = into ? std::max(into->max, values->max) : values->max,
                    .last = values->last};
        }
    }
}

}  // namespace

void read_report_rows(DeviceTimeline& device, const TimelineView& view) {
    const model::Timeline& timeline = device.device->timeline;
    device.bucket_ns = timeline.bucket_ns;
    model::TimelineRow entry;
    entry.begin_ns = view.from_ns;
    for (std::size_t curve = 0; curve + 1 < model::curve_count; ++curve) {
        entry.curves[curve] = model::TimelineRow::Values{};
    }
    for (const model::TimelineRow& row : timeline.rows) {
        const std::uint64_t last = end_of_row(timeline, row);
        if (last < view.from_ns) {
            for (std::size_t curve = 0; curve < model::curve_count; ++curve) {
                if (row.curves[curve]) {
                    const std::uint64_t value = row.curves[curve]->last;
                    entry.curves[curve] = {.min = value, .max = value, .last = value};
                }
            }
        } else if (row.begin_ns <= view.to_ns) {
            if (device.rows.empty() && row.begin_ns > view.from_ns) {
                device.rows.push_back(entry);
            }
            device.rows.push_back(row);
            device.rows.back().begin_ns = std::max(row.begin_ns, view.from_ns);
        }
    }
    if (device.rows.empty()) {
        device.rows.push_back(entry);
    }
    for (const model::TimelineRow& row : device.rows) {
        for (std::size_t curve = 0; curve < model::curve_count; ++curve) {
            const auto& values = row.curves[curve];
            auto& figures = device.curves[curve];
            if (!values) {
                continue;
            }
            if (!figures) {
                // device_used is unknown before its first sample.
                const std::uint64_t first = entry.curves[curve].value_or(*values).last;
                figures = {.at_begin = first,
                           .lowest = first,
                           .highest = first,
                           .highest_ns = entry.curves[curve] ? view.from_ns : row.begin_ns,
                           .at_end = values->last};
            }
            figures->lowest = std::min(figures->lowest, values->min);
            if (values->max > figures->highest) {
                figures->highest = values->max;
                figures->highest_ns = row.begin_ns;
            }
            figures->at_end = values->last;
        }
    }
    for (std::size_t curve = 0; curve < model::curve_count; ++curve) {
        // The report has the exact time of each curve's highest value.
        const auto& exact = device.device->curves[curve];
        auto& figures = device.curves[curve];
        if (exact && figures && exact->peak_time_ns >= view.from_ns &&
            exact->peak_time_ns <= view.to_ns && exact->peak_bytes >= figures->highest) {
            figures->highest = exact->peak_bytes;
            figures->highest_ns = exact->peak_time_ns;
        }
    }
    device.kinds = kind_timelines(*device.device, view.from_ns, view.to_ns);
}

std::string moved_text(std::uint64_t device, std::uint64_t away) {
    const std::string gpu = "GPU " + std::to_string(device);
    return away == 0 ? "memory of " + gpu + " is back (restore)"
                     : format_bytes(away) + " of " + gpu + " are away (yield)";
}

void read_report_marks(const model::Report& report, TimelineView& view) {
    for (const model::Mark& mark : report.marks) {
        if (mark.time_ns >= view.from_ns && mark.time_ns <= view.to_ns) {
            view.marks.push_back({mark.time_ns, mark.name});
        }
    }
    for (const model::Device& device : report.devices) {
        for (const model::Absence& each : device.absences) {
            const auto add = [&](std::uint64_t time_ns, std::uint64_t away) {
                if (time_ns >= view.from_ns && time_ns <= view.to_ns) {
                    view.marks.push_back({time_ns, moved_text(device.index, away)});
                }
            };
            add(each.begin_ns, each.bytes);
            if (each.end_ns) {
                add(*each.end_ns, 0);
            }
        }
    }
    std::stable_sort(view.marks.begin(), view.marks.end(),
                     [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
    for (const model::Oom& oom : report.ooms) {
        if (oom.time_ns >= view.from_ns && oom.time_ns <= view.to_ns) {
            view.ooms.push_back({oom.time_ns, oom.device, oom.requested_bytes, oom.api});
        }
    }
}

void add_report_rows(DeviceTimeline& device, const TimelineView& view, std::uint64_t from_ns,
                     std::uint64_t to_ns) {
    const model::Timeline& timeline = device.device->timeline;
    const std::uint64_t first = std::max(from_ns + 1, view.from_ns);
    const std::uint64_t last = std::min(to_ns, view.to_ns);
    if (first >= last) {
        return;
    }
    const model::TimelineRow* before = nullptr;  // the values that last until the next row
    for (const model::TimelineRow& row : timeline.rows) {
        const std::uint64_t end_ns = end_of_row(timeline, row);
        if (end_ns < first) {
            before = &row;
            continue;
        }
        if (row.begin_ns >= last) {
            break;
        }
        model::TimelineRow shown = row;
        shown.begin_ns = std::max(row.begin_ns, first);
        const bool whole = row.begin_ns >= view.from_ns && end_ns <= view.to_ns;
        for (std::size_t i = 0; i < model::curve_count; ++i) {
            const auto& values = row.curves[i];
            if (!values) {
                continue;
            }
            auto& figures = device.curves[i];
            if (!figures) {
                figures = {.at_begin = values->last,
                           .lowest = values->min,
                           .highest = values->max,
                           .highest_ns = shown.begin_ns,
                           .at_end = values->last,
                           .highest_at_most = !whole,
                           .lowest_at_least = !whole};
            }
            widen(*figures, *values, shown.begin_ns, whole);
            if (view.to_ns < to_ns) {
                figures->at_end = values->last;
            }
        }
        insert(device.rows, shown);
    }
    device.exact = false;
    device.kinds = kind_timelines(*device.device, view.from_ns, view.to_ns);
    // In a gap, the values at the start are those that the row before it ended with.
    if (view.from_ns > from_ns && before != nullptr) {
        model::TimelineRow entry = *before;
        entry.begin_ns = view.from_ns;
        for (std::size_t i = 0; i < model::curve_count; ++i) {
            if (const auto& values = before->curves[i]) {
                entry.curves[i] = {.min = values->last, .max = values->last, .last = values->last};
                if (auto& figures = device.curves[i]) {
                    figures->at_begin = values->last;
                    widen(*figures, *entry.curves[i], view.from_ns, true);
                }
            }
        }
        if (device.rows.empty() || device.rows.front().begin_ns > view.from_ns) {
            device.rows.insert(device.rows.begin(), entry);
        }
    }
}

void add_report_notes(TimelineView& view, const model::Report& report, std::uint64_t from_ns,
                      std::uint64_t to_ns) {
    const auto missing = [&](std::uint64_t time_ns) {
        return time_ns > from_ns && time_ns < to_ns && time_ns >= view.from_ns &&
               time_ns <= view.to_ns;
    };
    const auto by_time = [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; };
    for (const model::Mark& mark : report.marks) {
        if (missing(mark.time_ns) && view.marks.size() < TimelineView::max_notes) {
            view.marks.push_back({mark.time_ns, mark.name});
        }
    }
    std::stable_sort(view.marks.begin(), view.marks.end(), by_time);
    for (const model::Oom& oom : report.ooms) {
        if (missing(oom.time_ns) && view.ooms.size() < TimelineView::max_notes) {
            view.ooms.push_back({oom.time_ns, oom.device, oom.requested_bytes, oom.api});
        }
    }
    std::stable_sort(view.ooms.begin(), view.ooms.end(), by_time);
}

void use_exact_peaks(DeviceTimeline& device, const TimelineView& view) {
    for (std::size_t i = 0; i < model::curve_count; ++i) {
        const std::optional<model::CurveSummary>& known = device.device->curves.at(i);
        auto& figures = device.curves[i];
        if (known && figures && known->peak_bytes != 0 && figures->highest == known->peak_bytes &&
            known->peak_time_ns >= view.from_ns && known->peak_time_ns <= view.to_ns) {
            figures->highest_ns = known->peak_time_ns;
            figures->highest_at_most = false;
        }
    }
}

}  // namespace memlab::report
