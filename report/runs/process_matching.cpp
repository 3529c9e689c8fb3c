#include "report/runs/process_matching.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "report/runs/process_rank.hpp"
#include "report/runs/process_stats.hpp"
#include "report/text/names.hpp"
#include "report/text/shell_word.hpp"

namespace memlab::report {

namespace {

using Members = std::vector<std::size_t>;

class ProcessMatcher {
  public:
    ProcessMatcher(const RunCollection& before, const RunCollection& after)
        : before_(before), after_(after) {
        unmatched_before_ = all_members(before);
        unmatched_after_ = all_members(after);
    }

    ProcessMatching match() {
        const std::map<std::uint64_t, std::size_t> ranks_before = representatives(before_);
        const std::map<std::uint64_t, std::size_t> ranks_after = representatives(after_);
        out_.by_rank = !ranks_before.empty() && !ranks_after.empty();
        if (out_.by_rank) {
            match_ranks(ranks_before, ranks_after);
        }
        match_by([](const model::Process& process) { return program_name(process); });
        match_by([](const model::Process& process) { return base_name(process.executable); });
        for (const std::size_t member : unmatched_before_) {
            out_.pairs.push_back({member, no_member, member_rank(before_, member)});
        }
        for (const std::size_t member : unmatched_after_) {
            out_.pairs.push_back({no_member, member, member_rank(after_, member)});
        }
        std::stable_sort(
            out_.pairs.begin(), out_.pairs.end(),
            [](const ProcessPair& a, const ProcessPair& b) { return order(a) < order(b); });
        return std::move(out_);
    }

  private:
    static Members all_members(const RunCollection& run) {
        Members members(run.members.size());
        for (std::size_t i = 0; i < members.size(); ++i) {
            members[i] = i;
        }
        return members;
    }

    static std::optional<std::uint64_t> member_rank(const RunCollection& run, std::size_t member) {
        return find_rank(run.members[member].report.process);
    }

    static std::tuple<bool, std::uint64_t, bool, std::size_t, std::size_t> order(
        const ProcessPair& pair) {
        return {!pair.rank, pair.rank.value_or(0), !pair.stands_for_rank, pair.after, pair.before};
    }

    /// The process that represents each rank.
    static std::map<std::uint64_t, std::size_t> representatives(const RunCollection& run) {
        const auto size = [&run](std::size_t member) {
            const ProcessStats figures = process_stats(run.members[member].report);
            return std::make_pair(figures.allocated_peak, figures.reserved_peak);
        };
        std::map<std::uint64_t, std::size_t> representatives;
        for (std::size_t i = 0; i < run.members.size(); ++i) {
            if (const auto rank = member_rank(run, i)) {
                const auto [entry, is_new] = representatives.try_emplace(*rank, i);
                if (!is_new && size(i) > size(entry->second)) {
                    entry->second = i;
                }
            }
        }
        return representatives;
    }

    void match_ranks(const std::map<std::uint64_t, std::size_t>& ranks_before,
                     const std::map<std::uint64_t, std::size_t>& ranks_after) {
        std::map<std::uint64_t, ProcessPair> ranks;
        for (const auto& [rank, member] : ranks_before) {
            ranks[rank].before = member;
            std::erase(unmatched_before_, member);
        }
        for (const auto& [rank, member] : ranks_after) {
            ranks[rank].after = member;
            std::erase(unmatched_after_, member);
        }
        for (auto& [rank, pair] : ranks) {
            pair.rank = rank;
            pair.stands_for_rank = true;
            out_.pairs.push_back(pair);
        }
    }

    /// Pairs the unmatched processes: the nth of a name with the nth of the same name, helpers only
    /// with helpers of the same rank.
    template <class Name>
    void match_by(const Name& name) {
        const auto key = [&](const RunCollection& run, std::size_t member) {
            const std::optional<std::uint64_t> rank =
                out_.by_rank ? member_rank(run, member) : std::nullopt;
            return std::make_pair(rank, name(run.members[member].report.process));
        };
        std::map<std::pair<std::optional<std::uint64_t>, std::string>, Members> candidates;
        for (const std::size_t member : unmatched_before_) {
            candidates[key(before_, member)].push_back(member);
        }
        std::set<std::size_t> matched;
        std::erase_if(unmatched_after_, [&](std::size_t member) {
            const auto found = candidates.find(key(after_, member));
            if (found == candidates.end() || found->second.empty()) {
                return false;
            }
            const std::size_t partner = found->second.front();
            found->second.erase(found->second.begin());
            matched.insert(partner);
            out_.pairs.push_back({partner, member, member_rank(after_, member)});
            return true;
        });
        std::erase_if(unmatched_before_,
                      [&](std::size_t member) { return matched.contains(member); });
    }

