// What the program itself calls the memory that a call site holds (memlab_label, NVTX's heaps): the
// same words on stderr when memory runs out, and in the views of a report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace memlab::report {

struct HeldLabel {
    std::string name;
    std::uint64_t count = 0;  ///< allocations of that name
    std::uint64_t bytes = 0;  ///< what they hold
};

/// "weights", with its quotes, where one name is all that there is: `bytes` of the whole are under
/// it. Else names with what they hold, the first ones: "weights" 1.20 GiB, "cache" 8.00 MiB and 2
/// more. Empty without names. Control characters of a name become question marks.
std::string labels_text(const std::vector<HeldLabel>& labels, std::uint64_t bytes);

/// The names alone: "weights", "cache" and 2 more.
std::string names_text(const std::vector<HeldLabel>& labels);

/// Adds figures of one name to those of the same name, or as a new one behind them.
void add_label(const HeldLabel& label, std::vector<HeldLabel>& labels);

/// Those that hold most first.
void sort_labels(std::vector<HeldLabel>& labels);

}  // namespace memlab::report
