// Pages of two recordings, and of a run of many processes.
#include <algorithm>
#include <cmath>
#include <utility>

#include "model/bounded_sum.hpp"
#include "report/html/page_data.hpp"
#include "report/runs/collection.hpp"
#include "report/runs/process_rank.hpp"
#include "report/runs/process_stats.hpp"
#include "report/runs/ranks.hpp"
#include "report/summary/summary.hpp"
#include "report/text/names.hpp"
#include "report/text/units.hpp"
#include "report/views/diff.hpp"

namespace memlab::report {

namespace {

constexpr std::uint64_t values_of_a_curve = 128;

std::string short_title(const PageRecording& recording) {
    const model::Process& process = recording.report->process;
    return base_name(process.executable) + " (pid " + std::to_string(process.pid) + ")";
}

/// The allocated curve over all GPUs of a process: the greatest value in each stretch of time. Of
/// several GPUs these are summed, though they need not be of the same moment.
std::vector<std::uint64_t> allocated_curve(const model::Report& report, std::uint64_t step_ns,
                                           Level level) {
    std::vector<std::uint64_t> curve(
        static_cast<std::size_t>(
            std::min(report.process.duration_ns / step_ns, values_of_a_curve - 1)) +
        1);
    constexpr auto allocated = static_cast<std::size_t>(model::Curve::allocated);
    const DevicesAt shown(report, level);
    for (const model::Device& device : report.devices) {
        if (!shown.has(device)) {
            continue;
        }
        std::vector<std::uint64_t> values(curve.size());
        std::size_t at = 0;
        std::uint64_t last = 0;
        for (const model::TimelineRow& row : device.timeline.rows) {
            const std::size_t bucket = std::min(
                static_cast<std::size_t>(std::min(row.begin_ns / step_ns, values_of_a_curve)),
                curve.size() - 1);
            while (at < bucket) {
                values[++at] = last;
            }
            if (row.curves[allocated]) {
                values[at] = std::max(values[at], row.curves[allocated]->max);
                last = row.curves[allocated]->last;
            }
        }
        while (at + 1 < values.size()) {
            values[++at] = last;
        }
        for (std::size_t i = 0; i < curve.size(); ++i) {
            curve[i] = model::saturating_add(curve[i], values[i]);
        }
    }
    return curve;
}

/// Of an even number the middle of the middle two; 0 of none.
std::uint64_t median_of(const std::vector<std::uint64_t>& sorted) {
    if (sorted.empty()) {
        return 0;
    }
    const std::size_t half = sorted.size() / 2;
    return sorted.size() % 2 != 0 ? sorted[half]
                                  : sorted[half - 1] + (sorted[half] - sorted[half - 1]) / 2;
}

/// Why a process stands out among the others.
std::string outlier_text(const model::Report& report, std::uint64_t peak, std::uint64_t median) {
    if (!succeeded(report.process)) {
        return end_text(report.process);
    }
    if (report.oom_count != 0) {
        return format_plural(report.oom_count, "failed allocation");
    }
    const std::uint64_t away = peak > median ? peak - median : median - peak;
    if (median != 0 && away > median / 20) {
        return std::to_string(
                   std::llround(100.0 * static_cast<double>(away) / static_cast<double>(median))) +
               "% " + (peak > median ? "above" : "below") + " the median peak";
    }
    return {};
}

/// The processes to compare: one for each rank, or all that there are.
std::vector<std::size_t> members_of(const RunView& view, const RankComparison& ranks) {
    std::vector<std::size_t> members;
    for (const RankRow& row : ranks.ranks) {
        members.push_back(row.member);
    }
    for (std::size_t i = 0; ranks.ranks.empty() && i < view.collection.members.size(); ++i) {
        members.push_back(i);
    }
    return members;
}

}  // namespace

PageData page_of_two(PageRecording before, PageRecording after) {
    PageData page;
    page.mode = PageData::Mode::compare;
    page.title = short_title(before) + " and " + short_title(after);
    DiffOptions options;
    options.top = 200;
    const auto side = [](const PageRecording& recording) {
        return DiffSide{recording.file, *recording.report, *recording.resolver,
                        std::vector<bool>(recording.report->sites.size(), true),
                        lacks_of_run(recording.lacks)};
    };
    const DiffSide a = side(before);
    const DiffSide b = side(after);
    page.diff = render_diff_json(a, b, diff_reports(a, b, options), options);
    page.recordings.push_back(std::move(before));
    page.recordings.push_back(std::move(after));
    return page;
}

PageData page_of_run(const RunView& view, const RunParts& parts, Symbolizer* symbolizer,
                     const PageOptions& options, std::size_t in_full) {
    const std::vector<RunMember>& all = view.collection.members;
    const RankComparison ranks = compare_ranks(view.collection, parts.resolver);
    PageData page;
    page.mode = PageData::Mode::run;
    page.title = view.source;
    page.merge = ranks.ranks.empty() ? std::string() : render_ranks_json(view, ranks);

    const std::vector<std::size_t> members = members_of(view, ranks);
    std::vector<std::uint64_t> peaks;
    std::uint64_t longest_ns = 0;
    for (const std::size_t member : members) {
        peaks.push_back(
            process_stats(all[member].report, std::nullopt, ranks.level).allocated_peak);
        longest_ns = std::max(longest_ns, all[member].report.process.duration_ns);
    }
    std::vector<std::uint64_t> sorted = peaks;
    std::sort(sorted.begin(), sorted.end());
    const std::uint64_t median = median_of(sorted);
    page.rank_curve_ns = longest_ns / values_of_a_curve + 1;
    std::vector<std::size_t> order;  // in which they are taken in full
    for (std::size_t i = 0; i < members.size(); ++i) {
        const RunMember& member = all[members[i]];
        const model::Process& process = member.report.process;
        const ProcessStats stats = process_stats(member.report, std::nullopt, ranks.level);
        page.ranks.push_back({std::nullopt, process_title(process), find_rank(process),
                              process.host, stats.allocated_peak, stats.at_end,
                              outlier_text(member.report, peaks[i], median),
                              allocated_curve(member.report, page.rank_curve_ns, ranks.level)});
        order.push_back(i);
    }
    const auto away = [&](std::size_t i) {
        return peaks[i] > median ? peaks[i] - median : median - peaks[i];
    };
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        const bool outlier_a = !page.ranks[a].outlier.empty();
        const bool outlier_b = !page.ranks[b].outlier.empty();
        return outlier_a != outlier_b ? outlier_a : away(a) > away(b);
    });
    if (const auto largest = std::max_element(peaks.begin(), peaks.end()); largest != peaks.end()) {
        const auto first = static_cast<std::size_t>(largest - peaks.begin());
        order.erase(std::find(order.begin(), order.end(), first));
        order.insert(order.begin(), first);
    }
    order.resize(std::min(order.size(), in_full));
    for (const std::size_t i : order) {
        const RunMember& member = all[members[i]];
        page.ranks[i].recording = page.recordings.size();
        page.recordings.push_back(
            read_recording(member.file, parts.whole(members[i]), symbolizer, options));
    }
    return page;
}

}  // namespace memlab::report
