// The process-wide switch for downloads of debug information, and their errors. Off by default: a
// summary must not wait for a network, nor tell a server which binaries run here.
//
// libdw does the downloads, through libdebuginfod and its cache. It reads DEBUGINFOD_URLS from the
// environment and does not report errors, so the switch is global.
#pragma once

#include <string>

namespace memlab::report {

/// Lets Symbolizers download missing debug information from the servers in DEBUGINFOD_URLS. Returns
/// "", or why that is not possible ("what; what to do"); then downloads stay off. Call before the
/// first Symbolizer is created. Thread-safety: none.
std::string allow_debuginfod();

/// False: libdw contacts no server, whatever the environment says.
bool debuginfod_allowed();

/// Records a failed download for the binary `build_id`. `error` is an errno (EBADMSG: a file of
/// another build). Any error but ENOENT turns downloads off, so that a hanging server costs one
/// timeout and not one per library. Thread-safety: none.
void debuginfod_failed(const std::string& build_id, int error);

/// One line on what could not be downloaded; empty: nothing is missing, or downloads are off.
std::string debuginfod_note();

}  // namespace memlab::report
