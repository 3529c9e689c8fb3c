#include "report/inefficiencies/detect_patterns.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/bounded_sum.hpp"
#include "report/device_allocations.hpp"
#include "report/device_label.hpp"
#include "report/inefficiencies/estimate_peaks.hpp"
#include "report/inefficiencies/rank_findings.hpp"
#include "report/inefficiencies/replays.hpp"
#include "report/inefficiencies/reserve_findings.hpp"
#include "report/lacks.hpp"
#include "report/text/units.hpp"
#include "report/views/site_table.hpp"
#include "trace/record.hpp"

namespace memlab::report {

namespace {

constexpr std::uint64_t min_cases = 4;        ///< of a repeated pattern
constexpr std::uint64_t min_kept = 8;         ///< allocations of a place that frees none
constexpr std::uint64_t min_calls = 100;      ///< to be saved
constexpr std::uint64_t calls_a_buffer = 10;  ///< allocations that one buffer must replace
constexpr std::uint64_t spare_part = 8;       ///< kept buffers may take 1/8 more than was held
constexpr std::size_t max_estimates = 64;     ///< findings whose saving is computed
constexpr std::uint64_t min_steps = 4;        ///< for a finding about steps

std::string were(std::uint64_t count, const char* singular) {
    return format_plural(count, singular) + (count == 1 ? " was" : " were");
}

/// count * bytes, or the largest number on overflow.
std::uint64_t product(std::uint64_t count, std::uint64_t bytes) {
    std::uint64_t result = 0;
    return __builtin_mul_overflow(count, bytes, &result) ? std::numeric_limits<std::uint64_t>::max()
                                                         : result;
}

class PatternDetector {
  public:
    PatternDetector(const model::Report& report, Resolver& resolver, const InefficiencyQuery& query,
                    const CollectedPatterns& patterns, const model::Steps* steps,
                    const std::string& log)
        : report_(report),
          resolver_(resolver),
          query_(query),
          patterns_(patterns),
          steps_(steps),
          replays_(log, query.pool_settings) {}

    void examine(const model::Device& device) {
        DeviceFindings& found = found_.emplace_back();
        found.device = &device;
        found.allocations = allocation_count(device, Counted::all_kinds);
        found.least_bytes = least_bytes(report_, device);
        categories_known_ = has_categories(report_, device);
        const std::vector<SiteRow> rows = rows_of(device);
        std::vector<std::size_t> sites;
        for (const SiteRow& row : rows) {
            sites.insert(sites.end(), row.sites.begin(), row.sites.end());
        }
        found_.back().collected = sum_collected(report_, sites);
        for (const SiteRow& row : rows) {
            leak(device, row);
            const SiteRow other = of_one_pass(row);
            replaced(device, other);
            outlived(device, other);
            unused(device, row);
            collected(device, row);
            rounding(device, row);
            calls(device, row);
            never_freed(row);
        }
        find_in_reserve(report_, query_, patterns_.growth[index_of(device)], rows, replays_,
                        &found_.back());
    }

    /// Returns the findings; reads a very long log again when peaks have to be computed.
    std::vector<DeviceFindings> finish(const std::string& log) {
        estimate_saved_peaks(log);
        for (DeviceFindings& found : found_) {
            std::erase_if(found.findings, [&](const Finding& finding) {
                return !is_worth_it(found.least_bytes, finding);
            });
            sort_findings(&found);
        }
        return std::move(found_);
    }

  private:
    bool wanted(Pattern pattern) const { return is_wanted(query_, pattern); }

    std::size_t index_of(const model::Device& device) const {
        return static_cast<std::size_t>(&device - report_.devices.data());
    }

    std::vector<SiteRow> rows_of(const model::Device& device) {
        SiteRows rows;
        for (std::size_t i = 0; i < report_.sites.size(); ++i) {
            const model::Site& site = report_.sites[i];
            if (site.device == device.index && site.count != 0 && query_.taken.at(i)) {
                rows.add(resolver_.place(site.stack), site, i);
            }
        }
        return rows.take();
    }

