// A settings file (TOML or JSON) as a tree with the line and column of every key.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace memlab::report::check {

struct Position {
    std::size_t line = 0;  ///< from 1
    std::size_t column = 0;
};

struct Member;

struct Setting {
    /// Text or a number; numbers are kept as text, since their meaning depends on the key.
    struct Scalar {
        std::string text;
        bool number = false;
    };
    /// Any other value, described: "true or false", "null", "a date or time".
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
    Setting root;  ///< a table when `error` is empty
    std::string error;
    Position at;  ///< of the error
};

SettingsResult parse_toml(std::string_view text);

/// Rejects duplicate keys, too.
SettingsResult parse_json(std::string_view text);

}  // namespace memlab::report::check
