// libcupti, found at run time: memlab never links it. What the process has loaded already comes
// first (two copies of CUPTI in one process disturb each other), then the copy that belongs to the
// CUDA libraries in use (pip's nvidia packages), then a toolkit's, then the system's.
//
// Only versions that memlab was tested with are used: the structures that CUPTI hands out have no
// size of their own. Anything else is refused with a sentence for the report.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace memlab::profiler::cupti {

/// The major version of CUDA whose CUPTI memlab was built and tested with.
inline constexpr std::uint32_t tested_major = 13;

/// dlsym beneath the one that memlab itself exports.
using FindSymbol = void* (*)(void* library, const char* name);

struct Functions;  // functions.hpp: CUPTI's header does not go with every way to include cuda.h

struct Library {
    bool usable = false;
    std::shared_ptr<const Functions> functions;  ///< set where it is usable
    std::string name;     ///< "CUPTI 13.0.1, /usr/.../libcupti.so.13"; empty: none was found
    std::string problem;  ///< why it is not usable: a sentence; empty when it is
};

/// The version as people write it: 130001 is "13.0.1", 28 is "12" (API version 28).
std::string version_text(std::uint32_t version);
/// The major version of CUDA that a CUPTI API version belongs to; 0: older than 11.
std::uint32_t major_of(std::uint32_t version);

/// Whether a file name is that of a libcupti: "libcupti.so.13", "libcupti-a7b2.so.12".
bool is_cupti_file(const char* file_name);

/// The paths at which a libcupti may lie, best first, in a process with these loaded files and this
/// environment (null: not set). Paths without a slash are left to the loader's own search.
std::vector<std::string> candidate_paths(const std::vector<std::string>& loaded_files,
                                         const char* cuda_home, const char* cuda_path);

/// Opens the first libcupti that there is, and says whether it can be used with a driver of this
/// version (cuDriverGetVersion).
/// Takes the loader's lock: call with none of ours held. It stays loaded for good. May throw
/// std::bad_alloc.
Library open_library(FindSymbol find, int driver_version);

}  // namespace memlab::profiler::cupti
