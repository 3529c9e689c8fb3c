// Labels (memlab_label, NVTX's heaps) of the memory that a call site holds, and their text: the
// same on stderr when memory runs out and in the views of a report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memlab::model {

/// The name that stands for all that are not told one by one.
inline constexpr std::string_view other_names = "(other names)";

struct MemoryLabel {
    std::string name;
    std::uint64_t count = 0;  ///< allocations of that name
    std::uint64_t bytes = 0;  ///< what they hold
    std::string detail = {};  ///< "float32[512, 512]"; empty: not known, or they differ

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text({"name", "the program's name"}, self.name);
        visit.number({"count", "allocations that it held under this name"}, self.count);
        visit.number({"bytes", "their sum"}, self.bytes);
        visit.text_if_any(
            {"detail", "what each of them holds (float32[512, 512]), if all hold the same"},
            self.detail);
    }
    bool operator==(const MemoryLabel&) const = default;
};

/// `"weights"` if one label covers all `bytes`. Else the first labels with their bytes:
/// `"weights" 1.20 GiB, "cache" 8.00 MiB and 2 more`, or `and others` where other_names is one of
/// them. A detail follows its name: `"weights" float32[512, 512]`. Empty without labels. Control
/// characters become question marks.
std::string format_labels(const std::vector<MemoryLabel>& labels, std::uint64_t bytes);

/// The names alone: "weights", "cache" and 2 more.
std::string format_label_names(const std::vector<MemoryLabel>& labels);

/// The detail of two labels of one name: that of both, or none.
template <typename Label>
void keep_common_detail(Label& to, const Label& added) {
    if (to.detail != added.detail) {
        to.detail.clear();
    }
}

/// Adds to the figures of the same name, or appends a new label.
void add_label(const MemoryLabel& label, std::vector<MemoryLabel>& labels);

/// Sorts by bytes, largest first, other_names last.
void sort_labels(std::vector<MemoryLabel>& labels);

}  // namespace memlab::model
