#include "report/symbols/skip_proposal.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "model/bounded_sum.hpp"
#include "report/symbols/frame_choice.hpp"
#include "report/text/names.hpp"
#include "report/text/shell_word.hpp"

namespace memlab::report {

namespace {

constexpr std::size_t least_callers = 3;

bool is_most(std::uint64_t part, std::uint64_t all) {
    return part > all - std::min(all, part);
}

}  // namespace

std::string SkipProposal::text() const {
    return "Most of it is allocated by one function for many others: --skip " +
           shell_word(pattern) + " shows its " + std::to_string(places) + " callers.";
}

std::optional<SkipProposal> propose_skip(
    Resolver& resolver, const std::vector<std::pair<std::size_t, std::uint64_t>>& stacks,
    std::uint64_t all_bytes) {
    std::uint64_t sum = 0;
    for (const auto& [stack, bytes] : stacks) {
        model::add_to(sum, bytes);
    }
    if (stacks.size() < least_callers || sum == 0 || !is_most(sum, all_bytes)) {
        return std::nullopt;
    }
    const std::size_t wrapper = resolver.chosen(stacks.front().first);
    const std::vector<StackFrame>& first = resolver.frames(stacks.front().first);
    if (wrapper >= first.size() || first[wrapper].function.empty()) {
        return std::nullopt;
    }
    SkipProposal proposal{"func=" + bare_function_name(first[wrapper].function), 0};
    FrameSkips skips;
    if (!skips.add(proposal.pattern).empty()) {
        return std::nullopt;
    }
    std::map<std::tuple<std::string, std::string, int>, std::uint64_t> callers;
    for (const auto& [stack, bytes] : stacks) {
        std::vector<StackFrame> frames = resolver.frames(stack);
        for (StackFrame& frame : frames) {
            frame.skipped =
                frame.skipped || (frame.rank < FrameRank::startup && skips.skips(frame));
        }
        const std::size_t chosen = choose_frame(frames);
        if (chosen < frames.size() && !frames[chosen].skipped && !frames[chosen].function.empty()) {
            const StackFrame& caller = frames[chosen];
            model::add_to(callers[{caller.function, caller.file, caller.line}], bytes);
        }
    }
    std::uint64_t named = 0;
    std::uint64_t largest = 0;
    for (const auto& [caller, bytes] : callers) {
        model::add_to(named, bytes);
        largest = std::max(largest, bytes);
    }
    proposal.places = callers.size();
    const bool helps =
        proposal.places >= least_callers && is_most(named, sum) && !is_most(largest, sum);
    return helps ? std::optional(proposal) : std::nullopt;
}

}  // namespace memlab::report
