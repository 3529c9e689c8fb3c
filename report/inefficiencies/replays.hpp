// Replays that bear out what is said of reserved memory: the recorded program on a model of its own
// allocator, with one thing changed. They tell nothing, and so nothing is said, where the same
// replay without the change does not reserve what the recording did.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/report.hpp"
#include "report/pool_view/layout.hpp"
#include "report/whatif/trials.hpp"

namespace memlab::report {

/// Reads the log when first asked. Thread-safety: none. All may throw std::bad_alloc.
class Replays {
  public:
    /// Without `settings` nothing is replayed. `log` must outlive it.
    Replays(const std::string& log, const whatif::PoolSettingsOf& settings)
        : log_(log), settings_(settings) {}

    /// A setting of the device's allocator that reserves at least `least` bytes less.
    std::optional<whatif::BetterSetting> better_setting(const model::Device& device,
                                                        std::uint64_t least);

    /// By how much the reserved peak would be lower if these blocks were allocated first; 0: by
    /// nothing, or not known.
    std::uint64_t saved_if_first(const model::Device& device,
                                 const std::vector<BlockLayout>& blocks);

    /// The same if memory of their call stacks could be reused as soon as it is freed.
    std::uint64_t saved_if_reused_at_once(const model::Device& device,
                                          const std::vector<BlockLayout>& blocks);

  private:
    struct Baseline {
        const whatif::Program* program = nullptr;
        whatif::Policy policy;
        std::uint64_t reserved_peak = 0;
    };
    bool read();
    const whatif::Program* find(const model::Device& device);
    /// Null: the recording is not reproduced.
    const Baseline* baseline(const model::Device& device);

    const std::string& log_;
    const whatif::PoolSettingsOf& settings_;
    bool tried_ = false;
    whatif::Recording recording_;
    std::map<std::uint64_t, std::optional<Baseline>> baselines_;  ///< by Device::index
};

}  // namespace memlab::report