    std::uint64_t sum(const SiteRow& row, std::uint64_t SitePatterns::*value) const {
        std::uint64_t total = 0;
        for (const std::size_t site : row.sites) {
            total += patterns_.sites[site].*value;
        }
        return total;
    }

    /// What a training holds on purpose: freeing it earlier would break it.
    bool is_model_state(std::size_t index) const {
        if (!categories_known_) {
            return false;
        }
        switch (categorize(report_.sites[index], resolver_)) {
            case Category::parameters:
            case Category::gradients:
            case Category::optimizer_state:
            case Category::workspaces:
                return true;
            default:
                return false;
        }
    }

    /// Of PyTorch's memory only what is known to be of one pass: the rest may be the model's, where
    /// its functions have no names.
    bool is_of_one_pass(std::size_t index) const {
        if (!categories_known_) {
            return true;
        }
        const Category category = categorize(report_.sites[index], resolver_);
        return category == Category::activations || category == Category::inputs;
    }

    SiteRow of_one_pass(const SiteRow& row) const {
        SiteRow others{row.place, row.kind, row.api, {}, {}, {}};
        for (const std::size_t index : row.sites) {
            if (is_of_one_pass(index)) {
                others.add(report_.sites[index], index);
            }
        }
        return others;
    }

    /// No finding: many allocations of one place, none of which was ever freed, may be meant so.
    void never_freed(const SiteRow& row) {
        if (row.stats.live_count == row.stats.count && row.stats.count >= min_kept &&
            row.stats.live_bytes >= found_.back().least_bytes && model::is_in_curves(row.kind) &&
            row.stats.live_bytes > found_.back().kept_bytes) {
            found_.back().kept_bytes = row.stats.live_bytes;
            found_.back().kept_count = row.stats.live_count;
            found_.back().kept_place = row.place;
        }
    }

    void add(Finding finding) { found_.back().findings.push_back(std::move(finding)); }

    /// Adds a finding whose saving at the peak is computed behind all others.
    void add_with_estimate(const model::Device& device, Finding finding,
                           AvoidableSpan::Reason reason) {
        estimates_.push_back({{device.index, reason, finding.sites, 0},
                              found_.size() - 1,
                              found_.back().findings.size()});
        add(std::move(finding));
    }

    bool is_suppressed(const model::Site& site, LeakKind leak) {
        return query_.suppressions != nullptr &&
               find_suppression(*query_.suppressions, report_, site, resolver_.frames(site.stack),
                                leak) != nullptr;
    }

    /// Growth of a site in bytes per step; none: it does not grow.
    std::optional<double> growth_per_step(std::size_t site) const {
        if (steps_ == nullptr) {
            return std::nullopt;
        }
        const auto found = std::find_if(
            steps_->growing.begin(), steps_->growing.end(),
            [site](const model::Steps::Growing& growing) { return growing.site == site; });
        return found == steps_->growing.end() ? std::nullopt
                                              : std::optional(found->trend.bytes_per_step);
    }

    void leak(const model::Device& device, const SiteRow& row) {
        if (!wanted(Pattern::leak) || !model::is_in_curves(row.kind)) {
            return;
        }
        SiteRow growing{row.place, row.kind, row.api, {}, {}, {}};
        SiteRow forgotten = growing;
        double per_step = 0;
        for (const std::size_t index : row.sites) {
            const model::Site& site = report_.sites[index];
            if (site.live_count == 0) {
                continue;
            }
            // Suppressions last: only they need the names of all frames.
            if (const auto rate = growth_per_step(index)) {
                if (!is_suppressed(site, LeakKind::growing)) {
                    growing.add(site, index);
                    per_step += *rate;
                }
            } else if (patterns_.sites[index].outstayed_count != 0 && !is_model_state(index) &&
                       !is_suppressed(site, LeakKind::at_end)) {
                forgotten.add(site, index);
            }
        }
        if (!growing.sites.empty()) {
            leak(device, growing, Confidence::certain, growing.stats.live_count,
                 growing.stats.live_bytes,
                 "It grows by " + format_bytes(rounded(per_step)) + " at every step.",
                 "Free it at the end of its step, or keep a fixed number of them.");
        }
        // A single one is often the last value of a variable.
        const std::uint64_t outstayed = sum(forgotten, &SitePatterns::outstayed_count);
        if (outstayed > 1 && has_ended(report_)) {
            leak(
                device, forgotten, Confidence::likely, outstayed,
                sum(forgotten, &SitePatterns::outstayed_bytes),
                "No other allocation of this place lived half as long.",
                "Look for the path on which it is not freed: an early return, an exception, a list "
                "or cache that keeps it.");
        }
    }

