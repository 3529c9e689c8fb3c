// Facts about the process for the recording: who, where, when, which rank.
#pragma once

#include <string>

#include "trace/record.hpp"

namespace memlab::interpose {

trace::ProcessInfo describe_process(bool started_late, bool with_arguments);

/// The rank that a launcher (torchrun, Open MPI, PMI, Slurm) gave this process; "0" without one.
std::string find_rank(const trace::ProcessInfo& process);

/// The name of a tool that inspects this process ("cuda-gdb"); empty: none.
std::string active_tool();

/// Why memlab must not pool in this process (compute-sanitizer, cuda-gdb: a pool hides overruns);
/// empty if it may.
std::string reason_not_to_pool();

}  // namespace memlab::interpose
