// What NVML says of the machine's GPUs and of the processes that hold their memory, printed as
// lines for the tools that look at running programs (tools/live/nvml_reader.hpp). They are static
// programs that can load no library; here it is asked in a process of its own, which may hang or
// crash with the driver without harm to anybody.
#pragma once

namespace memlab::interpose {

/// Answers each line that comes in on standard input by a listing on standard output, until the
/// input ends:
///
///     no_nvml TEXT          or: why there is none; then "end" follows
///     driver 580.65.06
///     gpu INDEX MINOR TOTAL USED FREE UUID PCI NAME
///     process INDEX PID BYTES compute|graphics
///     end
///
/// Bytes that the driver does not tell are "-". NVML is loaded at the first line.
void list_by_nvml();

}  // namespace memlab::interpose
