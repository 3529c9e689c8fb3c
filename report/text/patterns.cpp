#include "report/text/patterns.hpp"

#include <fnmatch.h>

#include <algorithm>

#include "report/text/names.hpp"

namespace memlab::report {

namespace {

bool is_word(std::string_view text) {
    return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == text.npos;
}

/// "func=, file= or module="
std::string list_of(const std::vector<std::string_view>& keys) {
    std::string list;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        list.append(i == 0 ? "" : i + 1 == keys.size() ? " or " : ", ");
        list.append(keys[i]).append("=");
    }
    return list;
}

}  // namespace

bool matches_text(const std::string& pattern, const std::string& name) {
    if (name.empty()) {
        return false;
    }
    if (pattern.find_first_of("*?[") == std::string::npos) {
        return name.find(pattern) != std::string::npos;
    }
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0 ||
           fnmatch(pattern.c_str(), base_name(name).c_str(), 0) == 0;
}

KeyedPattern split_pattern(const std::string& given, const std::vector<std::string_view>& keys) {
    KeyedPattern pattern{"", given, ""};
    const std::size_t equals = given.find('=');
    const std::string word = given.substr(0, equals);
    if (equals != std::string::npos && is_word(word)) {
        if (std::find(keys.begin(), keys.end(), word) == keys.end()) {
            pattern.problem.append("takes ").append(list_of(keys)).append(", not ").append(word);
            pattern.problem.append("=; for a name with = in it write func=").append(given);
            return pattern;
        }
        pattern.key = word;
        pattern.text = given.substr(equals + 1);
    }
    if (pattern.text.empty()) {
        pattern.problem.append("takes a text to look for, not ");
        pattern.problem.append(given.empty() ? "nothing" : given);
    }
    return pattern;
}

}  // namespace memlab::report
