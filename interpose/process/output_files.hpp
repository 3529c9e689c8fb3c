// Names and exclusively creates the files that a process writes.
#pragma once

#include <memory>
#include <string>

#include "interpose/options/settings.hpp"
#include "trace/log_writer.hpp"
#include "trace/record.hpp"

namespace memlab::interpose {

/// The values of %e, %p, %h and %r.
struct PatternValues {
    std::string executable;  ///< file name only
    std::string pid;
    std::string host;
    std::string rank;  ///< "0" where no launcher set one
};

/// Expands the pattern and makes the path absolute. A result that ends in '/' gets the default
/// file name appended.
std::string expand_pattern(const std::string& pattern, const PatternValues& values,
                           const std::string& working_directory);

struct ClaimedFiles {
    std::unique_ptr<trace::LogWriter> writer;
    std::string report;
    std::string log;
    std::string problem;   ///< one sentence if the configured path could not be used
    unsigned mode = 0666;  ///< permissions, before the umask
};

/// Permissions of files in a folder that the user did not name, or that everybody may write to.
inline constexpr unsigned mode_in_shared_folder = 0600;

/// Creates the event log exclusively, which also reserves the report's name: if the name is taken
/// (exec keeps the pid) a number is inserted before the suffix. Creates missing folders. On failure
/// falls back to TMPDIR or /tmp, readable by the user alone, else to no files.
ClaimedFiles claim_files(const Settings& settings, const PatternValues& values);

/// The fallback path of the report, in TMPDIR or /tmp.
std::string fallback_report(const PatternValues& values);

/// Appends this process's line to memlab-run's manifest, if there is one.
void append_to_manifest(const Settings& settings, const ClaimedFiles& files);

}  // namespace memlab::interpose
