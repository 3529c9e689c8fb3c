// Folding of names that differ only in numbers into a family: "step 17" and "step 18" are both
// "step #". Programs number their steps; a table with a row for each would be unbounded and
// useless.
#pragma once

#include <string>
#include <string_view>

namespace memlab::trace {

/// The name of the family: every run of ASCII digits becomes one '#'. May throw std::bad_alloc.
inline std::string folded_name(std::string_view name) {
    std::string folded;
    folded.reserve(name.size());
    bool in_digits = false;
    for (const char c : name) {
        const bool digit = c >= '0' && c <= '9';
        if (!digit) {
            folded += c;
        } else if (!in_digits) {
            folded += '#';
        }
        in_digits = digit;
    }
    return folded;
}

}  // namespace memlab::trace
