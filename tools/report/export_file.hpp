// The destination of an export: standard output, or a file, compressed where its name ends in .gz.
#pragma once

#include <unistd.h>

#include <optional>
#include <string>

#include "report/exports/gzip.hpp"
#include "report/output_file.hpp"
#include "report/text/progress.hpp"

namespace memlab::tools {

/// Thread-safety: none.
class ExportOutput {
  public:
    /// `path`: empty, or "-": standard output. `compressible`: the format is not compressed by its
    /// own definition.
    ExportOutput(const std::string& path, bool compressible) : file_(path.empty() ? "-" : path) {
        if (file_.is_stdout() && isatty(STDOUT_FILENO) != 0) {
            report::show_progress_on(-1);  // what is read is printed meanwhile
        }
        if (compressible && path.ends_with(".gz")) {
            packed_.emplace(file_);
        }
    }

    const std::string& problem() const { return file_.problem(); }
    model::ByteSink& sink() { return packed_ ? static_cast<model::ByteSink&>(*packed_) : file_; }
    bool finish() { return (!packed_ || packed_->finish()) && file_.finish(); }

  private:
    report::OutputFile file_;
    std::optional<report::exports::GzipSink> packed_;
};

}  // namespace memlab::tools
