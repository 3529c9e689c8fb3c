// The files that the tools write: a text as a whole, or an export that may be larger than memory,
// piece by piece.
//
// A file is replaced atomically: it goes to a temporary file in the same folder, which is renamed
// at the end. Ctrl-C, what fails meanwhile and a full disk leave the previous file as it was, and
// no temporary one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/report_file.hpp"
#include "report/text/signal_cleanup.hpp"

namespace memlab::report {

/// Thread-safety: none.
class OutputFile final : public model::ByteSink {
  public:
    /// "-" and the names of descriptors (/dev/stdout, /dev/fd/3) are written to where they are. Of
    /// a symbolic link the target is replaced; a device or pipe is written to directly.
    explicit OutputFile(const std::string& path,
                        model::Existing existing = model::Existing::replace);
    /// Removes an unfinished file.
    ~OutputFile() override;

    /// The error in one line: what, where, what to do. Empty: none so far.
    const std::string& problem() const { return problem_; }
    bool is_stdout() const;

    bool write(const char* data, std::size_t size) override;

    /// Closes the file: a disk that was full is known. It does not have its name yet.
    bool complete();
    /// Gives it its name. False on errors: see problem().
    bool finish();

  private:
    bool fail(int error);

    const std::string path_;  ///< as it was given
    const model::Existing existing_;
    int descriptor_ = -1;  ///< of what is written to directly
    std::optional<model::DescriptorSink> direct_;
    std::optional<model::NewFile> file_;
    std::optional<RemovedOnSignal> cleanup_;
    std::string problem_;
};

/// Where a file is that a chain of symbolic links leads to, be it there or not.
std::string link_target(const std::string& path);

/// Why a file cannot be written, in one line, with what to do. `error`: an errno.
std::string output_problem(const std::string& path, int error);

/// Writes `text` to `path`: an OutputFile. Returns an empty text, or the problem.
std::string write_output(const std::string& path, std::string_view text,
                         model::Existing existing = model::Existing::replace);

/// Appends `text` to `path` (a CI job summary, to which several steps contribute), or nothing of
/// it.
std::string append_output(const std::string& path, std::string_view text);

}  // namespace memlab::report
