#include "report/runs/pairs.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "report/runs/process_figures.hpp"
#include "report/runs/ranks.hpp"
#include "report/text/names.hpp"

namespace memlab::report {

namespace {

using Members = std::vector<std::size_t>;

class Pairer {
  public:
    Pairer(const RunCollection& before, const RunCollection& after)
        : before_(before), after_(after) {
        free_before_ = all(before);
        free_after_ = all(after);
    }

    Pairing pair() {
        const std::map<std::uint64_t, std::size_t> first = standing(before_);
        const std::map<std::uint64_t, std::size_t> then = standing(after_);
        out_.by_rank = !first.empty() && !then.empty();
        if (out_.by_rank) {
            pair_ranks(first, then);
        }
        pair_by([](const Process& process) { return program_name(process); });
        pair_by([](const Process& process) { return base_name(process.executable); });
        for (const std::size_t member : free_before_) {
            out_.pairs.push_back({member, no_member, rank_in(before_, member)});
        }
        for (const std::size_t member : free_after_) {
            out_.pairs.push_back({no_member, member, rank_in(after_, member)});
        }
        std::stable_sort(
            out_.pairs.begin(), out_.pairs.end(),
            [](const ProcessPair& a, const ProcessPair& b) { return order(a) < order(b); });
        return std::move(out_);
    }

  private:
    static Members all(const RunCollection& run) {
        Members members(run.members.size());
        for (std::size_t i = 0; i < members.size(); ++i) {
            members[i] = i;
        }
        return members;
    }

    static std::optional<std::uint64_t> rank_in(const RunCollection& run, std::size_t member) {
        return rank_of(run.members[member].report.process);
    }

    static std::tuple<bool, std::uint64_t, bool, std::size_t, std::size_t> order(
        const ProcessPair& pair) {
        return {!pair.rank, pair.rank.value_or(0), !pair.stands_for_rank, pair.after, pair.before};
    }

    /// The process that stands for each rank.
    static std::map<std::uint64_t, std::size_t> standing(const RunCollection& run) {
        const auto size = [&run](std::size_t member) {
            const ProcessFigures figures = process_figures(run.members[member].report);
            return std::make_pair(figures.allocated_peak, figures.reserved_peak);
        };
        std::map<std::uint64_t, std::size_t> standing;
        for (std::size_t i = 0; i < run.members.size(); ++i) {
            if (const auto rank = rank_in(run, i)) {
                const auto [entry, is_new] = standing.try_emplace(*rank, i);
                if (!is_new && size(i) > size(entry->second)) {
                    entry->second = i;
                }
            }
        }
        return standing;
    }

    void pair_ranks(const std::map<std::uint64_t, std::size_t>& first,
                    const std::map<std::uint64_t, std::size_t>& then) {
        std::map<std::uint64_t, ProcessPair> ranks;
        for (const auto& [rank, member] : first) {
            ranks[rank].before = member;
            std::erase(free_before_, member);
        }
        for (const auto& [rank, member] : then) {
            ranks[rank].after = member;
            std::erase(free_after_, member);
        }
        for (auto& [rank, pair] : ranks) {
            pair.rank = rank;
            pair.stands_for_rank = true;
            out_.pairs.push_back(pair);
        }
    }

    /// Pairs of those that are left the nth of a name with the nth of that name; helpers only with
    /// those of the same rank.
    template <class Name>
    void pair_by(const Name& name) {
        const auto key = [&](const RunCollection& run, std::size_t member) {
            const std::optional<std::uint64_t> rank =
                out_.by_rank ? rank_in(run, member) : std::nullopt;
            return std::make_pair(rank, name(run.members[member].report.process));
        };
        std::map<std::pair<std::optional<std::uint64_t>, std::string>, Members> waiting;
        for (const std::size_t member : free_before_) {
            waiting[key(before_, member)].push_back(member);
        }
        std::set<std::size_t> taken;
        std::erase_if(free_after_, [&](std::size_t member) {
            const auto found = waiting.find(key(after_, member));
            if (found == waiting.end() || found->second.empty()) {
                return false;
            }
            const std::size_t partner = found->second.front();
            found->second.erase(found->second.begin());
            taken.insert(partner);
            out_.pairs.push_back({partner, member, rank_in(after_, member)});
            return true;
        });
        std::erase_if(free_before_, [&](std::size_t member) { return taken.contains(member); });
    }

