// What a program still held when it ended, without what may stay; and what grew from step to step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "report/symbols/resolver.hpp"
#include "report/views/figures.hpp"
#include "report/views/site_table.hpp"
#include "report/views/suppressions.hpp"

namespace memlab::report {

/// Of ViewOptions::order, count is by what is left in allocations, all else in bytes.
struct LeakOptions : ViewOptions {
    bool show_suppressed = false;
    bool growth = false;  ///< steps instead of the end
};

struct DeviceLeaks {
    struct Suppressed {
        const Suppression* by = nullptr;
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
        std::vector<SiteRow> rows;  ///< as DeviceLeaks::rows
    };
    const Device* device = nullptr;
    Figures leaked;
    Figures suppressed;
    std::vector<SiteRow> rows;  ///< places with live memory: most bytes first, or most allocations
    std::vector<Suppressed> suppressions;  ///< those that matched, most bytes first
};

/// A kind of step and the places that grow with it, unless they are suppressed.
struct GrowingSteps {
    struct Row {
        Place place;
        std::string kind;
        double bytes_per_step = 0;
        std::vector<std::size_t> sites;
    };
    const Steps* steps = nullptr;
    std::vector<Row> rows;       ///< fastest first
    std::size_t suppressed = 0;  ///< places
};

struct Leaks {
    std::vector<DeviceLeaks> devices;
    std::vector<GrowingSteps> steps;
};

/// `suppressions` must outlive the result; the first that matches a site takes it. Those that are
/// built in say what libraries keep, not what they may add at every step: growth is suppressed by
/// the others only. Sites that are not `taken` are left out.
Leaks find_leaks(const Report& report, Resolver& resolver, const std::vector<bool>& taken,
                 const std::vector<Suppression>& suppressions, const LeakOptions& options);

/// For people; ends with a newline.
std::string render_leaks_text(const Report& report, const Leaks& leaks, const LeakOptions& options);

/// {file, ended, ended_text, filter (null: none), devices [index, name, leaked (<figures>),
/// places [place, kind, api, <figures>, stack, sites], others {places, <figures>}, suppressed
/// (<figures>), suppressions [name, reason, built_in, count, bytes, places [as above]]], steps
/// [kind, name, steps, verdict, bytes_per_step, growing [place, kind, bytes_per_step, sites],
/// suppressed (places)]}. stack is that of the place's first site.
std::string render_leaks_json(const std::string& file, const Report& report, Resolver& resolver,
                              const Leaks& leaks, const LeakOptions& options);

/// A file of suppressions for all that leaked, to be edited: each wants a reason.
std::string generate_suppressions(const Leaks& leaks);

}  // namespace memlab::report
