// Which event log tells the moments of a report.
#pragma once

#include <optional>
#include <string>

#include "report/model.hpp"
#include "trace/record.hpp"

namespace memlab::report {

/// `file`, from which `report` was read, when it is an event log itself; else the log of the same
/// process that lies beside it ("memlab.train.4711.json": "memlab.train.4711.memlog"); empty when
/// there is none. Never throws but std::bad_alloc.
std::string find_event_log(const std::string& file, const Report& report);

/// What an event log says of its process; none where it is no log, or an empty one. Never throws
/// but std::bad_alloc.
std::optional<trace::ProcessInfo> first_record_of(const std::string& log);

}  // namespace memlab::report
