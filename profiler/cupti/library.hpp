// Locates and loads libcupti at run time. Search order: a copy that the process has already loaded
// (two copies of CUPTI in one process interfere), the one that belongs to the CUDA libraries in use
// (pip's nvidia packages), a toolkit's, the system's.
//
// Those of CUDA 12 and 13 are used, whatever headers memlab was built with: they share the
// beginning of each record (records.hpp), the numbers of functions and kinds, and the functions
// that memlab calls. Others are refused with a sentence for the report.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace memlab::profiler::cupti {

/// The major versions of CUDA whose CUPTI memlab uses.
inline constexpr std::uint32_t oldest_major = 12;
inline constexpr std::uint32_t newest_major = 13;

/// The real dlsym, below memlab's interposed one.
using FindSymbol = void* (*)(void* library, const char* name);

struct Functions;  // functions.hpp; CUPTI's header conflicts with some ways to include cuda.h

struct Library {
    bool usable = false;
    bool several_subscribers = false;  ///< this CUPTI and this driver allow for more than one
    std::shared_ptr<const Functions> functions;  ///< null unless usable
    std::string name;     ///< "CUPTI 13.0.1, /usr/.../libcupti.so.13"; empty: none was found
    std::string problem;  ///< why it is not usable, a sentence; empty if it is
};

/// The version as text: 130001 gives "13.0.1", 22 gives "12.4 (API version 22)".
std::string version_text(std::uint32_t version);
/// The major version of CUDA of a CUPTI API version; 0: older than 11.
std::uint32_t cuda_major(std::uint32_t version);

/// Whether a file name is that of a libcupti: "libcupti.so.13", "libcupti-a7b2.so.12".
bool is_cupti_file(const char* file_name);

/// Candidate paths of libcupti, best first, for a process with these loaded files and environment
/// variables (null: not set), and a driver of this version (cuDriverGetVersion). Where there may be
/// several versions, that of the loaded CUDA runtime is first, else the newest that the driver
/// takes. Paths without a slash are for the loader's own search.
std::vector<std::string> candidate_paths(const std::vector<std::string>& loaded_files,
                                         const char* cuda_home, const char* cuda_path,
                                         int driver_version);

/// Opens the first libcupti found and checks whether it is usable with a driver of this version
/// (cuDriverGetVersion). Takes the loader's lock: call without any of memlab's held. A usable
/// library stays loaded for good. May throw std::bad_alloc.
Library open_library(FindSymbol find, int driver_version);

}  // namespace memlab::profiler::cupti
