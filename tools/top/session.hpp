// memlab-top at a terminal: waits for samples and keys, and shows what follows from them.
#pragma once

#include <chrono>
#include <string>

#include "tools/top/view_state.hpp"

namespace memlab::tools {

struct SessionOptions {
    std::chrono::milliseconds interval{1000};
    bool color = true;
    bool ascii = false;
    bool arguments = true;
    ViewState view;  ///< to begin with
};

/// Until q, Ctrl-C, or the terminal is gone. Returns why there can be no session, empty after one.
std::string run_session(const SessionOptions& options);

}  // namespace memlab::tools
