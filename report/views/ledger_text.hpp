// The ledger's page: what took the memory of each GPU, as text and as JSON.
#pragma once

#include <cstddef>
#include <string>

#include "report/summary/ledger.hpp"
#include "report/views/site_table.hpp"

namespace memlab::report {

/// Text; ends with a newline. options.top limits the rows of each group, options.device the GPUs.
std::string render_ledger_text(const model::Report& report, Resolver& resolver, LedgerAt at,
                               const ViewOptions& options);

/// {file, devices [{index, name, moments {peak, end: {time_ns, used_bytes, rest_bytes,
/// managed_bytes, import_bytes, groups [{kind, bytes, rows [{what, place, api, bytes, count,
/// uncertain, with_earlier, estimated}]}]}}, not_measured, witnesses [{time_ns, state, own_bytes,
/// other_bytes, other_processes}], advice}]}. A group's rows are all of it.
std::string render_ledger_json(const std::string& file, const model::Report& report,
                               Resolver& resolver, const ViewOptions& options);

}  // namespace memlab::report
