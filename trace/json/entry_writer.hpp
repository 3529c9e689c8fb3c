// The JSON writer of what report_entries.hpp describes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/json/json_output.hpp"

namespace memlab::report {

/// Writes the fields of a table's entry.
class EntryWriter {
  public:
    EntryWriter(JsonOutput& json, std::size_t position) : json_(json), position_(position) {}

    void position(const char* name) { json_.member(name, position_); }
    void number(const char* name, std::uint64_t value) { json_.member(name, value); }
    void extra(const char* name, std::uint64_t value) { json_.member(name, value); }
    void index(const char* name, std::size_t value, const char*) { json_.member(name, value); }
    void text(const char* name, const std::string& value) { json_.member(name, value); }
    void flag(const char* name, bool value) { json_.member(name, value); }
    void indexes(const char* name, const std::vector<std::size_t>& values, const char*) {
        json_.key(name);
        json_.begin_array();
        for (const std::size_t value : values) {
            json_.number(value);
        }
        json_.end_array();
    }
    template <typename Object>
    void object_or_null(const char* name, const std::optional<Object>& value) {
        json_.key(name);
        if (value) {
            object(*value);
        } else {
            json_.null();
        }
    }
    template <typename Item>
    void list_if_any(const char* name, const std::vector<Item>& items) {
        if (items.empty()) {
            return;
        }
        json_.key(name);
        json_.begin_array();
        for (const Item& item : items) {
            object(item);
        }
        json_.end_array();
    }
    template <typename Object>
    void object(const Object& value) {
        json_.begin_object();
        Object::fields(value, *this);
        json_.end_object();
    }

  private:
    JsonOutput& json_;
    std::size_t position_;
};

}  // namespace memlab::report
