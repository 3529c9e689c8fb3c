#include "trace/aggregate/steps.hpp"

#include <algorithm>

#include "trace/event.hpp"

namespace memlab::trace {
namespace {

constexpr std::uint64_t min_for_sawtooth = 16;
constexpr std::size_t min_blocks = 6;

struct Range {
    std::uint64_t min = 0;
    std::uint64_t max = 0;
};

template <typename Block>
Range find_range(const Block* first, const Block* last) {
    Range range{first->min, first->max};
    for (const Block* block = first; block != last; ++block) {
        range.min = std::min(range.min, block->min);
        range.max = std::max(range.max, block->max);
    }
    return range;
}

/// The least-squares slope of the minima, per block.
template <typename Block>
double slope(const Block* blocks, std::size_t count) {
    const double middle = (static_cast<double>(count) - 1) / 2;
    double covariance = 0;
    double variance = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const double x = static_cast<double>(i) - middle;
        // Subtract first: doubles have 53 bits, and slopes are small.
        const double y = static_cast<double>(blocks[i].min) - static_cast<double>(blocks[0].min);
        covariance += x * y;
        variance += x * x;
    }
    return variance == 0 ? 0 : covariance / variance;
}

/// The Mann-Kendall test for a rising trend of the minima, at 2.6 standard deviations (one in two
/// hundred by chance).
template <typename Block>
bool is_significant_rise(const Block* blocks, std::size_t count) {
    int score = 0;
    for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t j = i + 1; j < count; ++j) {
            score += blocks[j].min > blocks[i].min ? 1 : 0;
            score -= blocks[j].min < blocks[i].min ? 1 : 0;
        }
    }
    const auto n = static_cast<double>(count);
    const double variance = n * (n - 1) * (2 * n + 5) / 18;
    return score > 0 && static_cast<double>(score) * score >= 2.6 * 2.6 * variance;
}

/// Sustained growth: neither a single jump nor noise.
template <typename Block>
bool grows(const Block* blocks, std::size_t count) {
    if (!is_significant_rise(blocks, count)) {
        return false;
    }
    const std::size_t quarter = std::max<std::size_t>(count / 4, 1);
    if (find_range(blocks + count - quarter, blocks + count).min <=
        find_range(blocks, blocks + quarter).max) {
        return false;
    }
    int rising = 0;
    bool last_rises = false;
    for (std::size_t part = 0; part < 4; ++part) {
        const std::uint64_t from = blocks[part * (count - 1) / 4].min;
        const std::uint64_t to = blocks[(part + 1) * (count - 1) / 4].min;
        last_rises = to > from;
        rising += last_rises ? 1 : 0;
    }
    return last_rises && rising >= 3;
}

}  // namespace

const char* name_of(Verdict verdict) {
    static constexpr const char* names[] = {"too few steps", "steady", "growing", "sawtooth"};
    return name_in<Verdict::sawtooth>(names, verdict, "steady");
}

const char* name_of(StepKind kind) {
    static constexpr const char* names[] = {"mark", "scope", "range", "found"};
    return name_in<StepKind::found>(names, kind, "mark");
}

template <std::size_t size>
Trend fit_trend(const StepBlocks<size>& values) {
    Trend trend;
    if (values.used() == 0) {
        return trend;
    }
    const std::size_t warm_up = values.used() / 4;
    const auto* const blocks = values.blocks() + warm_up;
    const std::size_t count = values.used() - warm_up;
    const Range range = find_range(blocks, blocks + count);
    trend.warm_up_steps = warm_up * values.steps_per_block();
    trend.first_bytes = blocks->min;
    trend.last_bytes = values.last();
    trend.min_bytes = range.min;
    trend.max_bytes = range.max;
    if (values.steps() < StepStats::min_steps || count < min_blocks) {
        return trend;
    }
    trend.bytes_per_step = slope(blocks, count) / static_cast<double>(values.steps_per_block());
    // At least twice as many rises as falls, each fall returning most of the height, and a height
    // that is not negligible.
    const std::uint64_t height = range.max - range.min;
    const bool sawtooth = values.steps() >= min_for_sawtooth && values.falls() >= 2 &&
                          values.rises() >= 2 * values.falls() &&
                          values.fall_bytes() / values.falls() >= height / 2 &&
                          height >= range.max / 100;
    trend.verdict = grows(blocks, count) ? Verdict::growing
                    : sawtooth           ? Verdict::sawtooth
                                         : Verdict::steady;
    return trend;
}

template Trend fit_trend(const StepBlocks<StepTotals::blocks>& values);
template Trend fit_trend(const StepBlocks<StepStats::site_blocks>& values);

bool StepStats::end(StepKind kind, std::uint32_t path, std::uint64_t level, bool may_begin) {
    const std::uint64_t key = pack_key(kind, path);
    bool not_followed = false;
    ++ends_;
    auto at = index_.find(key);
    if (at == index_.end()) {
        const auto candidate = candidates_.find(key);
        if (candidate == candidates_.end()) {
            if (may_begin && candidates_.size() < max_candidates) {
                candidates_.emplace(key, Candidate{level, ends_, 1, false});
            } else if (may_begin) {
                ++kinds_left_out_;  // perhaps: whether it recurs will not be known
            }
            return false;
        }
        if (!may_begin || (kinds_.size() == max_kinds && !make_room(candidate->second))) {
            candidate->second.level = level;
            return false;
        }
        kinds_.emplace_back();
        kinds_.back().kind = kind;
        kinds_.back().path = path;
        kinds_.back().values.add(candidate->second.level);
        kinds_.back().by_site = kind == StepKind::found || followed_ < max_followed;
        followed_ += kinds_.back().by_site ? 1 : 0;
        not_followed = !kinds_.back().by_site;
        at = index_.emplace(key, static_cast<std::uint32_t>(kinds_.size() - 1)).first;
        candidates_.erase(candidate);
    }
    Kind& each = kinds_[at->second];
    each.values.add(level);
    each.last_end = ends_;
    if (each.by_site) {
        ++each.steps_followed;
        ++steps_ended_;
    }
    return not_followed;
}

