// The options of memlab's pool as a recording has them, and with changes: what whatif, and whoever
// advises, runs. The option table parses them, which report/ does not know; so commands pass these
// functions on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interpose/options/option_table.hpp"
#include "report/whatif/trials.hpp"

namespace memlab::tools {

/// The recorded options with these changed: MEMLAB_... by the option table, the others by their own
/// names. False with `problem` set.
bool read_options(const std::vector<trace::OptionValue>& recorded,
                  const report::whatif::PoolSettings& changes, interpose::Settings* settings,
                  std::string* problem);

/// MEMLAB_LIMIT of the device, by its index or UUID; of an allocator that of its GPU. 0: none, so
/// that all of the device's memory was there.
std::uint64_t limit_of(const interpose::Settings& settings, const trace::DeviceInfo& device);

/// read_options() for the pool's part: what a replay needs to try another setting, and one_stream
/// for changes that set MEMLAB_ONE_STREAM. `recorded` must outlive the result. Thread-safety: the
/// result may be called from several threads.
report::whatif::ReadPoolSettings pool_settings_of(const std::vector<trace::OptionValue>& recorded);

}  // namespace memlab::tools
