// What fields() says of a member beside its value: {"name", "description", rules...}. Each visitor
// takes as much of it as it needs: FieldName is the name alone, so that descriptions and rules are
// not in libmemlab.so. The program that prints the JSON Schema keeps them all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memlab::model {

class FieldName {
  public:
    template <typename... Rules>
    constexpr FieldName(const char* name, const char* /*description*/, const Rules&... /*rules*/)
        : name_(name) {}

    constexpr const char* text() const { return name_; }
    constexpr operator const char*() const { return name_; }
    constexpr operator std::string_view() const { return name_; }

  private:
    const char* name_;
};

// The rules, which say what the schema asks for beside the type that the visitor's function has.

/// A list has no more entries, a number is no larger.
struct AtMost {
    std::uint64_t bound;
};
/// A list has no fewer entries, a number is no smaller.
struct AtLeast {
    std::uint64_t bound;
};
/// A text is one of these. So are the names of members that are data.
template <std::size_t count>
struct OneOf {
    std::array<const char*, count> words;
};
template <typename... Words>
constexpr OneOf<sizeof...(Words)> one_of(Words... words) {
    return {{words...}};
}
/// The same of all names of a type's values, but "none".
template <typename Enum>
struct NameOf {};
/// Members whose names are data: each of the type's is there.
template <typename Enum>
struct EachOf {};
/// A text matches this regular expression.
struct Matching {
    const char* pattern;
};
/// It is there if and only if that member of the same object is.
struct Along {
    const char* member;
};

/// Reports of older memlabs lack it, although their logs have what it is made of.
struct Newer {};

/// What name_of() calls the values of a type with a byte, in their order.
template <typename Enum>
std::vector<std::string> names_of_all() {
    std::vector<std::string> names;
    for (unsigned value = 0; value <= 0xff; ++value) {
        const std::string name = name_of(static_cast<Enum>(value));
        if (name != "unknown" && name != "none") {
            names.push_back(name);
        }
    }
    return names;
}

}  // namespace memlab::model
