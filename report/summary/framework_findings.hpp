// Detects the frameworks' own caching allocators in a report. A cache on top of memlab's pool hides
// the tensors in it; one that was switched off changes the framework's own statistics. Detected by
// the library that allocates and by the pattern of its allocations: with its cache off the same
// library allocates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/framework_caches.hpp"
#include "model/report.hpp"

namespace memlab::report {

struct FrameworkFinding {
    const model::FrameworkCache* cache = nullptr;
    bool switched_off = false;     ///< by its environment variable
    std::uint64_t peak_bytes = 0;  ///< allocated by its library at the allocated peaks of the GPUs
    std::string text;              ///< whole sentences: what it means and what to do
    std::string command;           ///< shows the tensors; empty if no command does
};

/// Reports a cache if it holds at least a quarter of the peak, and a cache that was switched off if
/// its framework was used.
std::vector<FrameworkFinding> find_frameworks(const model::Report& report);

/// True for a device that is a framework's cache, seen from inside.
bool is_frameworks_cache(const model::Device& device);

/// True for segments of such a cache: what is allocated in them is in the report, too.
bool is_segment_seen_inside(const model::Report& report, const model::Site& site);

/// Memory of PyTorch's cache, or pinned, that PyTorch's own CUDA code took for itself, not for a
/// tensor, and never gave back: the workspaces of cuBLAS, its cache of pinned memory. Told by the
/// libraries of its call stack, so also where functions have no names: a tensor's memory is asked
/// for by libtorch_cpu.
bool is_pytorchs_own(const model::Report& report, const model::Site& site);

}  // namespace memlab::report
