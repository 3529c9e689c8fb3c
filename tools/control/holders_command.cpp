#include "tools/control/holders_command.hpp"

#include <algorithm>
#include <chrono>

#include "tools/control/targets.hpp"
#include "tools/live/holders.hpp"

namespace memlab::tools {
namespace {

/// Of processes that do not answer, all together.
constexpr std::chrono::seconds patience{5};

}  // namespace

std::string holders_text(std::optional<std::uint64_t> device, bool json,
                         const report::Style& style) {
    HoldersOptions options;
    options.device = device;
    options.arguments = shows_arguments();
    Collector collector(patience);
    const MachineSample sample = collector.sample();
    const bool there =
        !device || std::any_of(sample.gpus.begin(), sample.gpus.end(),
                               [device](const GpuSample& gpu) { return gpu.gpu.index == *device; });
    if (!there) {
        throw ControlError("GPU " + std::to_string(*device) + " does not exist on this machine");
    }
    // Of more sites than are shown: they are of all GPUs.
    const SitesOf sites = ask_sites(collector, sample, 50);
    return json ? render_holders_json(sample, sites, options) + "\n"
                : render_holders_text(sample, sites, options, style);
}

}  // namespace memlab::tools
