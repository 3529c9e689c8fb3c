// What a report says, worked out and ready to be shown: sites merged by source line, OOMs
// explained, warnings and next steps in words. The text and the JSON summary are two renderings of
// this.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "report/model.hpp"
#include "report/summary/framework_findings.hpp"
#include "report/symbols/resolver.hpp"
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
    std::vector<std::size_t> stacks;  ///< without repetition, largest site's first
    std::vector<HeldLabel> labels;    ///< of an OOM: the program's names for it, the most first
};

/// Who held the memory at one moment: places, largest first.
struct HoldersSummary {
    std::uint64_t time_ns = 0;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::vector<PlaceShare> places;  ///< all that the report names
    std::uint64_t unnamed_count = 0;
    std::uint64_t unnamed_bytes = 0;  ///< in sites that the report only sums up
};

struct DeviceSummary {
    const Device* device = nullptr;
    HoldersSummary at_peak;
    HoldersSummary live;  ///< device memory: what the curves end at
    /// Of every kind, host memory too: what memlab-report leaks lists.
    HoldersSummary still_allocated;
};

/// Allocations that bypassed memlab, by who made them.
struct BypassSummary {
    const Coverage::Bypassed* bypassed = nullptr;
    Place place;
};

struct OomSummary {
    const Oom* oom = nullptr;
    Place place;
    HoldersSummary holders;
    std::string explanation;  ///< whole sentences
};

/// A kind of step, and the places that grow.
struct StepsSummary {
    struct Growing {
        Place place;
        double bytes_per_step = 0;
    };
    const Steps* steps = nullptr;
    std::vector<Growing> growing;  ///< fastest first
};

struct Summary {
    std::string file;
    const Report* report = nullptr;
    std::string ended;  ///< "killed by SIGKILL"
    bool ended_well = false;
    std::vector<DeviceSummary> devices;
    std::vector<OomSummary> ooms;
    std::vector<FrameworkFinding> frameworks;
    std::vector<BypassSummary> bypasses;  ///< most bytes first
    std::vector<StepsSummary> steps;      ///< those with a verdict: growing first, then most steps
    std::vector<std::string> warnings;
};

/// `warning` is the reader's. Devices that were never used are left out. The result points into
/// `report`, which must outlive it.
Summary summarize(const std::string& file, const Report& report, const std::string& warning,
                  Resolver& resolver);

/// "killed by SIGKILL after 1.234 s": how the process ended, as far as anybody saw.
std::string end_text(const Process& process);

/// False where it was killed, cut off or ended with a code other than 0.
bool ended_well(const Process& process);

/// Device::live and what of other kinds lives at the end.
Holders still_allocated(const Device& device, const Report& report);

/// True where the recording ended before its process did, which a report that the process wrote
/// itself does not show: it is whole.
bool stopped(const Report& report);

/// Which moment the figures "at the end" are of: "at the end", "when the recording stopped", "now";
/// and in a column's width.
std::string moment_text(const Report& report);
std::string moment_column(const Report& report);

/// Why the report does not tell all that its process did ("was killed by SIGKILL after 2.1 s"), as
/// the rest of a sentence about the process; empty where it does.
std::string unfinished_text(const Report& report);

struct TextOptions {
    Style style;
    std::size_t top = 10;           ///< rows of the tables of sites
    std::size_t stacks = 0;         ///< whole stacks shown, of as many sites
    std::string working_directory;  ///< files below it are shown relative to it
};

/// The whole summary, for people. Ends with a newline.
std::string render_text(const Summary& summary, Resolver& resolver, const TextOptions& options);

/// A few lines: how it ended, the peaks, the top sites, what is wrong. For the end of a run.
std::string render_short(const Summary& summary, const TextOptions& options);

/// A JSON object, for machines; see summary_json.cpp for its members. Sizes are bytes, times
/// nanoseconds. `top` bounds each list of places.
std::string render_json(const Summary& summary, Resolver& resolver, std::size_t top);

/// {file, oom_count, ooms [as in render_json(), and stack: the frames of the call that failed]}.
std::string render_ooms_json(const Summary& summary, Resolver& resolver, std::size_t top);

/// "train/step/forward": a scope's name after those around it.
std::string scope_path(const Report& report, std::size_t scope);

}  // namespace memlab::report
