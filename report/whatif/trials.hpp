// What can be set from outside a program, tried on its recording: the base of all advice about
// settings. Nothing is advised that these replays do not bear out.
//
// A replay only tells of a change if the same replay with the recorded settings tells what was
// recorded: reproduces() and the callers of recorded_settings() ask that first.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "report/whatif/program.hpp"
#include "report/whatif/runner.hpp"
#include "report/whatif/table.hpp"

namespace memlab::report::whatif {

/// More than any device has: of a model that nothing limits.
inline constexpr std::uint64_t unlimited_capacity = std::uint64_t{1} << 50;

/// What reads settings, for the options of a recording; these must outlive what it returns.
using PoolSettingsOf =
    std::function<ReadPoolSettings(const std::vector<trace::OptionValue>& recorded)>;

/// The settings that the program's allocator had in the recording; none where they are not known,
/// or not modelled.
std::optional<Policy> recorded_settings(const Program& program,
                                        const std::vector<trace::OptionValue>& options,
                                        const ReadPoolSettings& read_pool);

/// Other settings of the same allocator, each in effect by an environment variable alone.
/// `request`: an allocation that failed, in bytes; 0: none.
std::vector<Policy> other_settings(const Program& program, const ReadPoolSettings& read_pool,
                                   std::uint64_t request);

/// "MEMLAB_BACKEND=vmm", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "PYTORCH_ALLOC_CONF
/// unset". `options`: the recorded ones, which say by which variable PyTorch was set.
std::string setting_text(const Policy& policy, const std::vector<trace::OptionValue>& options);

/// Whether a run with the recorded settings reserves what the recording did, within a twentieth.
bool reproduces(const Program& program, const Outcome& outcome, std::uint64_t reserved_peak);

/// A change that a replay shows to reserve less.
struct BetterSetting {
    std::string setting;              ///< setting_text()
    std::uint64_t reserved_peak = 0;  ///< with it
};

/// The setting that reserves least, if it saves `least` bytes or more of what a replay with the
/// recorded settings reserves at most, and if that replay reproduces the recording
/// (`reserved_peak`: of it). Runs several replays at a time.
std::optional<BetterSetting> find_better_setting(const Program& program,
                                                 const std::vector<trace::OptionValue>& options,
                                                 const ReadPoolSettings& read_pool,
                                                 std::uint64_t reserved_peak, std::uint64_t least);

}  // namespace memlab::report::whatif
