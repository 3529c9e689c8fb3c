// The levels that memory can be looked at: what the driver handed out, or what a framework's cache
// made of it.
#pragma once

#include <array>
#include <cstdint>
#include <set>

#include "model/report.hpp"

namespace memlab::report {

/// Which devices are looked at where a framework's cache is seen from inside: both levels; GPUs
/// only, what the driver handed out; or the caches, and GPUs without one.
enum class Level : std::uint8_t { all, driver, framework };
/// "driver", "framework", "all"
inline const char* level_name(Level level) {
    return level == Level::driver ? "driver" : level == Level::framework ? "framework" : "all";
}
/// Drops the others' failures. `all` has the failure of a framework's allocation without its
/// cache's own attempts to get more from the driver.
void choose_ooms(model::Report& report, Level level);
/// Whether a failure of the log is one of the report's: choose_ooms() has dropped some of them.
class ChosenOoms {
  public:
    explicit ChosenOoms(const model::Report& report);
    /// True of those beyond what a report lists.
    bool has(std::uint64_t time_ns, std::uint64_t device, std::uint64_t requested_bytes) const;

  private:
    std::set<std::array<std::uint64_t, 3>> listed_;
    std::uint64_t listed_until_ns_;  ///< all failures up to this time are listed
};
/// Which devices of a report have a level.
class DevicesAt {
  public:
    DevicesAt(const model::Report& report, Level level);
    bool has(const model::Device& device) const;
    /// Of the device with that index.
    bool has(std::uint64_t index) const;

  private:
    Level level_;
    std::set<std::uint64_t> cut_;     ///< GPUs whose memory a framework's cache was seen to cut
    std::set<std::uint64_t> caches_;  ///< indexes of devices
};
/// True where each GPU on which the program reserved memory has a framework's cache, seen from
/// inside.
bool is_seen_inside(const model::Report& report);
/// Drops the others' devices and failures; what else refers to them stays.
void choose_level(model::Report& report, Level level);

}  // namespace memlab::report
