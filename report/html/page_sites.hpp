// The call sites of a recording as rows of the page: what is followed of each, and the sums of the
// others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/html/page_code.hpp"
#include "report/html/page_recording.hpp"

namespace memlab::report {

struct PageSite {
    CodeTable::Stack stack;
    std::string kind;
    std::uint64_t device = 0;
    std::string category;         ///< empty: none
    std::int64_t nn_module = -1;  ///< index into PageSites::nn_modules(); -1: none
    std::uint64_t allocations = 0;
    std::uint64_t allocated_bytes = 0;
    const History::Holder* holder = nullptr;
    std::uint64_t temporaries = 0;
    std::uint64_t leaked_bytes = 0;  ///< at the end, that no suppression explains
};

/// Refers to the recording. Thread-safety: none.
class PageSites {
  public:
    PageSites(const PageRecording& recording, CodeTable& code);

    const std::vector<PageSite>& all() const { return all_; }
    /// Those that a row is of.
    const std::vector<PageNnModules::NnModule>& nn_modules() const { return nn_modules_; }

    static constexpr std::int64_t several = -2;
    /// The row of what a stack of nn.Modules had allocated at a site of the report, or of the rest
    /// that it is part of. `nn_modules`: trace::NnModuleHolder::code(); 0: none.
    std::int64_t number_of(std::size_t site, std::uint32_t nn_modules) const;

  private:
    std::int64_t module_number(std::optional<std::size_t> nn_module);
    void add_rows(CodeTable& code);
    void find_numbers();
    void divide_leaks();
    std::optional<std::size_t> row_of(const History::Followed& of) const;

    const PageRecording& recording_;
    std::vector<PageSite> all_;
    std::vector<PageNnModules::NnModule> nn_modules_;
    std::map<std::size_t, std::int64_t> module_numbers_;
    std::map<History::Followed, std::size_t> followed_;  ///< rows
    std::map<History::RestKey, std::size_t> rest_;       ///< the same
    std::vector<std::int64_t> numbers_;                  ///< by site, of what no nn.Module has
    std::vector<std::size_t> shown_;                     ///< by nn.Module: what stands for it
};

}  // namespace memlab::report