    const RunCollection& before_;
    const RunCollection& after_;
    Members free_before_;  ///< by start
    Members free_after_;
    Pairing out_;
};

/// `what` ("rank 3") is in one run only: its file says more than a comparison can.
std::string alone(const RunCollection& before, const RunCollection& after, const ProcessPair& pair,
                  const std::string& what) {
    const bool added = pair.before == no_member;
    const std::string& file =
        added ? after.members[pair.after].file : before.members[pair.before].file;
    return what + " is in " + (added ? "AFTER" : "BEFORE") + " alone; memlab-report " + file +
           " shows it";
}

bool is_number(const std::string& text) {
    return text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

Pairing pair_processes(const RunCollection& before, const RunCollection& after) {
    return Pairer(before, after).pair();
}

std::optional<ProcessPair> pair_of_rank(const RunCollection& before, const RunCollection& after,
                                        const Pairing& pairing, std::uint64_t rank,
                                        std::string* problem) {
    if (!pairing.by_rank) {
        *problem =
            "not both runs have ranks; --process names a process by its program or process id";
        return std::nullopt;
    }
    const std::string what = "rank " + std::to_string(rank);
    const auto found = std::find_if(
        pairing.pairs.begin(), pairing.pairs.end(),
        [&](const ProcessPair& pair) { return pair.stands_for_rank && pair.rank == rank; });
    if (found == pairing.pairs.end()) {
        *problem = what + " is in neither run; memlab-report merge FOLDER lists the ranks";
        return std::nullopt;
    }
    if (!found->both()) {
        *problem = alone(before, after, *found, what);
        return std::nullopt;
    }
    return *found;
}

std::optional<ProcessPair> pair_of_process(const RunCollection& before, const RunCollection& after,
                                           const Pairing& pairing, const std::string& name_or_pid,
                                           std::string* problem) {
    const bool by_id = is_number(name_or_pid);
    const auto is_meant = [&](const RunCollection& run, std::size_t member) {
        if (member == no_member) {
            return false;
        }
        const Process& process = run.members[member].report.process;
        return by_id ? std::to_string(process.pid) == name_or_pid
                     : program_name(process) == name_or_pid ||
                           base_name(process.executable) == name_or_pid;
    };
    std::vector<ProcessPair> in_before;
    std::vector<ProcessPair> in_after;
    for (const ProcessPair& pair : pairing.pairs) {
        if (is_meant(after, pair.after)) {
            in_after.push_back(pair);
        } else if (is_meant(before, pair.before)) {
            in_before.push_back(pair);
        }
    }
    std::vector<ProcessPair> found = in_after;
    // The same id may be another process's in the other run.
    if (!by_id || found.empty()) {
        found.insert(found.end(), in_before.begin(), in_before.end());
    }
    const std::string what = "process " + name_or_pid;
    if (found.empty()) {
        *problem = what + " is in neither run; memlab-report FOLDER lists the processes";
        return std::nullopt;
    }
    // One that has no partner does not make the name of a pair ambiguous.
    if (std::any_of(found.begin(), found.end(), [](const auto& pair) { return pair.both(); })) {
        std::erase_if(found, [](const ProcessPair& pair) { return !pair.both(); });
    }
    if (!found.front().both()) {
        *problem = alone(before, after, found.front(), what);
        return std::nullopt;
    }
    if (found.size() > 1) {
        constexpr std::size_t max_named = 8;
        std::string ids;
        for (std::size_t i = 0; i < found.size() && i < max_named; ++i) {
            ids += (i == 0 ? ": " : ", ") +
                   std::to_string(after.members[found[i].after].report.process.pid);
        }
        *problem = std::to_string(found.size()) + " pairs of processes " +
                   (by_id ? "have the id " + name_or_pid + "; compare two of their reports"
                          : "are called " + name_or_pid + "; name one by its process id" + ids +
                                (found.size() > max_named ? ", ..." : ""));
        return std::nullopt;
    }
    return found.front();
}

std::string program_name(const Process& process) {
    std::string executable = base_name(process.executable);
    if (!executable.starts_with("python")) {
        return executable;
    }
    const std::vector<std::string>& arguments = process.arguments;
    for (std::size_t i = 1; i < arguments.size(); ++i) {
        if (arguments[i] == "-m" && i + 1 < arguments.size()) {
            return arguments[i + 1];
        }
        if (arguments[i] == "-c") {
            return executable;
        }
        if (arguments[i] == "-W" || arguments[i] == "-X") {
            ++i;  // its value
        } else if (!arguments[i].starts_with("-")) {
            return base_name(arguments[i]);
        }
    }
    return executable;
}

}  // namespace memlab::report
