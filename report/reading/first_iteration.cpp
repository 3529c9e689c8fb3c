#include "report/reading/first_iteration.hpp"

#include <algorithm>

namespace memlab::report {
namespace {

using PythonFrames = std::vector<const trace::PythonFrameDef*>;

/// With one, what a library takes at its first use would look the same.
constexpr std::size_t least_counterparts = 2;

bool is_same_function(const trace::PythonFrameDef& a, const trace::PythonFrameDef& b) {
    return a.function == b.function && a.file == b.file;
}

bool is_same_line(const trace::PythonFrameDef* a, const trace::PythonFrameDef* b) {
    return is_same_function(*a, *b) && a->line == b->line;
}

/// How many outer frames say where in the loop's function a call is: those that all stacks share,
/// and the next one, where that is of one function.
std::size_t frames_of_loop(const std::vector<PythonFrames>& stacks) {
    const PythonFrames& first = stacks.front();
    std::size_t shared = first.size();
    for (const PythonFrames& each : stacks) {
        shared = std::min(shared, each.size());
        const auto end = first.begin() + static_cast<std::ptrdiff_t>(shared);
        shared = static_cast<std::size_t>(
            std::mismatch(first.begin(), end, each.begin(), is_same_line).first - first.begin());
    }
    const bool is_next_of_one = std::all_of(stacks.begin(), stacks.end(), [&](const auto& each) {
        return each.size() > shared && is_same_function(*each[shared], *first[shared]);
    });
    return shared + (is_next_of_one ? 1 : 0);
}

bool begins_with(const PythonFrames& stack, const PythonFrames& outer, std::size_t frames) {
    return stack.size() >= frames &&
           std::equal(outer.begin(), outer.begin() + static_cast<std::ptrdiff_t>(frames),
                      stack.begin(), is_same_line);
}

}  // namespace

std::optional<std::uint32_t> stack_in_first_iteration(const CallCollector& calls,
                                                      const std::vector<std::uint32_t>& once,
                                                      std::uint32_t end) {
    const std::vector<CallSite>& sites = calls.sites();
    std::vector<std::uint32_t> looked_for;
    std::vector<PythonFrames> stacks;
    for (const std::uint32_t site : once) {
        if (sites[site].type == trace::EventType::alloc) {
            looked_for.push_back(site);
            stacks.push_back(calls.outer_frames(sites[site].stack));
        }
    }
    if (looked_for.size() < least_counterparts) {
        return {};
    }
    const std::size_t frames = frames_of_loop(stacks);
    if (frames == 0) {
        return {};
    }
    // Sites are numbered in the order of their first visits.
    std::optional<std::uint32_t> found;
    std::uint32_t candidate = 0;
    for (std::size_t i = 0; i < looked_for.size(); ++i) {
        const CallSite& site = sites[looked_for[i]];
        const auto is_counterpart = [&](const CallSite& other) {
            return other.type == site.type && other.visits == 1 && other.earlier == 0 &&
                   other.thread == site.thread && !other.on_several_threads &&
                   other.first_calls == site.first_calls && other.first_bytes == site.first_bytes &&
                   begins_with(calls.outer_frames(other.stack), stacks[i], frames);
        };
        while (candidate < looked_for.front() && !is_counterpart(sites[candidate])) {
            ++candidate;
        }
        if (candidate >= looked_for.front()) {
            return {};
        }
        if (looked_for[i] == end) {
            found = sites[candidate].stack;
        }
        ++candidate;
    }
    return found;
}

}  // namespace memlab::report