/// Of the kinds that had no step since `candidate` first ended, that with fewest gives its place if
/// these are too few for a verdict, or few beside the candidate's: kinds that take turns keep
/// theirs.
bool StepStats::make_room(Candidate& candidate) {
    ++candidate.steps;
    auto least = kinds_.end();
    for (auto kind = kinds_.begin(); kind != kinds_.end(); ++kind) {
        const std::uint64_t steps = kind->values.steps();
        if (kind->last_end < candidate.ended &&
            (steps < min_steps || steps < candidate.steps / 2) &&
            (least == kinds_.end() || kind->values.steps() < least->values.steps())) {
            least = kind;
        }
    }
    if (least == kinds_.end()) {
        kinds_left_out_ += candidate.left_out ? 0 : 1;
        candidate.left_out = true;
        return false;
    }
    ++kinds_left_out_;
    followed_ -= least->by_site ? 1 : 0;
    kinds_.erase(least);
    index_.clear();
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
        index_.emplace(pack_key(kinds_[i].kind, kinds_[i].path), static_cast<std::uint32_t>(i));
    }
    return true;
}

void StepStats::follow_newest_for(std::size_t other) {
    Kind& dropped = kinds_[other];
    dropped.by_site = false;
    dropped.steps_followed = 0;
    dropped.left_out = 0;
    dropped.sites = {};
    dropped.slot = {};
    kinds_.back().by_site = true;
}

void StepStats::update_site(std::uint32_t site, std::uint64_t live) {
    if (site >= checked_at_.size()) {
        checked_at_.resize(std::size_t{site} + 1);
    }
    for (Kind& kind : kinds_) {
        if (!kind.by_site) {
            continue;
        }
        if (site >= kind.slot.size()) {
            kind.slot.resize(std::size_t{site} + 1);
        }
        std::uint32_t& slot = kind.slot[site];
        if (slot == slot_left_out) {
            continue;
        }
        if (slot == 0) {
            if (kind.sites.size() == max_sites) {
                slot = slot_left_out;
                ++kind.left_out;
                continue;
            }
            kind.sites.push_back({.site = site, .values = {}});
            slot = static_cast<std::uint32_t>(kind.sites.size());
        }
        StepBlocks<site_blocks>& values = kind.sites[slot - 1].values;
        values.add(live, kind.steps_followed - values.steps());
    }
    checked_at_[site] = steps_ended_;
}

bool StepStats::valid(std::size_t sites, std::size_t paths, std::size_t families) const {
    const auto kind_is_valid = [&](const Kind& kind) {
        return kind.path < (kind.kind == StepKind::mark ? families : paths) &&
               kind.sites.size() <= max_sites && kind.slot.size() <= sites &&
               std::all_of(kind.sites.begin(), kind.sites.end(),
                           [&](const Followed& each) {
                               return each.site < sites &&
                                      each.values.steps() <= kind.steps_followed;
                           }) &&
               std::all_of(kind.slot.begin(), kind.slot.end(), [&](std::uint32_t slot) {
                   return slot == slot_left_out || slot <= kind.sites.size();
               });
    };
    return kinds_.size() <= max_kinds && candidates_.size() <= max_candidates &&
           checked_at_.size() <= sites &&
           std::all_of(kinds_.begin(), kinds_.end(), kind_is_valid) &&
           std::all_of(index_.begin(), index_.end(),
                       [this](const auto& each) { return each.second < kinds_.size(); });
}

/// Sites count as growing only if the total moved by at least half as much: what one site gains and
/// another loses is not growth.
StepTotals StepStats::make_totals(const Kind& kind, std::vector<SiteTrend> sites) {
    StepTotals totals{.kind = kind.kind, .path = kind.path, .steps = kind.values.steps()};
    totals.trend = fit_trend(kind.values);
    totals.steps_per_block = kind.values.steps_per_block();
    totals.values.assign(kind.values.blocks(), kind.values.blocks() + kind.values.used());
    totals.by_site = kind.by_site;
    totals.sites_left_out = kind.left_out;
    totals.verdict = totals.trend.verdict;
    if (totals.verdict == Verdict::too_few_steps) {
        return totals;
    }
    std::erase_if(sites,
                  [](const SiteTrend& site) { return site.trend.verdict != Verdict::growing; });
    std::sort(sites.begin(), sites.end(), [](const SiteTrend& a, const SiteTrend& b) {
        return a.trend.bytes_per_step != b.trend.bytes_per_step
                   ? a.trend.bytes_per_step > b.trend.bytes_per_step
                   : a.site < b.site;
    });
    std::uint64_t grown = 0;
    for (const SiteTrend& site : sites) {
        grown += site.trend.max_bytes - site.trend.min_bytes;
    }
    const bool moved = totals.trend.max_bytes - totals.trend.min_bytes >= grown / 2;
    if (totals.verdict == Verdict::growing || (!sites.empty() && moved)) {
        totals.verdict = Verdict::growing;
        totals.growing = std::move(sites);
    }
    return totals;
}

}  // namespace memlab::trace
