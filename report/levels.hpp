// The levels that memory can be looked at: what the driver handed out, or what a framework's cache
// made of it.
#pragma once

#include <cstdint>

#include "model/report.hpp"

namespace memlab::report {

/// Which devices are looked at where a framework's cache is seen from inside: both levels; GPUs
/// only, what the driver handed out; or the caches, and GPUs without one.
enum class Level : std::uint8_t { all, driver, framework };
/// Drops the others' failures. `all` has the failure of a framework's allocation without its
/// cache's own attempts to get more from the driver.
void choose_ooms(model::Report& report, Level level);
/// Drops the others' devices and failures; what else refers to them stays.
void choose_level(model::Report& report, Level level);

}  // namespace memlab::report
