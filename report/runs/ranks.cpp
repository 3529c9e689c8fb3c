#include "report/runs/ranks.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "model/bounded_sum.hpp"
#include "report/runs/process_rank.hpp"
#include "report/runs/process_stats.hpp"
#include "report/runs/stack_peaks.hpp"
#include "report/runs/tree.hpp"
#include "report/text/names.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

RankRow make_row(const model::Report& report, Level level) {
    RankRow row;
    const DevicesAt shown(report, level);
    double active = 0;
    double reserved = 0;
    for (const model::Device& device : report.devices) {
        if (device.is_gpu() && device.used()) {
            row.gpus.push_back(device.uuid);
        }
        if (device.fragmentation.at_peak && shown.has(device)) {
            const auto pool_reserved =
                static_cast<double>(device.curve(model::Curve::reserved).peak_bytes);
            reserved += pool_reserved;
            active += pool_reserved * (1 - *device.fragmentation.at_peak);
        }
    }
    const ProcessStats stats = process_stats(report, std::nullopt, level);
    row.allocated_peak = stats.allocated_peak;
    row.reserved_peak = stats.reserved_peak;
    row.allocations = stats.allocations;
    row.managed_peak = stats.managed_peak;
    row.pinned_peak = stats.pinned_peak;
    if (reserved > 0) {
        row.fragmentation = 1 - active / reserved;
    }
    row.ooms = report.oom_count;
    row.local_rank = find_local_rank(report.process);
    return row;
}

Imbalance compute_imbalance(const std::vector<RankRow>& ranks, std::uint64_t RankRow::*figure) {
    Imbalance result;
    double sum = 0;
    for (const RankRow& row : ranks) {
        sum += static_cast<double>(row.*figure);
        if (row.*figure > result.largest) {
            result.largest = row.*figure;
            result.rank = row.rank;
        }
    }
    result.mean = ranks.empty() ? 0 : sum / static_cast<double>(ranks.size());
    if (result.mean > 0) {
        result.ratio = static_cast<double>(result.largest) / result.mean;
    }
    return result;
}

/// Equal for places that read the same, also in different builds of a library.
std::string place_key(const std::string& kind, const Place& place) {
    std::string key = kind + "|" + place.through + "|" + base_name(place.module);
    if (place.function.empty() && place.file.empty()) {
        return key + "+" + std::to_string(place.address);
    }
    return key + "|" + place.function + "|" + base_name(place.file) + ":" +
           std::to_string(place.line);
}

/// The peaks of a stack on all ranks, in short.
struct StackSpread {
    std::size_t place = no_member;  ///< index into the places
    std::uint64_t min = 0;          ///< of the ranks that have it
    std::uint64_t max = 0;
    std::size_t ranks = 0;

    std::uint64_t difference(std::size_t of) const { return max - (ranks == of ? min : 0); }
};

/// A place, and where it is resolved: the stack of it that differs most.
struct Candidate {
    PlaceSpread spread;
    std::string key;
    std::size_t member = 0;
    std::size_t stack = 0;
    std::uint64_t difference = 0;
};

/// The stacks of each rank. Numbers those of members that were read whole.
class StacksOfRanks {
  public:
    StacksOfRanks(const RunCollection& run, const std::vector<RankRow>& ranks)
        : numbers_(run.stack_numbers ? *run.stack_numbers : own_) {
        for (const RankRow& rank : ranks) {
            const RunMember& member = run.members[rank.member];
            peaks_.push_back(member.totals_only ? member.stack_peaks
                                                : numbers_.peaks_of(member.report));
        }
    }

    const StackNumbers& numbers() const { return numbers_; }
    const std::vector<StackPeak>& peaks(std::size_t rank) const { return peaks_[rank]; }

  private:
    StackNumbers own_;
    StackNumbers& numbers_;
    std::vector<std::vector<StackPeak>> peaks_;
};

