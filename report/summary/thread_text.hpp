// Formats a thread: the kernel's thread id and the thread's name.
#pragma once

#include <cstdint>
#include <string>

#include "report/model.hpp"

namespace memlab::report {

/// "thread 5976 (pt_autograd_0)"; "thread 5975 (main)" for the initial thread of the process,
/// unless the program named it; "thread 5977" without a name. Not passed through printable().
std::string thread_text(const Report& report, std::uint64_t thread);

}  // namespace memlab::report
