// Names as tables show them: without what nobody looks for.
#pragma once

#include <string>
#include <string_view>

namespace memlab::report {

/// "libcublas.so.13": what comes after the last slash.
inline std::string base_name(std::string_view path) {
    return std::string(path.substr(path.rfind('/') + 1));  // npos + 1 is 0
}

/// "(anonymous namespace)::run" becomes "run".
std::string without_anonymous(std::string name);

/// "run<std::vector<int>>::step" becomes "run<…>::step"; a name whose brackets do not match stays.
std::string collapse_templates(const std::string& name, bool ascii);

}  // namespace memlab::report
