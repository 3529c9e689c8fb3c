// The running processes of a run: those that record into its folder.
#pragma once

#include <string>
#include <vector>

#include "tools/live/documents.hpp"

namespace memlab::tools {

/// The state of each process that has a control channel and that this user may ask; of one that
/// does not answer, why.
std::vector<LiveStatus> all_states();

/// Whether the process writes its recording into that folder (absolute).
bool records_into(const LiveStatus& process, const std::string& folder);

}  // namespace memlab::tools
