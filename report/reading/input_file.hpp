// Recordings as they are given on a command line: files, compressed files (gzip, zstd), pipes, and
// "-" for standard input. What cannot be read twice or is compressed is copied to a temporary file
// once, which has no name and ends with the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "trace/reading/log_reader.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

struct InputFile {
    std::string path;     ///< what to open in place of the given path; the same for a plain file
    std::string problem;  ///< "what; what to do"; empty: none
};

/// The file to open for `path`. Reads a pipe to its end, and waits for it. The same answer each
/// time. Thread-safe.
InputFile find_input(const std::string& path);

/// trace::read_log() of find_input(path); messages have the given path.
trace::LogReadResult read_input_log(const std::string& path, trace::RecordSink& sink,
                                    std::atomic<std::uint64_t>* bytes_read = nullptr,
                                    trace::LogPart part = trace::LogPart::everything);

}  // namespace memlab::report
