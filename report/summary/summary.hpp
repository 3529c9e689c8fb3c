// The summary of a report: sites merged by source line, explained OOMs, warnings and next steps.
// The text and the JSON summary are rendered from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/report.hpp"
#include "report/lacks.hpp"
#include "report/nn_module_parts.hpp"
#include "report/summary/framework_findings.hpp"
#include "report/summary/unused_reserve.hpp"
#include "report/symbols/category.hpp"
#include "report/symbols/resolver.hpp"
#include "report/symbols/skip_proposal.hpp"
#include "report/text/terminal.hpp"

namespace memlab::report {

/// Sites with the same place and kind.
struct PlaceShare {
    Place place;
    std::string kind;
    std::string api;  ///< of the largest site
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::vector<std::size_t> sites;   ///< largest first
    std::vector<std::size_t> stacks;  ///< unique, largest site's first
    std::vector<model::MemoryLabel>
        labels;  ///< of an OOM: the program's names for it, largest first
};

/// Who held the memory at one moment: places, largest first.
struct HoldersSummary {
    std::uint64_t time_ns = 0;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::vector<PlaceShare> places;  ///< all that the report lists
    std::uint64_t unnamed_count = 0;
    std::uint64_t unnamed_bytes = 0;  ///< of sites that the report only sums up
};

/// A kind of memory that the device's curves do not include.
struct KindSummary {
    std::string kind;
    const model::KindCurve* curve = nullptr;
    HoldersSummary at_peak;
};

struct DeviceSummary {
    const model::Device* device = nullptr;
    HoldersSummary at_peak;
    HoldersSummary live;  ///< device memory: the final value of the curves
    /// Memory of every kind, including host memory: the same as memlab-report leaks lists.
    HoldersSummary still_allocated;
    CategoryShares categories{};  ///< at the allocated peak
    const char* doubt = nullptr;  ///< doubt_about_categories()
    std::vector<KindSummary> kinds = {};
    std::vector<NnModuleAtPeak> nn_modules = {};  ///< at the allocated peak
    std::optional<UnusedReserve> reserve = {};
    std::optional<SkipProposal> proposal = {};  ///< of who holds most at the allocated peak
};

/// Allocations that bypassed memlab, by caller.
struct BypassSummary {
    const model::Coverage::Bypassed* bypassed = nullptr;
    Place place;
};

struct OomSummary {
    const model::Oom* oom = nullptr;
    Place place;
    HoldersSummary holders;
    std::string explanation;  ///< whole sentences
    /// What would have served it, by replays, whole sentences; none: nobody tried.
    std::optional<std::vector<std::string>> advice = {};
};

/// A kind of step, and the places whose memory grows with it.
struct StepsSummary {
    struct Growing {
        Place place;
        double bytes_per_step = 0;
    };
    const model::Steps* steps = nullptr;
    std::vector<Growing> growing;  ///< fastest first
};

struct Summary {
    std::string file;
    const model::Report* report = nullptr;
    std::string ended;  ///< "killed by SIGKILL"
    bool succeeded = false;
    std::vector<DeviceSummary> devices;
    std::vector<OomSummary> ooms;
    std::vector<FrameworkFinding> frameworks;
    std::vector<BypassSummary> bypasses;  ///< most bytes first
    std::vector<StepsSummary> steps;  ///< with a verdict: growing first, then by number of steps
    std::vector<Lack> lacks;
    std::vector<std::string> warnings;  ///< the sentences of `lacks`, and others
};

/// Unused devices are left out. The result points into `report`, which must outlive it.
Summary summarize(const std::string& file, const model::Report& report, Resolver& resolver);

/// "killed by SIGKILL after 1.234 s": how the process ended, as far as known.
std::string end_text(const model::Process& process);

/// The same in the word of a report; of a log that is being written "running".
inline std::string end_word(const model::Process& process) {
    return process.recording ? "running" : process.ended;
}

/// False if the process was killed, cut off or ended with an exit code other than 0.
bool succeeded(const model::Process& process);

/// Device::live plus live memory of the kinds that the curves do not include.
model::Holders still_allocated(const model::Device& device, const model::Report& report);

/// Why the report does not cover the whole process ("was killed by SIGKILL after 2.1 s"), to follow
/// the name of the process in a sentence; empty if it is complete.
std::string unfinished_text(const model::Report& report);

struct TextOptions {
    Style style;
    std::size_t top = 10;           ///< rows of the tables of sites
    std::size_t stacks = 0;         ///< number of sites whose whole stacks are shown
    std::string working_directory;  ///< files below it are shown relative to it
};

/// The whole summary as text. Ends with a newline.
std::string render_text(const Summary& summary, Resolver& resolver, const TextOptions& options);

/// The summary at the end of a run, a few lines: how it ended, peaks, top sites, warnings.
std::string render_short(const Summary& summary, const TextOptions& options);

/// `no_names`: without marks and labels, whose names may be most of it.
enum class SummaryLists : std::uint8_t { all, no_names };

/// A JSON object; summary_json.cpp lists its members. Sizes are bytes, times nanoseconds. `top`
/// limits each list of places.
std::string render_json(const Summary& summary, Resolver& resolver, std::size_t top,
                        SummaryLists lists = SummaryLists::all);

/// {file, oom_count, ooms [as in render_json(), and stack: the frames of the call that failed]}.
std::string render_ooms_json(const Summary& summary, Resolver& resolver, std::size_t top);

/// "train/step/forward": the names of the enclosing scopes and the scope.
std::string scope_path(const model::Report& report, std::size_t scope);

}  // namespace memlab::report
