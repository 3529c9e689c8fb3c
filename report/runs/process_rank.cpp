#include "report/runs/process_rank.hpp"

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

}  // namespace memlab::report
