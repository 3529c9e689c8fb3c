// The peaks of call stacks, comparable between processes: a stack has the same number in all that
// run the same binaries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/report.hpp"
#include "report/levels.hpp"

namespace memlab::report {

/// Of the sites of one process with the same stack and kind of memory, on its GPUs.
struct StackPeak {
    std::uint32_t number = 0;  ///< StackNumbers'
    std::uint32_t stack = 0;   ///< index into the stacks of the process's own report
    std::uint64_t bytes = 0;   ///< the sum of the peaks of the sites
};

/// Of each stack once for the levels that its memory is seen at, and its kind. Thread-safe.
class StackNumbers {
  public:
    /// By number; without sites that were never in use.
    std::vector<StackPeak> peaks_of(const model::Report& report);

    // The rest not while others call peaks_of().
    const std::string& kind(std::uint32_t number) const { return entries_[number]->second.kind; }
    /// Whether the memory is seen at that level.
    bool has(std::uint32_t number, Level level) const;
    std::size_t size() const { return entries_.size(); }

  private:
    struct Entry {
        std::uint32_t number = 0;
        std::string kind;
        bool at_driver = false;
        bool at_framework = false;
    };
    std::mutex mutex_;
    std::unordered_map<std::string, Entry> numbers_;
    std::vector<const std::pair<const std::string, Entry>*> entries_;
};

}  // namespace memlab::report