    const RunCollection& before_;
    const RunCollection& after_;
    Members unmatched_before_;  ///< by start
    Members unmatched_after_;
    ProcessMatching out_;
};

/// The message for `what` ("rank 3"), which is in one run only.
std::string explain_unmatched(const RunCollection& before, const RunCollection& after,
                              const ProcessPair& pair, const std::string& what) {
    const bool added = pair.before == no_member;
    const std::string& file =
        added ? after.members[pair.after].file : before.members[pair.before].file;
    return what + " is in " + (added ? "AFTER" : "BEFORE") + " alone; memlab-report " +
           shell_file(file) + " shows it";
}

bool is_number(const std::string& text) {
    return text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

ProcessMatching match_processes(const RunCollection& before, const RunCollection& after) {
    return ProcessMatcher(before, after).match();
}

std::optional<ProcessPair> find_rank_pair(const RunCollection& before, const RunCollection& after,
                                          const ProcessMatching& matching, std::uint64_t rank,
                                          std::string* problem) {
    if (!matching.by_rank) {
        *problem =
            "not both runs have ranks; --process names a process by its program or process id";
        return std::nullopt;
    }
    const std::string what = "rank " + std::to_string(rank);
    const auto found = std::find_if(
        matching.pairs.begin(), matching.pairs.end(),
        [&](const ProcessPair& pair) { return pair.stands_for_rank && pair.rank == rank; });
    if (found == matching.pairs.end()) {
        *problem = what + " is in neither run; memlab-report merge FOLDER lists the ranks";
        return std::nullopt;
    }
    if (!found->both()) {
        *problem = explain_unmatched(before, after, *found, what);
        return std::nullopt;
    }
    return *found;
}

std::optional<ProcessPair> find_process_pair(const RunCollection& before,
                                             const RunCollection& after,
                                             const ProcessMatching& matching,
                                             const std::string& name_or_pid, std::string* problem) {
    const bool by_id = is_number(name_or_pid);
    const auto matches = [&](const RunCollection& run, std::size_t member) {
        if (member == no_member) {
            return false;
        }
        const model::Process& process = run.members[member].report.process;
        return by_id ? std::to_string(process.pid) == name_or_pid
                     : program_name(process) == name_or_pid ||
                           base_name(process.executable) == name_or_pid;
    };
    std::vector<ProcessPair> in_before;
    std::vector<ProcessPair> in_after;
    for (const ProcessPair& pair : matching.pairs) {
        if (matches(after, pair.after)) {
            in_after.push_back(pair);
        } else if (matches(before, pair.before)) {
            in_before.push_back(pair);
        }
    }
    std::vector<ProcessPair> found = in_after;
    // In the other run the same id may be of another process.
    if (!by_id || found.empty()) {
        found.insert(found.end(), in_before.begin(), in_before.end());
    }
    const std::string what = "process " + name_or_pid;
    if (found.empty()) {
        *problem = what + " is in neither run; memlab-report FOLDER lists the processes";
        return std::nullopt;
    }
    // A process in one run only does not make the name of a pair ambiguous.
    if (std::any_of(found.begin(), found.end(), [](const auto& pair) { return pair.both(); })) {
        std::erase_if(found, [](const ProcessPair& pair) { return !pair.both(); });
    }
    if (!found.front().both()) {
        *problem = explain_unmatched(before, after, found.front(), what);
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

std::vector<std::string> program_command(const model::Process& process) {
    const std::vector<std::string>& arguments = process.arguments;
    std::vector<std::string> whole = arguments;
    if (whole.empty()) {
        whole.push_back(process.executable);
    }
    whole.front() = base_name(whole.front());
    if (!base_name(process.executable).starts_with("python")) {
        return whole;
    }
    std::size_t at = 1;
    for (; at < arguments.size(); ++at) {
        if (arguments[at] == "-m" && at + 1 < arguments.size()) {
            return {arguments.begin() + static_cast<std::ptrdiff_t>(at) + 1, arguments.end()};
        }
        if (arguments[at] == "-c") {
            return whole;
        }
        if (arguments[at] == "-W" || arguments[at] == "-X") {
            ++at;  // its value
        } else if (!arguments[at].starts_with("-")) {
            std::vector<std::string> script(arguments.begin() + static_cast<std::ptrdiff_t>(at),
                                            arguments.end());
            script.front() = base_name(script.front());
            return script;
        }
    }
    return whole;
}

std::string program_name(const model::Process& process) {
    const std::vector<std::string> command = program_command(process);
    const bool is_script = !process.arguments.empty() && command.size() < process.arguments.size();
    return is_script ? command.front() : base_name(process.executable);
}

}  // namespace memlab::report
