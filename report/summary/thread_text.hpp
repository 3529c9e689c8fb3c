// A thread as tables show it: the kernel's number, and what it is called.
#pragma once

#include <cstdint>
#include <string>

#include "report/model.hpp"

namespace memlab::report {

/// "thread 5976 (pt_autograd_0)"; "thread 5975 (main)" of the thread that the process began with,
/// unless the program named it; "thread 5977" of one without a name. As recorded: not clean() yet.
std::string thread_text(const Report& report, std::uint64_t thread);

}  // namespace memlab::report
