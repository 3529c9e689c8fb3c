#include "report/runs/ranks.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "model/bounded_sum.hpp"
#include "report/device_allocations.hpp"
#include "report/runs/process_rank.hpp"
#include "report/runs/stack_peaks.hpp"
#include "report/runs/tree.hpp"
#include "report/text/names.hpp"

namespace memlab::report {

namespace {

RankRow make_row(const model::Report& report) {
    RankRow row;
    double active = 0;
    double reserved = 0;
    for (const model::Device& device : report.devices) {
        const model::CurveSummary& device_reserved = device.curve(model::Curve::reserved);
        if (!device.is_gpu() || (device_reserved.peak_bytes == 0 && device.kinds.empty())) {
            continue;
        }
        row.gpus.push_back(device.uuid);
        model::add_to(row.allocated_peak, device.curve(model::Curve::allocated).peak_bytes);
        model::add_to(row.reserved_peak, device_reserved.peak_bytes);
        for (const auto& [kind, totals] : device.kinds) {
            model::add_to(row.managed_peak, kind == "managed" ? totals.peak_bytes : 0);
            model::add_to(row.pinned_peak, kind == "pinned" ? totals.peak_bytes : 0);
        }
        if (device.fragmentation.at_peak) {
            const auto pool_reserved = static_cast<double>(device_reserved.peak_bytes);
            reserved += pool_reserved;
            active += pool_reserved * (1 - *device.fragmentation.at_peak);
        }
        model::add_to(row.allocations, allocation_count(device, Counted::device_memory));
    }
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

/// Key of a stack by names: also equal for different builds of a library.
std::string symbol_key(const std::string& kind, const std::vector<StackFrame>& frames) {
    std::string key = kind;
    for (const StackFrame& frame : frames) {
        key += '|';
        if (frame.function.empty()) {
            key += base_name(frame.module) + "+" + std::to_string(frame.address);
        } else {
            key += frame.function + ":" + std::to_string(frame.line);
        }
    }
    return key;
}

struct Candidate {
    std::size_t member = 0;  ///< which has `stack`
    std::size_t stack = 0;
    std::string kind;
    std::vector<std::uint64_t> peaks;
};

/// The peaks of a stack on all ranks, in short.
struct StackSpread {
    std::size_t member = no_member;  ///< the first that has it
    std::size_t stack = 0;           ///< there
    std::uint64_t min = 0;           ///< of the ranks that have it
    std::uint64_t max = 0;
    std::size_t ranks = 0;

    std::uint64_t difference(std::size_t of) const { return max - (ranks == of ? min : 0); }
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

    std::uint64_t peak(std::size_t rank, std::uint32_t number) const {
        const std::vector<StackPeak>& peaks = peaks_[rank];
        const auto found = std::lower_bound(
            peaks.begin(), peaks.end(), number,
            [](const StackPeak& each, std::uint32_t wanted) { return each.number < wanted; });
        return found != peaks.end() && found->number == number ? found->bytes : 0;
    }

  private:
    StackNumbers own_;
    StackNumbers& numbers_;
    std::vector<std::vector<StackPeak>> peaks_;
};

/// Stacks whose peaks differ, largest difference first. Unresolved: symbolizing is expensive and
/// only done for the largest ones.
std::vector<Candidate> find_differing_stacks(const RunCollection& run,
                                             const std::vector<RankRow>& ranks) {
    const StacksOfRanks stacks(run, ranks);
    std::vector<StackSpread> spreads(stacks.numbers().size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        for (const StackPeak& peak : stacks.peaks(i)) {
            StackSpread& spread = spreads[peak.number];
            if (spread.ranks++ == 0) {
                spread = {ranks[i].member, peak.stack, peak.bytes, peak.bytes, 1};
            }
            spread.min = std::min(spread.min, peak.bytes);
            spread.max = std::max(spread.max, peak.bytes);
        }
    }
    std::vector<std::uint32_t> differing;
    for (std::uint32_t number = 0; number < spreads.size(); ++number) {
        if (spreads[number].difference(ranks.size()) != 0) {
            differing.push_back(number);
        }
    }
    std::sort(differing.begin(), differing.end(), [&](std::uint32_t a, std::uint32_t b) {
        const std::uint64_t of_a = spreads[a].difference(ranks.size());
        const std::uint64_t of_b = spreads[b].difference(ranks.size());
        return of_a != of_b ? of_a > of_b : stacks.numbers().key(a) < stacks.numbers().key(b);
    });
    // The same code in two builds gives two candidates here, which are merged later.
    differing.resize(std::min(differing.size(), 4 * RankComparison::max_places));
    std::vector<Candidate> candidates;
    for (const std::uint32_t number : differing) {
        Candidate candidate{
            spreads[number].member, spreads[number].stack, stacks.numbers().kind(number), {}};
        candidate.peaks.reserve(ranks.size());
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            candidate.peaks.push_back(stacks.peak(i, number));
        }
        candidates.push_back(std::move(candidate));
    }
    return candidates;
}

std::vector<PlaceSpread> find_differing_places(
    const RunCollection& run, const std::vector<RankRow>& ranks,
    const std::function<Resolver&(std::size_t)>& resolver) {
    std::map<std::string, std::size_t> known;
    std::vector<PlaceSpread> places;
    for (const Candidate& candidate : find_differing_stacks(run, ranks)) {
        Resolver& names = resolver(candidate.member);
        const std::vector<StackFrame>& frames = names.frames(candidate.stack);
        const auto [entry, is_new] =
            known.try_emplace(symbol_key(candidate.kind, frames), places.size());
        if (is_new) {
            PlaceSpread spread;
            spread.place = names.place(candidate.stack);
            spread.kind = candidate.kind;
            spread.frames = frames;
            spread.peaks.resize(ranks.size());
            places.push_back(std::move(spread));
        }
        std::vector<std::uint64_t>& peaks = places[entry->second].peaks;
        for (std::size_t i = 0; i < peaks.size(); ++i) {
            model::add_to(peaks[i], candidate.peaks[i]);
        }
    }
    for (PlaceSpread& spread : places) {
        const auto [min, max] = std::minmax_element(spread.peaks.begin(), spread.peaks.end());
        spread.min_rank = static_cast<std::size_t>(min - spread.peaks.begin());
        spread.max_rank = static_cast<std::size_t>(max - spread.peaks.begin());
    }
    std::erase_if(places, [](const PlaceSpread& spread) { return spread.difference() == 0; });
    std::stable_sort(places.begin(), places.end(),
                     [](const auto& a, const auto& b) { return a.difference() > b.difference(); });
    places.resize(std::min(places.size(), RankComparison::max_places));
    return places;
}

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
    explicit RanksComparer(const RunCollection& run) : run_(run), tree_(build_tree(run)) {}

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
        out_.allocated = compute_imbalance(out_.ranks, &RankRow::allocated_peak);
        out_.reserved = compute_imbalance(out_.ranks, &RankRow::reserved_peak);
        if (out_.ranks.size() > 1) {
            out_.places = find_differing_places(run_, out_.ranks, resolver);
        }
        return std::move(out_);
    }

  private:
    void add(std::uint64_t rank, std::size_t member) {
        RankRow row = make_row(run_.members[member].report);
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

RankComparison compare_ranks(const RunCollection& run,
                             const std::function<Resolver&(std::size_t)>& resolver) {
    return RanksComparer(run).compare(resolver);
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
