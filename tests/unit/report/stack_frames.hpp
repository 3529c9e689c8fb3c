// Frames of stacks, as symbolizing makes them, for the tests of what is chosen of a stack.
#pragma once

#include <string>

#include "report/symbols/stack_frame.hpp"

/// Of a binary.
inline memlab::report::StackFrame frame_in(const char* module, const char* function,
                                           const char* file = "", int line = 0) {
    memlab::report::StackFrame frame;
    frame.module = module;
    frame.function = function;
    frame.file = file;
    frame.line = line;
    return frame;
}

/// Of Python.
inline memlab::report::StackFrame python_frame(const char* function, const std::string& file,
                                               int line = 1) {
    memlab::report::StackFrame frame = frame_in("", function, file.c_str(), line);
    frame.python = true;
    return frame;
}

/// What stands before the forward's frames in a stack of backward.
inline memlab::report::StackFrame forward_marker() {
    return python_frame("[forward]", "", 0);
}
