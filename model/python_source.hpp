// Classifies Python code: the program's own, or a library's.
#pragma once

#include <string_view>

#include "trace/event.hpp"

namespace memlab::model {

/// True for files of installed packages, the standard library and the interpreter itself. Code
/// without a file ("<stdin>", a notebook's cell) is the program's own.
inline bool is_python_library(std::string_view file) {
    if (file.starts_with("<frozen ")) {
        return true;
    }
    // The last: memlab's own, where it is no wheel.
    for (const std::string_view folder :
         {"/site-packages/", "/dist-packages/", "/share/memlab/python/"}) {
        if (file.find(folder) != std::string_view::npos) {
            return true;
        }
    }
    // The standard library: .../lib/python3.12/queue.py.
    constexpr std::string_view standard = "/lib/python";
    const std::size_t at = file.find(standard);
    return at != std::string_view::npos && at + standard.size() < file.size() &&
           file[at + standard.size()] >= '2' && file[at + standard.size()] <= '9';
}

/// Whether a frame is no code but trace::forward_marker.
inline bool is_forward_marker(std::string_view function, std::string_view file) {
    return file.empty() && function == trace::forward_marker;
}

}  // namespace memlab::model
