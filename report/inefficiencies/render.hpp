// Renders inefficiencies as text and as JSON.
#pragma once

#include <cstddef>
#include <string>

#include "report/inefficiencies/inefficiencies.hpp"
#include "report/views/site_table.hpp"

namespace memlab::report {

/// At most options.top findings of each kind and device; ends with a newline.
std::string render_inefficiencies(const Inefficiencies& found, const ViewOptions& options);

/// {steps (null: none), filter (null: none), devices [index, name, allocated_peak_bytes,
/// reserved_peak_bytes, findings [pattern, confidence, place, kind, api, count, bytes, saves
/// {peak_bytes, peak_is_exact, reserved_bytes, end_bytes, calls}, buffers, buffer_bytes, what,
/// change, stack, sites]], notes}. All findings, those that save memory first; `stack` is of the
/// first site.
std::string inefficiencies_json(const model::Report& report, Resolver& resolver,
                                const Inefficiencies& found, const ViewOptions& options);

}  // namespace memlab::report
