// How memlab-run learns which files belong to its run: it names an empty file to its children, and
// each process that begins to record appends a line (interpose/process/manifest_line.hpp says
// which). Looking for new files in a folder would mix up runs that share it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

namespace memlab::tools {

/// A process, as far as a descendant could see it.
struct Ancestor {
    pid_t pid = 0;
    std::string command;

    bool operator==(const Ancestor&) const = default;
};

/// What one process writes, and who it is.
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

    /// Empty, or why the file could not be created.
    const std::string& error() const { return error_; }

    /// What the processes wrote, in order, each line once.
    std::vector<RunFiles> take() const;

    /// Takes the file away. Also done by the destructor.
    void remove();

  private:
    std::string path_;
    std::string error_;
};

/// Reads manifest text; lines that are none (a process killed while writing) are left out.
std::vector<RunFiles> parse_manifest(const std::string& text);

/// Whether there is something at this path.
bool file_exists(const std::string& path);

/// Appends `files` to the manifest of the memlab-run that runs this one.
void pass_on(const std::vector<RunFiles>& files, const std::string& manifest_path);

}  // namespace memlab::tools