    void leak(const model::Device& device, const SiteRow& row, Confidence confidence,
              std::uint64_t count, std::uint64_t bytes, const std::string& also,
              const std::string& change) {
        Finding finding = make_finding(Pattern::leak, confidence, row);
        finding.count = count;
        finding.bytes = bytes;
        finding.saving.end_bytes = bytes;
        finding.what = were(finding.count, "allocation") + " never freed (" +
                       format_bytes(finding.bytes) + "). " + also;
        finding.change = change;
        add_with_estimate(device, std::move(finding),
                          confidence == Confidence::certain ? AvoidableSpan::Reason::leaked
                                                            : AvoidableSpan::Reason::outstayed);
    }

    static std::uint64_t rounded(double bytes) {
        constexpr double max_bytes = 9e18;
        return static_cast<std::uint64_t>(std::llround(std::clamp(bytes, 0.0, max_bytes)));
    }

    void replaced(const model::Device& device, const SiteRow& row) {
        const std::uint64_t count = sum(row, &SitePatterns::replaced_count);
        if (!wanted(Pattern::late_deallocation) || count < min_cases) {
            return;
        }
        Finding finding = make_finding(Pattern::late_deallocation, Confidence::possible, row);
        finding.count = count;
        finding.bytes = sum(row, &SitePatterns::replaced_bytes);
        finding.what = format_count(count) + " of " + format_count(row.stats.count) +
                       " were freed right after the next one of the same size had been made: both "
                       "were held at once.";
        finding.change =
            std::string("If the new one is not computed from the old one, free the old one first") +
            (row.place.file.ends_with(".py") ? " (del x, then x = ...)" : "") +
            "; else write the new values into it, if the computation allows it.";
        add_with_estimate(device, std::move(finding), AvoidableSpan::Reason::replaced);
    }

    void outlived(const model::Device& device, const SiteRow& row) {
        const std::uint64_t count = sum(row, &SitePatterns::outlived_count);
        if (!wanted(Pattern::over_long_life) || patterns_.steps < min_steps || count < min_cases) {
            return;
        }
        Finding finding = make_finding(Pattern::over_long_life, Confidence::possible, row);
        finding.count = count;
        finding.bytes = sum(row, &SitePatterns::outlived_bytes);
        const std::uint64_t later = sum(row, &SitePatterns::outlived_steps);
        finding.what = format_count(count) + " of " + format_count(row.stats.count) +
                       " lived on when their step had ended, and were freed " +
                       format_plural((later + count / 2) / count, "step") + " later.";
        finding.change = "If no later step reads it, free it at the end of its own.";
        add_with_estimate(device, std::move(finding), AvoidableSpan::Reason::outlived);
    }

    void unused(const model::Device& device, const SiteRow& row) {
        const std::uint64_t count = sum(row, &SitePatterns::unused_count);
        if (!wanted(Pattern::unused_allocation) || count == 0) {
            return;
        }
        Finding finding = make_finding(Pattern::unused_allocation, Confidence::likely, row);
        finding.count = count;
        finding.bytes = sum(row, &SitePatterns::unused_bytes);
        finding.what = "No kernel, copy or fill ran on any GPU while " + format_count(count) +
                       " of " + format_count(row.stats.count) + " lived.";
        finding.change =
            "Do not allocate it where it is not used. (Access by a network card or from the host "
            "is in no recording.)";
        add_with_estimate(device, std::move(finding), AvoidableSpan::Reason::unused);
    }

