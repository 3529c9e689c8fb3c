// The text output of memlab-report's summary, the most important first: how the process ended, how
// much memory, when, who; then warnings and what to do next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "report/summary/summary.hpp"
#include "report/text/page.hpp"
#include "report/text/plot.hpp"
#include "report/text/table.hpp"

namespace memlab::report {

/// Thread-safety: none.
class SummaryPage : private Page {
  public:
    /// `resolver` may be null if no call stacks are shown.
    SummaryPage(const Summary& summary, Resolver* resolver, const TextOptions& options)
        : Page(options.style), summary_(summary), resolver_(resolver), options_(options) {}

    /// The whole summary. Call once.
    std::string full();
    /// A few lines, printed by memlab-run at the end of a program. Call once.
    std::string brief();

  private:
    // device_sections.cpp
    void device_sections(const DeviceSummary& summary);
    /// Whether PyTorch's tensors on it have sections of their own, so that few lines on it suffice.
    bool is_cut_by_pytorch(const model::Device& gpu) const;
    void curve_table(const model::Device& device);
    void plot(const model::Device& device);
    void plot(const std::vector<PlotPoint>& points, const std::string& legend,
              std::uint64_t device);
    /// From the used memory of the GPU down to the requested bytes; shows the difference between
    /// adjacent levels. Equal levels share a line.
    void waterfall(const model::Device& device);
    void absences(const model::Device& device);
    void remainder(const model::Device& device);
    /// What PyTorch used the memory for at the allocated peak.
    void categories(const DeviceSummary& summary);
    /// What nn.Modules of PyTorch's held at the allocated peak, the largest.
    void nn_modules(const DeviceSummary& summary);
    void fragmentation(const model::Device& device);
    void marks(const model::Device& device);
    void kernels(const model::Device& device);

    // kind_sections.cpp
    /// The curve and the holders of each kind that the device's curves do not include.
    void kind_sections(const DeviceSummary& summary);
    void kind_section(const model::Device& device, const KindSummary& summary);
    void kinds(const model::Device& device);

    // summary_text.cpp
    std::string location(const Place& place) const;
    void title();
    void header();
    void holders(const std::string& title, const HoldersSummary& summary, std::size_t top,
                 const std::string& note);
    struct Share {
        std::uint64_t bytes = 0;
        std::uint64_t count = 0;
    };
    /// Bytes, their share of `whole`, count; row() is given the last column.
    Table<Share> shares(const std::string& bytes, const std::string& last, std::uint64_t whole,
                        std::size_t indent = 0);
    void places(const HoldersSummary& summary, std::size_t top, std::size_t indent = 0);
    void stacks(const DeviceSummary& summary);
    void stack_list(const char* when, const HoldersSummary& holders, std::set<std::size_t>& done);
    void one_stack(std::size_t stack);
    std::string bypassed_text() const;
    void coverage();
    std::string whole_note() const;
    void scopes();
    void labels();
    void steps();
    /// How memory developed from step to step, and the places that grow.
    void verdict(const StepsSummary& summary);
    static std::string rate(double bytes_per_step);
    void frameworks();
    void ooms();
    void warnings(std::size_t max_count);
    void command_to_copy(const std::string& command, std::size_t padding, bool beside,
                         const std::string& note);
    void next_steps();

    const Summary& summary_;
    Resolver* resolver_;
    const TextOptions& options_;
};

}  // namespace memlab::report
