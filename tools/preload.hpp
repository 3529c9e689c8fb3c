// The library that memlab-run preloads and that the tools ask of NVML, and LD_PRELOAD with it.
#pragma once

#include <string>

namespace memlab::tools {

struct FoundLibrary {
    std::string path;     ///< absolute
    std::string problem;  ///< empty: none; else one line, what to do included, and there is no path
};

/// `asked`, relative to `working_directory`, or, if it is empty, libmemlab.so relative to this
/// program: in ../lib, both in the build tree and when installed. A path that LD_PRELOAD cannot
/// carry is a problem; a link to it is not resolved then.
FoundLibrary find_library(const std::string& asked, const std::string& working_directory);

/// `before`, LD_PRELOAD's value or null, with `library` first, and only once.
std::string preload_with(const std::string& library, const char* before);

}  // namespace memlab::tools
