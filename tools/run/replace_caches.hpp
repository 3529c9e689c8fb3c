// memlab-run --replace: the environment variables that disable frameworks' own caching allocators,
// so that memlab's pool serves each tensor. Only documented switches that the user has not set.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace memlab::tools {

struct Replacement {
    std::vector<std::pair<std::string, std::string>> variables;  ///< to set: name, value
    std::vector<std::string> remarks;  ///< a line each: variables set by the user, which win
    std::string problem;               ///< an unknown name, and the known ones; empty: none
};

/// `names`: comma-separated keys of report::framework_caches(); empty: all with a switch. Reads the
/// environment.
Replacement choose_replacements(const std::string& names);

/// "pytorch, jax, ...": the accepted names.
std::string replaceable();

}  // namespace memlab::tools
