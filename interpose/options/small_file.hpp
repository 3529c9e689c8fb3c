// Reads files that are small, or of which the beginning says enough: of /proc, of cgroups, of a
// program's packages.
#pragma once

#include <cstddef>
#include <string>

namespace memlab::interpose {

/// The first `most` bytes of a file; empty where it cannot be opened, and what was read so far
/// where reading fails. Does not wait for a file that is a device or a pipe. Leaves errno as it is.
/// Thread-safe; may throw std::bad_alloc.
std::string read_small_file(const std::string& path, std::size_t most);

}  // namespace memlab::interpose
