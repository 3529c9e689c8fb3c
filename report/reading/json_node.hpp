// A JSON value that is checked as it is read: of the type that is wanted, in range, and with its
// path for the message where it is not.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "report/reading/invalid.hpp"

namespace memlab::report {

using JsonValue = nlohmann::json;

/// A JSON value and its place.
class Node {
  public:
    explicit Node(const JsonValue& value) : value_(value) {}

    Node member(const char* name) const {
        require(value_.is_object(), "an object");
        const auto found = value_.find(name);
        if (found == value_.end()) {
            place_.fail(std::string("has no \"") + name + "\"");
        }
        return {*found, place_, name, 0};
    }

    /// Null if the member does not exist.
    const JsonValue* optional_member(const char* name) const {
        require(value_.is_object(), "an object");
        const auto found = value_.find(name);
        return found == value_.end() ? nullptr : &*found;
    }

    template <typename Visit>
    void each(Visit visit) const {
        require(value_.is_array(), "a list");
        for (std::size_t i = 0; i < value_.size(); ++i) {
            visit(Node(value_[i], place_, nullptr, i));
        }
    }

    template <typename Visit>
    void each_member(Visit visit) const {
        require(value_.is_object(), "an object");
        for (auto item = value_.begin(); item != value_.end(); ++item) {
            visit(item.key(), Node(item.value(), place_, item.key().c_str(), 0));
        }
    }

    std::size_t size() const {
        require(value_.is_array(), "a list");
        return value_.size();
    }

    Node at(std::size_t index) const { return {value_[index], place_, nullptr, index}; }

    bool is_null() const { return value_.is_null(); }

    std::uint64_t number() const {
        require(value_.is_number_unsigned(), whole_number);
        return value_.get<std::uint64_t>();
    }

    /// A line of a source file; numbers beyond int become 0, unknown.
    int line_number() const {
        const std::uint64_t line = number();
        return line <= static_cast<std::uint64_t>(std::numeric_limits<int>::max())
                   ? static_cast<int>(line)
                   : 0;
    }

    std::int64_t signed_number() const {
        const bool fits =
            value_.is_number_integer() &&
            (!value_.is_number_unsigned() ||
             value_.get<std::uint64_t>() <=
                 static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
        require(fits, "a whole number");
        return value_.get<std::int64_t>();
    }

    std::int64_t natural_number() const {
        require(value_.is_number_unsigned(), whole_number);
        return signed_number();
    }

    bool boolean() const {
        require(value_.is_boolean(), "true or false");
        return value_.get<bool>();
    }

    std::string text() const {
        require(value_.is_string(), "text");
        return value_.get<std::string>();
    }

    std::optional<double> ratio() const {
        if (value_.is_null()) {
            return std::nullopt;
        }
        require(value_.is_number(), "a number or null");
        const auto ratio = value_.get<double>();
        require(std::isfinite(ratio) && ratio >= 0 && ratio <= 1, "between 0 and 1");
        return ratio;
    }

    double real() const {
        require(value_.is_number(), "a number");
        const auto number = value_.get<double>();
        require(std::isfinite(number), "a finite number");
        return number;
    }

    /// A position in a table of `size` entries.
    std::size_t index(std::size_t size, const char* table) const {
        const std::uint64_t position = number();
        place_.require_index(position, size, table);
        return static_cast<std::size_t>(position);
    }

    [[noreturn]] void fail(const std::string& what) const { place_.fail(what); }

  private:
    Node(const JsonValue& value, const ReportPath& parent, const char* name, std::size_t position)
        : value_(value), place_(parent, name, position) {}

    void require(bool good, const char* wanted) const {
        if (!good) {
            fail("is " + kind() + ", not " + wanted);
        }
    }

    std::string kind() const {
        switch (value_.type()) {
            case JsonValue::value_t::null:
                return "null";
            case JsonValue::value_t::object:
                return "an object";
            case JsonValue::value_t::array:
                return "a list";
            case JsonValue::value_t::string:
                return "text";
            case JsonValue::value_t::boolean:
                return "true or false";
            default:
                return "the number " + value_.dump();
        }
    }

    const JsonValue& value_;
    const ReportPath place_;
};

}  // namespace memlab::report
