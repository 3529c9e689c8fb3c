// Formats a source location as one line of text.
#pragma once

#include <cstddef>
#include <string>

#include "report/symbols/resolver.hpp"
#include "report/text/terminal.hpp"

namespace memlab::report {

struct PlaceTextOptions {
    const Style& style;
    const std::string& working_directory;  ///< files below it are shown relative to it
    bool templates = false;                ///< keep template arguments even if the line is too long
};

/// `file`, relative to `working_directory` if it is below it. Not passed through printable().
std::string shown_file(const std::string& file, const std::string& working_directory);

/// "train.cpp:42", "libfoo.so+0x1234", "[jit]", "(no stack)": the location without its function;
/// empty where a name is all there is ("[forward]").
/// Not passed through printable().
std::string location_text(const Place& place, const std::string& working_directory);

/// "  [managed]"; empty for memory of a usual kind. Not passed through printable().
std::string kind_note(const std::string& kind);
/// "  via libcublas.so.13"; empty without one, and where it says nothing: for PyTorch's tensors.
/// Not passed through printable().
std::string through_note(const Place& place, const std::string& kind);

/// "train.cpp:42  Step::forward  via libcublas.so.13  [managed]" in `width` columns, printable. If
/// that is too long, the least informative parts are dropped first: the library between, then, for
/// a place without source, its library. `api` replaces the function if there is no stack.
std::string describe_place(const Place& place, const std::string& kind, const std::string& api,
                           std::size_t width, const PlaceTextOptions& options);

}  // namespace memlab::report