    void collected(const model::Device& device, const SiteRow& row) {
        const model::Collected all = sum_collected(report_, row.sites);
        if (!wanted(Pattern::reference_cycle) || all.at_peak_bytes == 0) {
            return;
        }
        Finding finding = make_finding(Pattern::reference_cycle, Confidence::likely, row);
        finding.count = all.count;
        finding.bytes = all.bytes;
        finding.what = format_count(all.count) + " of " + format_count(row.stats.count) +
                       " were freed only when Python's garbage collector ran (" +
                       format_bytes(all.bytes) + " in all); " + format_count(all.at_peak_count) +
                       " of them were held at the peak.";
        finding.change =
            "Objects in a reference cycle hold them (an exception that is kept, a callback): break "
            "the cycle with del or a weakref, or call gc.collect() where it may take its time.";
        add_with_estimate(device, std::move(finding), AvoidableSpan::Reason::collected);
    }

    void rounding(const model::Device& device, const SiteRow& row) {
        const std::uint64_t bytes = sum(row, &SitePatterns::rounding_at_peak);
        if (!wanted(Pattern::oversized_alignment) || bytes < found_.back().least_bytes) {
            return;
        }
        Finding finding = make_finding(Pattern::oversized_alignment, Confidence::certain, row);
        finding.count = sum(row, &SitePatterns::count_at_peak);
        finding.bytes = bytes;
        const std::uint64_t taken = row.stats.peak_bytes;
        finding.what = "At the peak " + format_plural(finding.count, "allocation") +
                       (taken > bytes ? " took " + format_bytes(taken) + " for " +
                                            format_bytes(taken - bytes) + ": the rest is rounding."
                                      : " had " + format_bytes(bytes) + " of rounding.");
        finding.change =
            finding.count > 1
                ? "Make one allocation for many of them, or ask for sizes that need "
                  "no rounding (docs/pool.md has the steps)."
                : "Ask for a size that needs no rounding (docs/pool.md has the steps).";
        add_with_estimate(device, std::move(finding), AvoidableSpan::Reason::rounding);
    }

    /// Places whose allocations could be replaced by a few buffers: as many as there were at once,
    /// of one size, so that keeping them takes little more than the program held at once.
    void calls(const model::Device& device, const SiteRow& row) {
        SiteRow reusable{row.place, row.kind, row.api, {}, {}, {}};
        std::uint64_t buffers = 0;
        std::uint64_t kept = 0;
        std::uint64_t held = 0;
        std::uint64_t largest = 0;
        for (const std::size_t index : row.sites) {
            const SitePatterns& site = patterns_.sites[index];
            const model::Site& figures = report_.sites[index];
            if (site.max_live > figures.count / calls_a_buffer) {
                continue;
            }
            reusable.add(figures, index);
            buffers += site.max_live;
            kept = model::saturating_add(kept, product(site.max_live, site.max_size));
            held = model::saturating_add(held, site.max_live_bytes);
            largest = std::max(largest, site.max_size);
        }
        const std::uint64_t count = reusable.stats.count;
        const std::uint64_t saved = count - std::min(count, buffers);
        const bool churn = 2 * reusable.stats.temporaries >= count;
        const Pattern pattern = churn ? Pattern::temporary_churn : Pattern::redundant_allocation;
        if (!wanted(pattern) || saved < min_calls || saved < found_.back().allocations / min_part ||
            kept > model::saturating_add(held, held / spare_part) ||
            peak_with(device, row, reusable.sites, kept) > affordable_peak(device)) {
            return;
        }
        Finding finding = make_finding(pattern, Confidence::certain, reusable);
        finding.count = count;
        finding.bytes = reusable.stats.bytes;
        finding.buffers = buffers;
        finding.buffer_bytes = largest;
        finding.saving.calls = saved;
        finding.what = format_count(count) + " allocations, at most " + format_count(buffers) +
                       " of them at a time.";
        finding.change = std::string("Keep ") +
                         (buffers == 1 ? "one buffer" : format_count(buffers) + " buffers") +
                         " of " + format_bytes(finding.buffer_bytes) + " and use " +
                         (buffers == 1 ? "it" : "them") + " again.";
        found_.back().calls.push_back(std::move(finding));
    }

