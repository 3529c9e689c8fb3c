// Whether debug information may be fetched from servers, and what came of it. It may not unless
// somebody asks: a summary must not wait for a network, nor tell a server which binaries run here.
//
// libdw does the asking, through libdebuginfod and its cache. It reads DEBUGINFOD_URLS from the
// environment, and says nothing about trouble; so this is one switch for the whole process.
#pragma once

#include <string>

namespace memlab::report {

/// From now on a Symbolizer asks the servers that DEBUGINFOD_URLS names for the debug information
/// that is not on this machine. Empty, or why that cannot be ("what; what to do"); then nothing has
/// changed. To be called before the first Symbolizer is made. Thread-safety: none.
std::string allow_debuginfod();

/// Otherwise libdw asks nobody, whatever the environment says.
bool debuginfod_allowed();

/// There is no debug information for the binary `build_id`: not here, and from the servers came
/// `error` (an errno; EBADMSG: a file of another build). ENOENT is an answer; with anything else
/// nobody is asked again, so that a server that hangs is waited for once and not for every library.
/// Thread-safety: none.
void debuginfod_failed(const std::string& build_id, int error);

/// What the servers did not give, in one line; empty: nothing is missing, or nobody was asked.
std::string debuginfod_note();

}  // namespace memlab::report
