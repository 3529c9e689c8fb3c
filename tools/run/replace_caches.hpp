// memlab-run --replace: which variables turn the frameworks' own caches off for the command, so
// that memlab's pool serves each tensor. Only documented switches, and only where the user has set
// none.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace memlab::tools {

struct Replacement {
    std::vector<std::pair<std::string, std::string>> variables;  ///< to set: name, value
    std::vector<std::string> remarks;  ///< a line each: what the user's own variables decide
    std::string problem;               ///< not empty: a wrong name, and which there are
};

/// `names`: keys of report::framework_caches() joined by commas; empty: all that have a switch.
/// Reads the environment.
Replacement choose_replacements(const std::string& names);

/// "pytorch, jax, ...": what `names` may hold.
std::string replaceable();

}  // namespace memlab::tools
