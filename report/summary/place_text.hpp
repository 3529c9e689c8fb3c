// A place of the source in one line of text.
#pragma once

#include <cstddef>
#include <string>

#include "report/symbols/resolver.hpp"
#include "report/text/terminal.hpp"

namespace memlab::report {

struct PlaceTextOptions {
    const Style& style;
    const std::string& working_directory;  ///< files below it are shown relative to it
    bool templates = false;                ///< their arguments stay, also where there is no room
};

/// `file`, relative to `working_directory` where it lies below. Not printable yet.
std::string shown_file(const std::string& file, const std::string& working_directory);

/// "train.cpp:42", "libfoo.so+0x1234", "[jit]", "(no stack)": where a place is, without its
/// function. Not printable yet.
std::string location_text(const Place& place, const std::string& working_directory);

/// "train.cpp:42  Step::forward  via libcublas.so.13  [managed]" in `room` columns, printable. What
/// tells least goes first where that is too long: the library between, then, for a place without
/// source, the library itself. `api` stands for the function where there is no stack.
std::string describe_place(const Place& place, const std::string& kind, const std::string& api,
                           std::size_t room, const PlaceTextOptions& options);

}  // namespace memlab::report
