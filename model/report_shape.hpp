// How the report's format is written down in the code: each object of the file is one struct with
// one fields(), in the order of the file. The JSON writer, the readers, the check of a model and
// the model of an event log and the JSON Schema are visitors of them, so they cannot differ.
//
// The functions of a visitor follow; their first argument is the member: its name, its description
// and rules of the schema's (field_name.hpp). A member of `..._if_any` is absent from the file
// while it is empty or 0, one of `..._if_known` may be missing.
//
//   line                what follows begins a line of the file
//   constant            of the format; checked before anything else
//   position            the entry's own index in its table
//   number, signed_number, real, flag, text; texts, numbers (lists)
//   number_or_null      which may be missing, too; text_or_null
//   natural             signed, but not below 0 in a sound report
//   source_line         of a source file; 0: unknown, or beyond an int
//   ratio               from 0 to 1; null: unknown
//   extra               a number for other tools, which a reader does not need
//   for_others          whole members of that kind: readers pass over them
//   index, indexes      into the named table
//   earlier_index       of an entry before this one in its own table; null: none
//   object, list        of structs with fields()
//   group               an object whose members belong to the same struct
//   named, named_texts, named_numbers
//                       objects whose names of members are data
//   table               a list with entries that are made one at a time
//   curve, rows         of a device (report_device.hpp)
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/field_name.hpp"

namespace memlab::model {

/// The tables that other members refer to.
enum class Table : std::uint8_t { sites, stacks, frames, python_frames, modules };
inline constexpr std::size_t table_count = 5;

inline const char* name_of(Table table) {
    constexpr std::array<const char*, table_count> names = {"sites", "stacks", "frames",
                                                            "python_frames", "modules"};
    return names[static_cast<std::size_t>(table)];
}

class TableSizes {
  public:
    std::size_t& operator[](Table table) { return sizes_[static_cast<std::size_t>(table)]; }
    std::size_t operator[](Table table) const { return sizes_[static_cast<std::size_t>(table)]; }

  private:
    std::array<std::size_t, table_count> sizes_{};
};

/// How a table is laid out, for human readers.
enum class Layout : std::uint8_t { lines, compact };

/// Members of an object whose names are data: in the order of the file, found by name.
template <typename Value>
class Named {
  public:
    using key_type = std::string;
    using mapped_type = Value;
    using value_type = std::pair<std::string, Value>;

    Named() = default;
    Named(std::initializer_list<value_type> members) : members_(members) {}

    auto begin() const { return members_.begin(); }
    auto end() const { return members_.end(); }
    auto begin() { return members_.begin(); }
    auto end() { return members_.end(); }
    bool empty() const { return members_.empty(); }
    std::size_t size() const { return members_.size(); }

    auto find(std::string_view name) const {
        return std::find_if(begin(), end(), [&](const auto& each) { return each.first == name; });
    }
    bool contains(std::string_view name) const { return find(name) != end(); }
    /// There must be one.
    const Value& at(std::string_view name) const { return find(name)->second; }

    /// A member that may be there already; goes to the end if it is not.
    Value& operator[](std::string_view name) {
        const auto found =
            std::find_if(begin(), end(), [&](const auto& each) { return each.first == name; });
        return found != end() ? found->second : add(name);
    }
    /// Adds a member, whether or not there is one of that name.
    Value& add(std::string_view name, Value value = {}) {
        return members_.emplace_back(std::string(name), std::move(value)).second;
    }
    /// Into the order of a parsed file: by name, and of several the last one.
    void sort() {
        std::stable_sort(begin(), end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        const auto kept = std::unique(members_.rbegin(), members_.rend(),
                                      [](auto& a, auto& b) { return a.first == b.first; });
        members_.erase(members_.begin(), kept.base());
    }
    bool operator==(const Named&) const = default;

  private:
    std::vector<value_type> members_;
};

}  // namespace memlab::model
