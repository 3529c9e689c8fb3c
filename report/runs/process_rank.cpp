#include "report/runs/process_rank.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "model/rank_variables.hpp"

namespace memlab::report {
namespace {

template <typename Names>
std::optional<std::uint64_t> find_number(const model::Process& process, const Names& names) {
    for (const char* name : names) {
        const auto found = process.ranks.find(name);
        if (found == process.ranks.end()) {
            continue;
        }
        std::uint64_t number = 0;
        const char* begin = found->second.data();
        const char* end = begin + found->second.size();
        const auto [stop, error] = std::from_chars(begin, end, number);
        if (error == std::errc() && stop == end) {
            return number;
        }
    }
    return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> find_rank(const model::Process& process) {
    return find_number(process, model::rank_variables);
}

std::optional<std::uint64_t> find_local_rank(const model::Process& process) {
    return find_number(process, model::local_rank_variables);
}

std::optional<std::uint64_t> find_world_size(const model::Process& process) {
    return find_number(process, model::world_size_variables);
}

std::string missing_ranks_text(std::uint64_t world_size, const std::set<std::uint64_t>& here) {
    constexpr std::uint64_t max_named = 16;
    const std::uint64_t bound = std::min<std::uint64_t>(world_size, 1 << 20);
    std::string list;
    std::uint64_t missing = 0;
    for (std::uint64_t rank = 0; rank < bound; ++rank) {
        if (!here.contains(rank) && ++missing <= max_named) {
            list += (list.empty() ? "" : ", ") + std::to_string(rank);
        }
    }
    if (missing == 0) {
        return {};
    }
    return std::to_string(missing) + " of " + std::to_string(world_size) +
           (missing == 1 ? " ranks is" : " ranks are") + " missing: " + list +
           (missing > max_named ? ", ..." : "") + ".";
}

std::string missing_ranks_text(const std::vector<const model::Process*>& processes) {
    std::uint64_t world = 0;
    std::set<std::uint64_t> here;
    for (const model::Process* const process : processes) {
        if (const auto rank = find_rank(*process)) {
            here.insert(*rank);
            world = std::max(world, find_world_size(*process).value_or(0));
        }
    }
    return missing_ranks_text(world, here);
}

}  // namespace memlab::report
