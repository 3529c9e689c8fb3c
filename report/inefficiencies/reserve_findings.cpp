#include "report/inefficiencies/reserve_findings.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "report/text/units.hpp"

namespace memlab::report {

namespace {

struct GrowthBlocks {
    struct Kept {
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
        std::uint64_t segments = 0;
        std::uint64_t free_bytes = 0;
        std::uint64_t oldest_ns = std::numeric_limits<std::uint64_t>::max();
        std::vector<BlockLayout> blocks;
    };
    std::map<std::size_t, Kept> pending;  ///< freed, but not yet to be reused; by row
    std::map<std::size_t, Kept> pinning;  ///< alone in segments that are mostly free; by row
};

constexpr std::uint64_t pinned_part = 4;  ///< a pinned segment is at most 1/4 full

void add_block(GrowthBlocks::Kept& kept, const BlockLayout& block) {
    ++kept.count;
    kept.bytes += block.size;
    kept.oldest_ns = std::min(kept.oldest_ns, block.time_ns);
    kept.blocks.push_back(block);
}

GrowthBlocks blocks_at_growth(const Growth& moment, const std::vector<SiteRow>& rows) {
    std::map<std::size_t, std::size_t> row_of;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        for (const std::size_t site : rows[i].sites) {
            row_of.emplace(site, i);
        }
    }
    GrowthBlocks found;
    for (const SegmentLayout& segment : moment.segments) {
        std::set<std::size_t> in_it;
        bool known = true;
        std::uint64_t bytes = 0;
        for (const BlockLayout& block : segment.blocks) {
            const auto row = row_of.find(block.site);
            known = known && row != row_of.end();
            if (row == row_of.end()) {
                continue;
            }
            in_it.insert(row->second);
            bytes += block.size;
            if (block.pending) {
                add_block(found.pending[row->second], block);
            }
        }
        if (known && in_it.size() == 1 && bytes <= segment.size / pinned_part) {
            GrowthBlocks::Kept& kept = found.pinning[*in_it.begin()];
            for (const BlockLayout& block : segment.blocks) {
                add_block(kept, block);
            }
            kept.segments += 1;
            kept.free_bytes += segment.free_bytes();
        }
    }
    return found;
}

void try_settings(Replays& replays, const model::Device& device, std::uint64_t least,
                  UnusedReserve* reserve) {
    reserve->replayed = true;
    if (const auto better = replays.better_setting(device, least)) {
        reserve->setting = better->setting;
        reserve->with_setting_bytes = better->reserved_peak;
    }
}

class ReserveFinder {
  public:
    ReserveFinder(const model::Report& report, const InefficiencyQuery& query, Replays& replays,
                  DeviceFindings* found)
        : report_(report), query_(query), replays_(replays), found_(*found) {}

    /// The pool just before its reserved peak. What kept it from reusing memory is a finding if the
    /// same pool reserves less in a replay without it.
    void growth(const Growth& moment, const std::vector<SiteRow>& rows) {
        const model::Device& device = *found_.device;
        const std::uint64_t least = found_.least_bytes;
        const GrowthBlocks blocks = blocks_at_growth(moment, rows);
        const std::string when =
            "When the pool grew to its largest, at " + format_duration(moment.time_ns) + ", ";
        bool any_pinning = false;
        if (is_wanted(query_, Pattern::late_reuse)) {
            for (const auto& [row, kept] : blocks.pending) {
                if (kept.bytes >= least) {
                    late_reuse(device, rows[row], when, kept);
                }
            }
        }
        for (const auto& [row, kept] : blocks.pinning) {
            any_pinning = any_pinning || kept.free_bytes >= least;
            if (is_wanted(query_, Pattern::fragmentation_source) && kept.free_bytes >= least) {
                pinning(device, rows[row], when, moment.time_ns, kept);
            }
        }
        reserve(device, any_pinning);
    }

  private:
    /// Reserved memory that is a multiple of what was allocated, or kept by a few blocks, and the
    /// setting that mends it.
    void reserve(const model::Device& device, bool any_pinning) {
        if (!is_wanted(query_, Pattern::unused_reserve) || !query_.patterns_of_all_sites) {
            return;
        }
        if (!any_pinning && !find_possible_reserve(report_, device)) {
            return;
        }
        UnusedReserve tried;
        tried.reserved_bytes = device.curve(model::Curve::reserved).peak_bytes;
        tried.allocated_bytes = device.curve(model::Curve::allocated).peak_bytes;
        try_settings(replays_, device, found_.least_bytes, &tried);
        if (!tried.setting.empty() || find_unused_reserve(report_, device)) {
            found_.reserve = std::move(tried);
        }
    }

    /// `what` begins with the blocks: "When the pool grew, 2 blocks of 3.00 MiB in all".
    static Finding of_blocks(Pattern pattern, const SiteRow& row, const std::string& when,
                             const GrowthBlocks::Kept& kept, std::uint64_t saved) {
        Finding finding = make_finding(pattern, Confidence::likely, row);
        finding.count = kept.count;
        finding.bytes = kept.bytes;
        finding.saving.reserved_bytes = saved;
        finding.what = when + format_plural(kept.count, "block") + " of " +
                       format_bytes(kept.bytes) + " in all";
        return finding;
    }

    void pinning(const model::Device& device, const SiteRow& row, const std::string& when,
                 std::uint64_t time_ns, const GrowthBlocks::Kept& kept) {
        const std::uint64_t saved = replays_.saved_if_first(device, kept.blocks);
        if (saved == 0) {
            return;
        }
        Finding finding = of_blocks(Pattern::fragmentation_source, row, when, kept, saved);
        finding.what += " kept " + format_plural(kept.segments, "segment") + " with " +
                        format_bytes(kept.free_bytes) +
                        " free that could not serve what was asked for. The oldest was there for " +
                        format_duration(time_ns - std::min(time_ns, kept.oldest_ns)) + ".";
        finding.change =
            "Allocate them before what comes and goes: a replay in which they come first reserves "
            "that much less.";
        found_.findings.push_back(std::move(finding));
    }

    void late_reuse(const model::Device& device, const SiteRow& row, const std::string& when,
                    const GrowthBlocks::Kept& kept) {
        const std::uint64_t saved = replays_.saved_if_reused_at_once(device, kept.blocks);
        if (saved == 0) {
            return;
        }
        Finding finding = of_blocks(Pattern::late_reuse, row, when, kept, saved);
        finding.what += " had been freed, but the GPU might still have been using ";
        finding.what += kept.count == 1 ? "it." : "them.";
        finding.change =
            "Reuse such a buffer in stream order instead of freeing it, or free it before the work "
            "that follows is submitted: a replay in which they can be reused at once reserves that "
            "much less.";
        found_.findings.push_back(std::move(finding));
    }

    const model::Report& report_;
    const InefficiencyQuery& query_;
    Replays& replays_;
    DeviceFindings& found_;
};

}  // namespace

void find_in_reserve(const model::Report& report, const InefficiencyQuery& query,
                     const Growth& moment, const std::vector<SiteRow>& rows, Replays& replays,
                     DeviceFindings* found) {
    ReserveFinder(report, query, replays, found).growth(moment, rows);
}

void try_settings_on_reserve(const std::string& log, const whatif::PoolSettingsOf& settings,
                             Summary& summary) {
    if (log.empty() || !settings) {
        return;
    }
    Replays replays(log, settings);
    for (DeviceSummary& each : summary.devices) {
        if (each.reserve) {
            try_settings(replays, *each.device, least_bytes(*summary.report, *each.device),
                         &*each.reserve);
        }
    }
}

}  // namespace memlab::report
