// Where an export goes: standard output, or a file that is whole or as it was.
//
// An export may be larger than memory, so it is written as it comes (output_file.hpp writes text
// that is all there), under a temporary name beside its own, and renamed at the end. Ctrl-C, a
// failed export and a full disk leave what was there before, and nothing else.
#pragma once

#include <cstddef>
#include <string>

#include "trace/json/json_output.hpp"

namespace memlab::tools {

/// One at a time in a process: signals know of one. Thread-safety: none.
class ExportFile final : public report::ByteSink {
  public:
    /// Empty, or "-": standard output. What a symbolic link names is replaced, not the link; a
    /// device or pipe is written to.
    explicit ExportFile(std::string path);
    /// What was not finished is removed.
    ~ExportFile() override;

    /// What is wrong ("cannot write PATH: ..."), and what to do; empty: all is well so far.
    const std::string& problem() const { return problem_; }

    bool write(const char* data, std::size_t size) override;

    /// Puts the file in its place; problem() where that fails.
    bool finish();

  private:
    void fail(int error);
    void remove();

    std::string path_;       ///< empty: standard output
    std::string temporary_;  ///< empty: there is none
    int descriptor_ = -1;
    std::string problem_;
};

}  // namespace memlab::tools
