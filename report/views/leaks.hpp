// Finds leaks: memory still allocated at the end, except suppressed sites, and memory that grows
// from step to step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "report/symbols/resolver.hpp"
#include "report/views/site_stats.hpp"
#include "report/views/site_table.hpp"
#include "report/views/suppressions.hpp"

namespace memlab::report {

/// ViewOptions::order: `count` sorts by the number of leaked allocations, all others by bytes.
struct LeakOptions : ViewOptions {
    bool show_suppressed = false;
    bool growth = false;  ///< show growth by step instead of leaks at the end
};

struct DeviceLeaks {
    struct Suppressed {
        const Suppression* by = nullptr;
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
        std::vector<SiteRow> rows;  ///< as DeviceLeaks::rows
    };
    const model::Device* device = nullptr;
    SiteStats leaked;
    SiteStats suppressed;
    std::vector<SiteRow> rows;  ///< places with live memory, sorted by LeakOptions::order
    std::vector<Suppressed> suppressions;  ///< with matches; most bytes first
};

/// A kind of step, and the places that grow with it and are not suppressed.
struct GrowingSteps {
    struct Row {
        Place place;
        std::string kind;
        double bytes_per_step = 0;
        std::vector<std::size_t> sites;
    };
    const model::Steps* steps = nullptr;
    std::vector<Row> rows;       ///< fastest first
    std::size_t suppressed = 0;  ///< sites
};

struct Leaks {
    std::vector<DeviceLeaks> devices;
    std::vector<GrowingSteps> steps;
};

/// `suppressions` must outlive the result; the first that matches a site applies. Built-in ones do
/// not apply to growth; see find_suppression(). Sites that are not `taken` are left out.
Leaks find_leaks(const model::Report& report, Resolver& resolver, const std::vector<bool>& taken,
                 const std::vector<Suppression>& suppressions, const LeakOptions& options);

/// Text; ends with a newline.
std::string render_leaks_text(const model::Report& report, const Leaks& leaks,
                              const LeakOptions& options);

/// {file, ended, ended_text, filter (null: none), devices [index, name, leaked (<stats>),
/// places [place, kind, api, <stats>, stack, sites], others {places, <stats>}, suppressed
/// (<stats>), suppressions [name, reason, built_in, count, bytes, places [as above]]], steps
/// [kind, name, evidence (null: marked), steps, verdict, bytes_per_step, growing [place, kind,
/// bytes_per_step, sites], suppressed (places)]}. stack is that of the place's first site.
std::string render_leaks_json(const std::string& file, const model::Report& report,
                              Resolver& resolver, const Leaks& leaks, const LeakOptions& options);

/// The text of a suppression file for all leaks, to be edited: each needs a reason.
std::string generate_suppressions(const Leaks& leaks);

}  // namespace memlab::report
