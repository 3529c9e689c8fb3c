// Labels (memlab_label, NVTX's heaps) of the memory that a call site holds, and their text: the
// same on stderr when memory runs out and in the views of a report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace memlab::model {

struct MemoryLabel {
    std::string name;
    std::uint64_t count = 0;  ///< allocations of that name
    std::uint64_t bytes = 0;  ///< what they hold

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text({"name", "the program's name"}, self.name);
        visit.number({"count", "allocations that it held under this name"}, self.count);
        visit.number({"bytes", "their sum"}, self.bytes);
    }
    bool operator==(const MemoryLabel&) const = default;
};

/// `"weights"` if one label covers all `bytes`. Else the first labels with their bytes:
/// `"weights" 1.20 GiB, "cache" 8.00 MiB and 2 more`. Empty without labels. Control characters in
/// names become question marks.
std::string format_labels(const std::vector<MemoryLabel>& labels, std::uint64_t bytes);

/// The names alone: "weights", "cache" and 2 more.
std::string format_label_names(const std::vector<MemoryLabel>& labels);

/// Adds to the figures of the same name, or appends a new label.
void add_label(const MemoryLabel& label, std::vector<MemoryLabel>& labels);

/// Sorts by bytes, largest first.
void sort_labels(std::vector<MemoryLabel>& labels);

}  // namespace memlab::model
