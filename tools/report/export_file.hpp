// The destination of an export: standard output, or a file that is replaced atomically.
//
// An export may be larger than memory, so it is streamed (output_file.hpp writes complete texts) to
// a temporary file in the same folder, which is renamed at the end. Ctrl-C, a failed export or a
// full disk leave the previous file unchanged, and no temporary one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "model/json_output.hpp"
#include "report/exports/gzip.hpp"

namespace memlab::tools {

/// At most one instance at a time, since the signal handling supports one. Thread-safety: none.
class ExportFile final : public model::ByteSink {
  public:
    /// Empty, or "-": standard output. Of a symbolic link the target is replaced; a device or pipe
    /// is written to directly.
    explicit ExportFile(std::string path);
    /// Removes an unfinished file.
    ~ExportFile() override;

    /// The error ("cannot write PATH: ...; what to do"); empty: none so far.
    const std::string& problem() const { return problem_; }

    bool write(const char* data, std::size_t size) override;

    /// Renames the file to its final name. False on errors: see problem().
    bool finish();

  private:
    void fail(int error);
    void remove();

    std::string path_;       ///< empty: standard output
    std::string temporary_;  ///< empty: there is none
    int descriptor_ = -1;
    std::string problem_;
};

/// The same, compressed where the file's name ends in .gz, unless the format is compressed by its
/// own definition.
class ExportOutput {
  public:
    ExportOutput(const std::string& path, bool compressible) : file_(path) {
        if (compressible && path.ends_with(".gz")) {
            packed_.emplace(file_);
        }
    }

    const std::string& problem() const { return file_.problem(); }
    model::ByteSink& sink() { return packed_ ? static_cast<model::ByteSink&>(*packed_) : file_; }
    bool finish() { return (!packed_ || packed_->finish()) && file_.finish(); }

  private:
    ExportFile file_;
    std::optional<report::exports::GzipSink> packed_;
};

}  // namespace memlab::tools
