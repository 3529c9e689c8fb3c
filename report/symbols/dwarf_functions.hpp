// Reads functions from DWARF: names, address ranges, inlined calls. Damaged debug information may
// give wrong answers, but never an endless loop.
#pragma once

#include <dwarf.h>
#include <elfutils/libdw.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

namespace memlab::report {

/// A relative name in the line table is relative to the compilation directory. Where that is
/// relative, too, both were rewritten for reproducible builds (-ffile-prefix-map) independently, so
/// the name alone is used.
std::string absolute_file(const char* file, const char* directory);

/// The demangled linkage name of a function; empty where its DIE has none.
std::string linkage_name(Dwarf_Die* die);

/// The qualified source name of a function: those without linkage have no linkage name.
std::string source_name(Dwarf_Die* die);

/// The functions inlined into `function` at `pc`, outermost first.
std::vector<Dwarf_Die> inlined_at(Dwarf_Die function, Dwarf_Addr pc);

/// A map from code addresses to DIEs.
class CodeRanges {
  public:
    /// `in_code(begin, end)`: whether the program has code there. Functions that the linker
    /// discarded still have debug information, at addresses such as 0.
    template <typename InCode>
    void add(Dwarf_Die die, const InCode& in_code) {
        Dwarf_Addr base = 0;
        Dwarf_Addr begin = 0;
        Dwarf_Addr end = 0;
        std::ptrdiff_t next = 0;
        while ((next = dwarf_ranges(&die, next, &base, &begin, &end)) > 0) {
            if (begin < end && in_code(begin, end)) {
                ranges_.push_back({begin, end, end, die});
            }
        }
    }

    /// After the last add(), before find().
    void sort() {
        std::stable_sort(ranges_.begin(), ranges_.end(),
                         [](const Range& a, const Range& b) { return a.begin < b.begin; });
        for (std::size_t i = 1; i < ranges_.size(); ++i) {
            ranges_[i].last_end = std::max(ranges_[i].end, ranges_[i - 1].last_end);
        }
    }

    /// Null where no DIE has code at `pc`.
    Dwarf_Die* find(Dwarf_Addr pc) {
        auto after =
            std::upper_bound(ranges_.begin(), ranges_.end(), pc,
                             [](Dwarf_Addr at, const Range& range) { return at < range.begin; });
        // Ranges overlap only where the linker has folded identical functions.
        while (after != ranges_.begin() && std::prev(after)->last_end > pc) {
            --after;
            if (after->end > pc) {
                return &after->die;
            }
        }
        return nullptr;
    }

  private:
    struct Range {
        Dwarf_Addr begin;
        Dwarf_Addr end;
        Dwarf_Addr last_end;  ///< of all ranges up to this one
        Dwarf_Die die;
    };
    std::vector<Range> ranges_;
};

/// Adds all functions with their own code, wherever they are declared.
template <typename InCode>
void add_functions(Dwarf_Die parent, const InCode& in_code, CodeRanges& functions) {
    // Iterative: damaged debug information may nest arbitrarily deep.
    std::vector<Dwarf_Die> parents = {parent};
    while (!parents.empty()) {
        Dwarf_Die die = parents.back();
        parents.pop_back();
        if (dwarf_child(&die, &die) != 0) {
            continue;
        }
        do {
            switch (dwarf_tag(&die)) {
                case DW_TAG_subprogram:
                    functions.add(die, in_code);
                    [[fallthrough]];
                case DW_TAG_namespace:
                case DW_TAG_module:
                case DW_TAG_class_type:
                case DW_TAG_structure_type:
                case DW_TAG_union_type:
                case DW_TAG_lexical_block:
                    parents.push_back(die);
                    break;
                default:
                    break;
            }
        } while (dwarf_siblingof(&die, &die) == 0);
    }
    functions.sort();
}

}  // namespace memlab::report
