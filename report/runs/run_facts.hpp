// Reading the file that memlab-run writes of a run.
#pragma once

#include <string>
#include <string_view>

#include "report/runs/collection.hpp"

namespace memlab::report {

/// The "format" of a JSON document of memlab's by its first bytes, where all have it: "memlab-run",
/// "memlab-report"; empty when it is none.
std::string document_format(std::string_view head);

/// False with one line in `error` when `json` is no run file of a known version. Never throws.
bool parse_run_facts(std::string_view json, RunFacts* facts, std::string* error);

}  // namespace memlab::report
