// Names as tables show them: without what nobody looks for. C++ declarations are taken apart by
// their brackets, so that what a name itself contains ("operator<", "(anonymous namespace)",
// "{lambda(int)#1}") is never mistaken for template arguments, parameters or a return type.
#pragma once

#include <string>
#include <string_view>

namespace memlab::report {

/// "libcublas.so.13": what comes after the last slash.
inline std::string base_name(std::string_view path) {
    return std::string(path.substr(path.rfind('/') + 1));  // npos + 1 is 0
}

/// A declaration without return type, parameters and compiler suffixes:
/// "void train::Step<float>::run(int) [clone .part.0]" is "train::Step<float>::run". What is no C++
/// declaration stays, but for such suffixes.
std::string short_function_name(std::string_view declaration);

/// "(anonymous namespace)::run" becomes "run".
std::string without_anonymous(std::string name);

/// "run<std::vector<int>>::step" becomes "run<…>::step"; a name whose brackets do not match stays,
/// and so do Python's own names ("A.run.<locals>.<lambda>").
std::string collapse_templates(std::string_view name, bool ascii);

}  // namespace memlab::report