    /// An upper bound of the allocated peak if some sites of a row kept that many bytes all the
    /// time.
    std::uint64_t peak_with(const model::Device& device, const SiteRow& row,
                            const std::vector<std::size_t>& sites, std::uint64_t kept) const {
        const std::uint64_t peak = device.curve(model::Curve::allocated).peak_bytes;
        const std::uint64_t without =
            sites.size() == row.sites.size()
                ? patterns_.peaks_without.at(query_.groups.at(sites.front()))
                : peak;
        return model::saturating_add(std::min(without, peak), kept);
    }

    static std::uint64_t affordable_peak(const model::Device& device) {
        const std::uint64_t peak = device.curve(model::Curve::allocated).peak_bytes;
        return model::saturating_add(peak, peak / min_part);
    }

    struct Entry {
        PeakEstimate estimate;
        std::size_t device = 0;   ///< index into found_
        std::size_t finding = 0;  ///< index into its findings
    };
    Finding& finding(const Entry& entry) { return found_[entry.device].findings[entry.finding]; }

    void estimate_saved_peaks(const std::string& log) {
        // Those with the most bytes: the others have too little at the peak.
        std::stable_sort(estimates_.begin(), estimates_.end(), [&](const Entry& a, const Entry& b) {
            return finding(a).bytes > finding(b).bytes;
        });
        estimates_.resize(std::min(estimates_.size(), max_estimates));
        if (estimates_.empty()) {
            return;
        }
        std::vector<PeakEstimate> list;
        for (const Entry& entry : estimates_) {
            list.push_back(entry.estimate);
        }
        estimate_peaks(log, patterns_, list);
        for (std::size_t i = 0; i < list.size(); ++i) {
            Saving& saving = finding(estimates_[i]).saving;
            const model::Device& device = *found_[estimates_[i].device].device;
            const std::uint64_t peak = device.curve(model::Curve::allocated).peak_bytes;
            saving.peak_bytes = peak - std::min(peak, list[i].peak_bytes);
            saving.peak_is_exact = is_exact(list[i].reason);
        }
    }

    /// Of the others it is not known from when on the memory was not needed.
    static bool is_exact(AvoidableSpan::Reason reason) {
        return reason != AvoidableSpan::Reason::collected &&
               reason != AvoidableSpan::Reason::outstayed;
    }

    const model::Report& report_;
    Resolver& resolver_;
    const InefficiencyQuery& query_;
    const CollectedPatterns& patterns_;
    const model::Steps* steps_;
    Replays replays_;
    bool categories_known_ = false;  ///< of the device that is examined
    std::vector<DeviceFindings> found_;
    std::vector<Entry> estimates_;
};

}  // namespace

bool has_ended(const model::Report& report) {
    return (report.process.ended == "exit" || report.process.ended == "quick_exit") &&
           !known_until(report);
}

std::vector<DeviceFindings> detect_patterns(const model::Report& report, Resolver& resolver,
                                            const InefficiencyQuery& query,
                                            const CollectedPatterns& patterns,
                                            const model::Steps* steps, const std::string& log) {
    PatternDetector detector(report, resolver, query, patterns, steps, log);
    for (const model::Device& device : report.devices) {
        if (device.used() && (!query.device || is_on(device.index, *query.device))) {
            detector.examine(device);
        }
    }
    return detector.finish(log);
}

}  // namespace memlab::report
