// The recordings that memlab-report export reads, and what of them: a moment, a stretch, the
// processes of a run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "report/exports/formats.hpp"
#include "report/runs/collection.hpp"
#include "report/symbols/resolver.hpp"
#include "report/symbols/symbolizer.hpp"
#include "report/timeline/moments.hpp"
#include "tools/report/moments.hpp"
#include "tools/report/report_options.hpp"

namespace memlab::tools {

struct ExportArguments : ReportOptions, MomentOptions {
    std::string format;
    std::string output;
    std::string by;  ///< of weight_infos; empty: not given
};

/// What an exporter reads of a recording, with all that it refers to.
class ExportInput {
  public:
    ExportInput(std::shared_ptr<const report::exports::Recording> recording,
                const ExportArguments& arguments, report::Symbolizer* symbolizer);
    ExportInput(const ExportInput&) = delete;
    ExportInput& operator=(const ExportInput&) = delete;

    report::exports::Input& input() { return input_; }

  private:
    std::shared_ptr<const report::exports::Recording> recording_;
    report::Resolver resolver_;
    report::exports::Input input_;
};

/// A recording for `format`. On errors returns nothing and sets `problem`.
std::shared_ptr<const report::exports::Recording> prepare_recording(
    LoadedReport loaded, const ExportArguments& arguments, const report::exports::Format& format,
    std::string* problem);

/// The input of `format` from one recording, or from two that are compared, the earlier first. Of
/// stacks --at is a moment, and --from and --until are two that are compared.
class ExportInputs {
  public:
    /// `moments` may have the recordings at moments.
    ExportInputs(const ExportArguments& arguments, const report::MomentCollector& moments)
        : arguments_(arguments),
          moments_(moments),
          symbols_(arguments.no_symbols ? nullptr : &symbolizer_) {}

    /// False: see problem().
    bool take(const std::string& file, std::shared_ptr<const report::exports::Recording> recording,
              const report::exports::Format& format);

    const report::exports::Input& input() const { return after_->input(); }
    const std::string& problem() const { return problem_; }

  private:
    using Recording = std::shared_ptr<const report::exports::Recording>;

    bool compare_moments(const std::string& file, const Recording& recording,
                         const Interval& interval);
    /// How the recording was at a moment; null: see problem_.
    std::unique_ptr<ExportInput> at(const std::string& file, const Recording& recording,
                                    const std::string& moment, std::uint64_t time_ns);
    void add(std::unique_ptr<ExportInput> input);

    const ExportArguments& arguments_;
    const report::MomentCollector& moments_;
    report::Symbolizer symbolizer_;
    report::Symbolizer* symbols_;
    std::unique_ptr<ExportInput> before_;
    std::unique_ptr<ExportInput> after_;
    std::string problem_;
};

/// Sentences on what the recording lacks. Of missing single events the formats tell that have them.
std::vector<std::string> warnings_of(const report::exports::Recording& recording);

/// Writes a trace of all processes of a run. Returns the exit code; what cannot be read is left
/// out.
int export_run_to_perfetto(const ExportArguments& arguments, const report::RunCollection& run);

}  // namespace memlab::tools
