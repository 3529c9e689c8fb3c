// What the recording says of the process: who, where, when, which rank.
#pragma once

#include <string>

#include "trace/record.hpp"

namespace memlab::interpose {

trace::ProcessInfo describe_process(bool started_late, bool with_arguments);

/// The rank that a launcher (torchrun, Open MPI, PMI, Slurm) gave this process; "0" without one.
std::string rank_of(const trace::ProcessInfo& process);

/// A tool that watches this process, as a sentence names it ("cuda-gdb"); empty: none.
std::string tool_at_work();

/// Why memlab must not pool in this process (compute-sanitizer, cuda-gdb: a pool hides overruns);
/// empty when nothing stands against it.
std::string reason_not_to_pool();

}  // namespace memlab::interpose