/// All places of the ranks. Which of their stacks differ is known behind them all.
class Places {
  public:
    Places(const RunCollection& run, const std::vector<RankRow>& ranks, Level level,
           const std::function<Resolver&(std::size_t)>& resolver)
        : ranks_(ranks),
          stacks_(run, ranks),
          resolver_(resolver),
          spreads_(stacks_.numbers().size()) {
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            for (const StackPeak& peak : stacks_.peaks(i)) {
                if (stacks_.numbers().has(peak.number, level)) {
                    add(i, peak);
                }
            }
        }
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            for (const StackPeak& peak : stacks_.peaks(i)) {
                find_most_different(i, peak);
            }
        }
    }

    std::vector<PlaceSpread> differing() {
        for (Candidate& place : places_) {
            const auto [min, max] =
                std::minmax_element(place.spread.peaks.begin(), place.spread.peaks.end());
            place.spread.min_rank = static_cast<std::size_t>(min - place.spread.peaks.begin());
            place.spread.max_rank = static_cast<std::size_t>(max - place.spread.peaks.begin());
        }
        std::erase_if(places_,
                      [](const Candidate& place) { return place.spread.difference() == 0; });
        std::sort(places_.begin(), places_.end(), [](const Candidate& a, const Candidate& b) {
            const std::uint64_t of_a = a.spread.difference();
            const std::uint64_t of_b = b.spread.difference();
            return of_a != of_b ? of_a > of_b : a.key < b.key;
        });
        places_.resize(std::min(places_.size(), RankComparison::max_places));
        std::vector<PlaceSpread> out;
        for (Candidate& place : places_) {
            place.spread.frames = resolver_(place.member).frames(place.stack);
            out.push_back(std::move(place.spread));
        }
        return out;
    }

  private:
    void add(std::size_t rank, const StackPeak& peak) {
        StackSpread& spread = spreads_[peak.number];
        if (spread.ranks++ == 0) {
            spread.min = peak.bytes;
            spread.place = place_of(rank, peak);
        }
        spread.min = std::min(spread.min, peak.bytes);
        spread.max = std::max(spread.max, peak.bytes);
        model::add_to(places_[spread.place].spread.peaks[rank], peak.bytes);
    }

    std::size_t place_of(std::size_t rank, const StackPeak& peak) {
        const std::string& kind = stacks_.numbers().kind(peak.number);
        const Place& place = resolver_(ranks_[rank].member).place(peak.stack);
        const auto [entry, is_new] = known_.try_emplace(place_key(kind, place), places_.size());
        if (is_new) {
            Candidate& added = places_.emplace_back();
            added.key = entry->first;
            added.spread.place = place;
            added.spread.kind = kind;
            added.spread.peaks.resize(ranks_.size());
        }
        return entry->second;
    }

    void find_most_different(std::size_t rank, const StackPeak& peak) {
        const StackSpread& spread = spreads_[peak.number];
        const std::uint64_t difference = spread.difference(ranks_.size());
        if (spread.place != no_member && difference > places_[spread.place].difference) {
            places_[spread.place].member = ranks_[rank].member;
            places_[spread.place].stack = peak.stack;
            places_[spread.place].difference = difference;
        }
    }

    const std::vector<RankRow>& ranks_;
    StacksOfRanks stacks_;
    const std::function<Resolver&(std::size_t)>& resolver_;
    std::vector<StackSpread> spreads_;  ///< by number of the stack
    std::map<std::string, std::size_t> known_;
    std::vector<Candidate> places_;
};

/// True if one of two processes is an ancestor of the other, or an earlier image of it.
bool related(const ProcessTree& tree, std::size_t a, std::size_t b) {
    const auto is_ancestor = [&tree](std::size_t ancestor, std::size_t of) {
        std::size_t steps = 0;
        for (std::size_t at = of; at != no_member && steps <= tree.nodes.size(); ++steps) {
            if (at == ancestor) {
                return true;
            }
            at = tree.nodes[at].parent;
        }
        return false;
    };
    return is_ancestor(b, a) || is_ancestor(a, b);
}

class RanksComparer {
  public:
    RanksComparer(const RunCollection& run, Level level) : run_(run), tree_(build_tree(run)) {
        out_.level = level;
    }

    RankComparison compare(const std::function<Resolver&(std::size_t)>& resolver) {
        for (std::size_t i = 0; i < run_.members.size(); ++i) {
            const model::Process& process = run_.members[i].report.process;
            if (const auto rank = find_rank(process)) {
                add(*rank, i);
                const auto size = find_world_size(process);
                if (size && (!out_.world_size || *size > *out_.world_size)) {
                    out_.world_size = size;
                }
            }
        }
        for (auto& [rank, row] : rows_) {
            out_.ranks.push_back(std::move(row));
        }
        note_missing();
        out_.allocated = imbalance_of(out_.ranks);
        out_.reserved = compute_imbalance(out_.ranks, &RankRow::reserved_peak);
        out_.nn_modules =
            spread_nn_modules(nn_modules_of_ranks(), out_.level, RankComparison::max_nn_modules);
        if (resolver && out_.ranks.size() > 1) {
            out_.places = Places(run_, out_.ranks, out_.level, resolver).differing();
        }
        return std::move(out_);
    }

