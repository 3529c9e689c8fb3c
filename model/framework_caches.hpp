// The frameworks that cache freed GPU memory: how memlab recognizes each, its documented switch to
// turn the cache off, and the side effects of that. One table for the explanation of an OOM, the
// report's hints and memlab-run --replace. memlab itself never sets a switch.
#pragma once

#include <span>
#include <string_view>

namespace memlab::model {

/// A framework whose allocator caches freed memory.
struct FrameworkCache {
    const char* key;      ///< argument of memlab-run --replace: "pytorch"
    const char* name;     ///< "PyTorch"
    const char* library;  ///< part of the path of the library that allocates for it
    /// The environment variable that turns the cache off; null if there is none.
    const char* switch_name = nullptr;
    const char* switch_value = nullptr;  ///< the value to set
    bool any_value = false;              ///< any value of the variable turns it off
    const char* other_value = nullptr;   ///< one more that does
    /// A second variable that the switch needs; null: none.
    const char* also_name = nullptr;
    const char* also_value = nullptr;
    /// The side effects of the switch, in full sentences; null without a switch.
    const char* changes = nullptr;
    /// The line of code that turns the cache off; null if the switch does.
    const char* line = nullptr;
};

/// All of them. Static; thread-safe.
std::span<const FrameworkCache> framework_caches();

/// The framework that allocates through the library at `path`; null: none. Thread-safe.
const FrameworkCache* framework_of_library(std::string_view path);

/// Whether a variable of this name and value turns the cache off.
bool switches_off(const FrameworkCache& cache, std::string_view name, std::string_view value);

}  // namespace memlab::model
