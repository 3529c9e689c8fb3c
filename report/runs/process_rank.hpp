// The place of a process in its job, as its launcher set it in environment variables.
#pragma once

#include <cstdint>
#include <optional>

#include "model/report.hpp"

namespace memlab::report {

/// None where no launcher set it, or not to a whole number.
std::optional<std::uint64_t> find_rank(const model::Process& process);
/// The rank on its host; none as above.
std::optional<std::uint64_t> find_local_rank(const model::Process& process);
/// The number of ranks; none as above.
std::optional<std::uint64_t> find_world_size(const model::Process& process);

}  // namespace memlab::report
