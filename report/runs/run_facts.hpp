// Parser of the file that memlab-run writes for a run.
#pragma once

#include <string>
#include <string_view>

#include "model/run_file.hpp"

namespace memlab::report {

/// The contents of a run file, and its path.
struct RunFacts : model::RunFile {
    std::string file;
};

/// The "format" of a JSON document ("memlab-run", "memlab-report"), which memlab writes as its
/// first member; empty if it has none there. `head`: the first bytes.
std::string document_format(std::string_view head);

/// False, with one line in `error`, if `json` is not a run file of a known version. Never throws.
bool parse_run_facts(std::string_view json, RunFacts* facts, std::string* error);

}  // namespace memlab::report