  private:
    std::vector<NnModulesOfRank> nn_modules_of_ranks() const {
        std::vector<NnModulesOfRank> ranks;
        for (const RankRow& row : out_.ranks) {
            const RunMember& member = run_.members[row.member];
            ranks.push_back({&member.report, member.totals_only ? member.nn_module_peaks
                                                                : nn_module_peaks(member.report)});
        }
        return ranks;
    }
    void add(std::uint64_t rank, std::size_t member) {
        RankRow row = make_row(run_.members[member].report, out_.level);
        row.rank = rank;
        row.member = member;
        const auto [entry, is_new] = rows_.try_emplace(rank, row);
        if (is_new) {
            return;
        }
        RankRow& known = entry->second;
        const bool both_used = row.reserved_peak != 0 && known.reserved_peak != 0;
        if (both_used && !related(tree_, member, known.member)) {
            out_.notes.push_back("Rank " + std::to_string(rank) + " was found twice (" +
                                 base_name(run_.members[known.member].file) + " and " +
                                 base_name(run_.members[member].file) +
                                 "); the larger stands for it. Are two runs in one place?");
        }
        const std::size_t processes = known.reserved_peak == 0 || row.reserved_peak == 0
                                          ? known.processes
                                          : known.processes + 1;
        if (row.allocated_peak > known.allocated_peak ||
            (known.reserved_peak == 0 && row.reserved_peak != 0)) {
            known = std::move(row);
        }
        known.processes = processes;
    }

    void note_missing() {
        if (!out_.world_size || out_.ranks.empty()) {
            return;
        }
        std::set<std::uint64_t> here;
        for (const auto& [rank, row] : rows_) {
            here.insert(rank);
        }
        if (std::string text = missing_ranks_text(*out_.world_size, here); !text.empty()) {
            out_.notes.push_back(std::move(text));
        }
    }

    const RunCollection& run_;
    ProcessTree tree_;
    std::map<std::uint64_t, RankRow> rows_;
    RankComparison out_;
};

}  // namespace

Level level_of_ranks(const RunCollection& run) {
    bool any = false;
    for (const RunMember& member : run.members) {
        const auto& devices = member.report.devices;
        const bool used = std::any_of(devices.begin(), devices.end(), [](const auto& device) {
            return device.curve(model::Curve::reserved).peak_bytes != 0;
        });
        if (used && find_rank(member.report.process)) {
            if (!is_seen_inside(member.report)) {
                return Level::driver;
            }
            any = true;
        }
    }
    return any ? Level::framework : Level::driver;
}

Imbalance imbalance_of(const std::vector<RankRow>& ranks) {
    return compute_imbalance(ranks, &RankRow::allocated_peak);
}

std::string imbalance_text(const Imbalance& imbalance) {
    // The mean is at most the largest, but a rounded double may exceed it, and 64 bits.
    const std::uint64_t mean = imbalance.mean < static_cast<double>(imbalance.largest)
                                   ? static_cast<std::uint64_t>(imbalance.mean)
                                   : imbalance.largest;
    return "rank " + std::to_string(imbalance.rank) + " peaks at " +
           format_bytes(imbalance.largest) + ", the mean is " + format_bytes(mean);
}

std::vector<RankRow> ranks_of(const RunCollection& run, const std::optional<Level>& level) {
    return compare_ranks(run, {}, level).ranks;
}

RankComparison compare_ranks(const RunCollection& run,
                             const std::function<Resolver&(std::size_t)>& resolver,
                             const std::optional<Level>& level) {
    return RanksComparer(run, level ? *level : level_of_ranks(run)).compare(resolver);
}

std::vector<std::string> notes_of_ranks(const RunCollection& run, const RankComparison& ranks) {
    std::vector<std::string> notes = ranks.notes;
    notes.insert(notes.end(), run.notes.begin(), run.notes.end());
    for (const Lack& lack : run.lacks) {
        if (lack.kind != Lack::Kind::ranks) {  // the comparison has noted it
            notes.push_back(lack.text);
        }
    }
    return notes;
}

}  // namespace memlab::report
