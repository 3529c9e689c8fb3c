// The entries of a report's two large tables, made from an Aggregator.
#pragma once

#include <cstddef>
#include <vector>

#include "trace/aggregate/aggregator.hpp"
#include "trace/json/report_entries.hpp"

namespace memlab::report {

/// The entries of a recording, one at a time, so that the writer needs no memory for all of them.
/// Their texts are valid UTF-8. May throw std::bad_alloc.
class ReportTables {
  public:
    explicit ReportTables(const trace::Aggregator& from)
        : from_(from), labels_(from.labels().by_site()) {}

    std::size_t site_count() const { return from_.sites().size(); }
    Site site(std::size_t index) const;
    std::size_t stack_count() const { return from_.stacks().size(); }
    Stack stack(std::size_t index) const;

  private:
    const trace::Aggregator& from_;
    const std::vector<trace::SiteLabel> labels_;  ///< by site
};

}  // namespace memlab::report
