// The version of memlab, of the source that cmake/MemlabVersion.cmake writes at build time: what
// includes this is not compiled again with each commit.
#pragma once

namespace memlab {

/// "1.2.3" at the tag v1.2.3, "1.2.3+4.g0123abc" four commits behind it.
extern const char* const own_version;

}  // namespace memlab
