#include "report/runs/common_clock.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "model/bounded_sum.hpp"

namespace memlab::report {

std::vector<std::uint64_t> common_starts(const std::vector<ProcessStart>& processes) {
    constexpr std::uint64_t tolerance_ns = 1'000'000'000;
    struct Boot {  // as Unix time
        std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
        std::uint64_t last = 0;
    };
    std::map<std::string, Boot> boots;
    for (const ProcessStart& process : processes) {
        // Both are of an untrusted file.
        if (process.start_monotonic_ns && *process.start_monotonic_ns <= process.start_wall_ns) {
            const std::uint64_t boot = process.start_wall_ns - *process.start_monotonic_ns;
            Boot& of_machine = boots[process.machine];
            of_machine.first = std::min(of_machine.first, boot);
            of_machine.last = std::max(of_machine.last, boot);
        } else if (process.start_monotonic_ns) {
            boots[process.machine].last = std::numeric_limits<std::uint64_t>::max();
        }
    }
    std::vector<std::uint64_t> starts;
    starts.reserve(processes.size());
    for (const ProcessStart& process : processes) {
        const auto boot = boots.find(process.machine);
        const bool agreed = process.start_monotonic_ns && boot != boots.end() &&
                            boot->second.last >= boot->second.first &&
                            boot->second.last - boot->second.first <= tolerance_ns;
        starts.push_back(agreed
                             ? model::saturating_add(boot->second.last, *process.start_monotonic_ns)
                             : process.start_wall_ns);
    }
    return starts;
}

}  // namespace memlab::report
