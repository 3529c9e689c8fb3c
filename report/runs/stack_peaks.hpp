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

namespace memlab::report {

/// Of the sites of one process with the same stack and kind of memory, on its GPUs.
struct StackPeak {
    std::uint32_t number = 0;  ///< StackNumbers'
    std::uint32_t stack = 0;   ///< index into the stacks of the process's own report
    std::uint64_t bytes = 0;   ///< the sum of the peaks of the sites
};

/// Thread-safe.
class StackNumbers {
  public:
    /// By number; without sites that were never in use.
    std::vector<StackPeak> peaks_of(const model::Report& report);

    /// What all stacks of this number have in common: the kind of memory, and the stack by build
    /// ids and offsets. Not while others call peaks_of().
    const std::string& key(std::uint32_t number) const { return entries_[number]->first; }
    const std::string& kind(std::uint32_t number) const { return kinds_[number]; }
    std::size_t size() const { return entries_.size(); }

  private:
    std::mutex mutex_;
    std::unordered_map<std::string, std::uint32_t> numbers_;
    std::vector<const std::pair<const std::string, std::uint32_t>*> entries_;
    std::vector<std::string> kinds_;
};

}  // namespace memlab::report
