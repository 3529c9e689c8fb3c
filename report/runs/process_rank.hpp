// The place of a process in its job, as its launcher set it in environment variables.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/report.hpp"

namespace memlab::report {

/// None where no launcher set it, or not to a whole number.
std::optional<std::uint64_t> find_rank(const model::Process& process);
/// The rank on its host; none as above.
std::optional<std::uint64_t> find_local_rank(const model::Process& process);
/// The number of ranks; none as above.
std::optional<std::uint64_t> find_world_size(const model::Process& process);

/// "Of 5 ranks 3 are not here: 1, 2, 4."; empty where all of them are. `world_size` is not trusted.
std::string missing_ranks_text(std::uint64_t world_size, const std::set<std::uint64_t>& here);
/// The same of the ranks that these processes know of. A rank may have several processes.
std::string missing_ranks_text(const std::vector<const model::Process*>& processes);

}  // namespace memlab::report
