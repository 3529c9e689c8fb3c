// The replies of running processes as text.
#pragma once

#include <string>
#include <vector>

#include "report/text/terminal.hpp"
#include "tools/live/documents.hpp"

namespace memlab::tools {

/// Processes, a row for each and GPU: pid, command, GPU, allocated.
std::string list_text(const std::vector<LiveStatus>& processes, const report::Style& style);

std::string status_text(pid_t process, const model::StatusDocument& status,
                        const report::Style& style);

/// `since_mark`: what the figures are of.
std::string sites_text(pid_t process, const model::IntervalDocument& document, bool since_mark,
                       const report::Style& style);

std::string nn_modules_text(const model::IntervalDocument& document, const report::Style& style);

std::string pool_text(const model::PoolDocument& document, const report::Style& style);

}  // namespace memlab::tools
