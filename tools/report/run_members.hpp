// The processes of a run for commands: resolvers of their stacks, and read errors.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "report/runs/collection.hpp"
#include "report/symbols/resolver.hpp"
#include "report/symbols/symbolizer.hpp"
#include "tools/report/subcommand.hpp"

namespace memlab::tools {

/// The members' resolvers, created on first use. Thread-safety: none.
class Resolvers {
  public:
    /// `symbolizer`: null: no names are looked up. Both must outlive it. `reader`: of whole
    /// reports.
    Resolvers(const report::RunCollection& run, report::Symbolizer* symbolizer,
              report::FrameSkips skips, report::RecordingReader reader = {})
        : run_(run),
          symbolizer_(symbolizer),
          skips_(std::move(skips)),
          reader_(std::move(reader)) {}

    report::Resolver& operator()(std::size_t member) {
        std::unique_ptr<report::Resolver>& resolver = resolvers_[member];
        if (!resolver) {
            resolver = std::make_unique<report::Resolver>(report(member), symbolizer_, skips_);
        }
        return *resolver;
    }

    /// The whole report.
    const model::Report& report(std::size_t member) {
        const report::RunMember& of = run_.members.at(member);
        if (!of.totals_only) {
            return of.report;
        }
        std::unique_ptr<model::Report>& whole = whole_[member];
        if (!whole) {
            whole = std::make_unique<model::Report>(read_whole(of, reader_));
        }
        return *whole;
    }

  private:
    const report::RunCollection& run_;
    report::Symbolizer* symbolizer_;
    report::FrameSkips skips_;
    report::RecordingReader reader_;
    std::map<std::size_t, std::unique_ptr<model::Report>> whole_;
    std::map<std::size_t, std::unique_ptr<report::Resolver>> resolvers_;
};

/// Prints read errors, a line each; returns the exit code.
inline int report_errors(const std::vector<std::pair<std::string, std::string>>& errors) {
    for (const auto& [file, error] : errors) {
        std::string problem = file;
        problem.append(": ").append(error);
        fail(problem);
    }
    return errors.empty() ? EXIT_SUCCESS : exit_bad_input;
}

inline int report_errors(const report::RunCollection& collection) {
    return report_errors(collection.errors);
}

}  // namespace memlab::tools
