// Debug information from servers, by the program debuginfod-find (elfutils) and its cache. Off by
// default: a summary must not wait for a network, nor tell a server which binaries run here.
//
// A program of its own, since the tools are static and load no library. The switch is process-wide,
// as DEBUGINFOD_URLS is, by which libdw would ask the servers on its own.
#pragma once

#include <string>

namespace memlab::report {

/// Lets Symbolizers fetch missing debug information from the servers in DEBUGINFOD_URLS. Returns
/// "", or why that is not possible ("what; what to do"); then downloads stay off. Call before the
/// first Symbolizer is created. Thread-safety: none.
std::string allow_debuginfod();

/// Takes the servers out of the environment: libdw asks none, whatever was allowed.
void hide_debuginfod_from_libdw();

/// False: no server is contacted, whatever the environment says.
bool debuginfod_allowed();

/// The path of the debug information of the binary `build_id` (lower-case hexadecimal), fetched if
/// it is not in debuginfod-find's cache; empty: none. Waits as long as DEBUGINFOD_TIMEOUT says. Any
/// failure but "not known" turns downloads off, so that a hanging server costs one timeout and not
/// one per library. Thread-safety: none.
std::string fetch_debuginfo(const std::string& build_id);

/// Records that what was fetched for a binary is of another build, and turns downloads off.
void debuginfod_sent_another_build();

/// One line on what could not be downloaded; empty: nothing is missing, or downloads are off.
std::string debuginfod_note();

}  // namespace memlab::report
