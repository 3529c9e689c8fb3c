// Where the program is, as records have it.
#pragma once

#include <cstdint>

namespace memlab::profiler {

/// 0: unknown, or none.
struct CallSite {
    std::uint32_t stack = 0;       ///< StackDef::id
    std::uint32_t nn_modules = 0;  ///< NnModuleStackDef::id
    bool operator==(const CallSite&) const = default;
};

}  // namespace memlab::profiler
