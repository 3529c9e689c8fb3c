// Frameworks' own caches as a report shows them: one that lies on top of memlab's pool hides the
// tensors in it, one that was switched off changed what the framework itself says. Recognized by
// the library that allocates and by what a cache does, not by the library alone: with its cache off
// the same library allocates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/model.hpp"
#include "trace/json/framework_caches.hpp"

namespace memlab::report {

struct FrameworkFinding {
    const FrameworkCache* cache = nullptr;
    bool switched_off = false;     ///< by its switch, which was in force
    std::uint64_t peak_bytes = 0;  ///< held through its library at the allocated peaks of the GPUs
    std::string text;              ///< whole sentences: what it means and what to do
    std::string command;           ///< that shows the tensors; empty where none does
};

/// A cache on top is named where it holds a quarter of the peak at least; a switch wherever the
/// framework was used with it.
std::vector<FrameworkFinding> find_frameworks(const Report& report);

}  // namespace memlab::report
