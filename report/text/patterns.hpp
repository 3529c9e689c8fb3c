// The patterns of --filter, --skip and suppressions: one matcher and one syntax, so that a word
// means the same wherever it is typed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace memlab::report {

/// TEXT matches anywhere in the name. If it contains *, ? or [, it is a glob pattern for the whole
/// name or its base name. An empty name matches nothing.
bool matches_text(const std::string& pattern, const std::string& name);

/// "func=TEXT" taken apart.
struct KeyedPattern {
    std::string key;  ///< one of those that may be there; empty: there was none
    std::string text;
    std::string problem;  ///< one line; if set, it is no pattern
};

/// Takes KEY= from the front of what was given, if it begins with a word and =. Words that are none
/// of `keys` are refused, so that a misspelt one does not match nothing in silence.
KeyedPattern split_pattern(const std::string& given, const std::vector<std::string_view>& keys);

}  // namespace memlab::report
