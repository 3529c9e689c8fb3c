// Shortens C++ names for tables. Declarations are split at matching brackets, so that parts of a
// name ("operator<", "(anonymous namespace)", "{lambda(int)#1}") are never mistaken for template
// arguments, parameters or a return type.
#pragma once

#include <string>
#include <string_view>

namespace memlab::report {

/// "libcublas.so.13": the part after the last slash.
inline std::string base_name(std::string_view path) {
    return std::string(path.substr(path.rfind('/') + 1));  // npos + 1 is 0
}

/// A declaration without return type, parameters and compiler suffixes:
/// "void train::Step<float>::run(int) [clone .part.0]" is "train::Step<float>::run". Other text
/// only loses such suffixes. A node of PyTorch's backward graph has the name of its class, as
/// grad_fn prints it: "MulBackward0".
std::string short_function_name(std::string_view declaration);

/// The short name without template arguments, and without what lambdas take: what a function is,
/// not what it is made for. "void Pool<float>::run<int>(Buffer&)::{lambda(Buffer&)#1}::operator()"
/// becomes "Pool::run::{lambda}::operator()". Names with unbalanced brackets stay short names.
std::string bare_function_name(std::string_view declaration);

/// "(anonymous namespace)::run" becomes "run".
std::string without_anonymous(std::string name);

/// "run<std::vector<int>>::step" becomes "run<…>::step". Names with unbalanced brackets and Python
/// names ("A.run.<locals>.<lambda>") are returned unchanged.
std::string collapse_templates(std::string_view name, bool ascii);

/// `mangled` as a C++ declaration, or itself when it is no C++ name.
std::string demangle(const char* mangled);

}  // namespace memlab::report
