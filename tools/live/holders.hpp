// "Who holds the memory of my GPU?": every process of a sample, GPU by GPU, with what it holds,
// whose it is, and what can be done about it. Figures are given as they are known: where NVML does
// not list processes, or their ids are those of another pid namespace, it says so.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/text/terminal.hpp"
#include "tools/live/collector.hpp"
#include "tools/live/live_sites.hpp"
#include "tools/live/machine_sample.hpp"

namespace memlab::tools {

/// The call sites of memlab's processes, by process id.
using SitesOf = std::map<pid_t, LiveSites>;

struct HoldersOptions {
    std::optional<std::uint64_t> device;  ///< this GPU alone, by NVML's index
    bool arguments = true;                ///< else commands are names of programs
    std::size_t top_sites = 3;
};

/// False with MEMLAB_ARGUMENTS=off in this program's environment: what arguments hold may be
/// secret.
bool shows_arguments();

/// The command of a process as it may be shown: a process with MEMLAB_ARGUMENTS=off names its
/// program alone, and with `arguments` false all do. Not passed through printable().
std::string shown_command(const ProcessSample& process, bool arguments);

/// What can be done, a sentence each; the first is about what is wrong with the process, if
/// anything. Not passed through printable().
std::vector<std::string> advice_for(const ProcessSample& process, const GpuUse& use,
                                    bool pids_of_the_host);

/// What is not known of the whole, a sentence each.
std::vector<std::string> unknown_in(const MachineSample& sample);

std::string render_holders_text(const MachineSample& sample, const SitesOf& sites,
                                const HoldersOptions& options, const report::Style& style);
/// Indented, no final newline.
std::string render_holders_json(const MachineSample& sample, const SitesOf& sites,
                                const HoldersOptions& options);

/// The largest call sites of every process of the sample that answers.
SitesOf ask_sites(Collector& collector, const MachineSample& sample, std::size_t top);

}  // namespace memlab::tools
