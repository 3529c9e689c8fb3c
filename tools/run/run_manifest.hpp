// The run manifest, which lists the files of a run: memlab-run passes an empty file to its
// children, and each process that starts recording appends a line
// (interpose/process/manifest_line.hpp). Scanning a folder for new files would mix up runs that
// share it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

namespace memlab::tools {

/// An ancestor process, as seen by its descendant.
struct Ancestor {
    pid_t pid = 0;
    std::string command;

    bool operator==(const Ancestor&) const = default;
};

/// The files of one process, and its identity.
struct RunFiles {
    pid_t pid = 0;
    std::string log;
    std::string json;
    std::uint64_t pid_namespace = 0;  ///< 0: not known
    std::uint64_t start_ticks = 0;    ///< since boot; an exec keeps it; 0: not known
    std::vector<Ancestor> ancestors;  ///< the parent first

    bool operator==(const RunFiles&) const = default;
};

/// The manifest of a run. The file exists from construction to remove().
class RunManifest {
  public:
    RunManifest();
    ~RunManifest();
    RunManifest(const RunManifest&) = delete;
    RunManifest& operator=(const RunManifest&) = delete;

    const std::string& path() const { return path_; }

    /// The error if the file could not be created; else empty.
    const std::string& error() const { return error_; }

    /// The lines that the processes wrote, in order, without duplicates.
    std::vector<RunFiles> take() const;

    /// Deletes the file, as does the destructor.
    void remove();

  private:
    std::string path_;
    std::string error_;
};

/// Parses manifest text; skips incomplete lines (of a process killed while writing).
std::vector<RunFiles> parse_manifest(const std::string& text);

/// Whether the path exists.
bool file_exists(const std::string& path);

/// Appends `files` to the manifest of the outer memlab-run that started this one.
void pass_on(const std::vector<RunFiles>& files, const std::string& manifest_path);

}  // namespace memlab::tools
