// The frameworks that keep freed GPU memory themselves: how memlab recognizes each, the framework's
// own documented switch that turns that cache off, and what is different then. One table, for the
// explanation of an OOM, for the report's hints, and for memlab-run --replace. memlab itself never
// sets a switch.
#pragma once

#include <span>
#include <string_view>

namespace memlab::report {

/// A framework whose allocator keeps what the program has freed.
struct FrameworkCache {
    const char* key;      ///< what memlab-run --replace takes: "pytorch"
    const char* name;     ///< "PyTorch"
    const char* library;  ///< part of the path of the library that allocates for it
    const char* advice;   ///< in an OOM: how to get at that memory
    /// The environment variable that switches the cache off; null where there is none.
    const char* switch_name = nullptr;
    const char* switch_value = nullptr;  ///< what to set it to
    bool any_value = false;              ///< the variable works by being there
    /// What else is different with the switch on, in whole sentences; null without a switch.
    const char* changes = nullptr;
    /// The line in the program that turns the cache off; null where the switch does.
    const char* line = nullptr;
};

/// All of them. Static; thread-safe.
std::span<const FrameworkCache> framework_caches();

/// The one that allocates through the library at `path`; null: none. Thread-safe.
const FrameworkCache* framework_of_library(std::string_view path);

/// True when a variable of this name and value switches the cache off.
bool switches_off(const FrameworkCache& cache, std::string_view name, std::string_view value);

}  // namespace memlab::report
