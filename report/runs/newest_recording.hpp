// What is meant where no recording was named: the newest one of a folder. Names alone decide what
// is one, files are not opened, so a folder of thousands of them costs milliseconds.
#pragma once

#include <cstdint>
#include <string>

namespace memlab::report {

enum class Wanted : std::uint8_t {
    any,  ///< also the folder itself, if memlab-run described a run in it
    log,  ///< an event log
};

/// The name of the newest recording in `folder`, by the time of its last change: a report
/// (memlab.*.json), or an event log (*.memlog) without a report beside it, compressed or not. "."
/// if the folder is that of a run; empty if it has none or cannot be read. Never throws.
std::string newest_recording(const std::string& folder, Wanted wanted);

}  // namespace memlab::report
