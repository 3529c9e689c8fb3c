// A file of settings as a tree, with the place of every key: what TOML and JSON have in common.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace memlab::check {

struct Position {
    std::size_t line = 0;  ///< from 1
    std::size_t column = 0;
};

struct Member;

struct Setting {
    /// Numbers are text too: what they mean is for whoever knows what is counted.
    struct Scalar {
        std::string text;
        bool number = false;
    };
    /// Neither text nor a number: "true", "null", "a date".
    struct Other {
        std::string what;
    };
    using List = std::vector<Setting>;
    using Table = std::vector<Member>;

    Position at;
    std::variant<Other, Scalar, List, Table> value;
};

struct Member {
    std::string key;
    Position at;
    Setting value;
};

struct SettingsResult {
    Setting root;  ///< a table, when there is no error
    std::string error;
    Position at;  ///< of the error
};

SettingsResult parse_toml(std::string_view text);

/// Also refuses a key that stands twice.
SettingsResult parse_json(std::string_view text);

}  // namespace memlab::check
