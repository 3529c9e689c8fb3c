// Writes JSON as the fields() of structs visit it: a visitor (report_shape.hpp) that streams each
// member to a JsonOutput.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/json_output.hpp"
#include "model/report_shape.hpp"

namespace memlab::model {

/// The base of a writer, which is `Self`: what is not here is of reports alone (json_writer.cpp).
/// The output must outlive it. May throw std::bad_alloc.
template <typename Self>
class JsonMembers {
  public:
    explicit JsonMembers(JsonOutput& json) : json_(json) {}

    template <typename Object>
    void write(const Object& value) {
        json_.begin_object();
        Object::fields(value, self());
        json_.end_object();
    }

    void line() { json_.new_line(); }
    template <typename Value>
    void constant(FieldName name, Value value) {
        json_.member(name, value);
    }
    void number(FieldName name, std::uint64_t value) { json_.member(name, value); }
    void signed_number(FieldName name, std::int64_t value) { json_.member(name, value); }
    void natural(FieldName name, std::int64_t value) { json_.member(name, value); }
    void extra(FieldName name, std::uint64_t value) { json_.member(name, value); }
    void text(FieldName name, const std::string& value) { json_.member(name, value); }
    void flag(FieldName name, bool value) { json_.member(name, value); }
    template <typename Line>
    void source_line(FieldName name, Line value) {
        json_.member(name, value);
    }
    void real(FieldName name, double value) {
        json_.key(name);
        json_.number(value);
    }
    void ratio(FieldName name, const std::optional<double>& value) { or_null(name, value); }
    void number_or_null(FieldName name, const std::optional<std::uint64_t>& value) {
        or_null(name, value);
    }
    void text_or_null(FieldName name, const std::optional<std::string>& value) {
        json_.key(name);
        if (value) {
            json_.string(*value);
        } else {
            json_.null();
        }
    }

    void number_if_any(FieldName name, std::uint64_t value) {
        if (value != 0) {
            number(name, value);
        }
    }
    void natural_if_any(FieldName name, const std::optional<std::int64_t>& value) {
        if (value) {
            natural(name, *value);
        }
    }
    void number_if_known(FieldName name, const std::optional<std::uint64_t>& value) {
        if (value) {
            number(name, *value);
        }
    }
    void flag_if_any(FieldName name, bool value) {
        if (value) {
            flag(name, value);
        }
    }
    void text_if_any(FieldName name, const std::string& value) {
        if (!value.empty()) {
            text(name, value);
        }
    }

    void numbers(FieldName name, const std::vector<std::uint64_t>& values) {
        json_.key(name);
        json_.begin_array();
        for (const std::uint64_t value : values) {
            json_.number(value);
        }
        json_.end_array();
    }
    void texts(FieldName name, const std::vector<std::string>& values) {
        json_.key(name);
        json_.begin_array();
        for (const std::string& value : values) {
            json_.string(value);
        }
        json_.end_array();
    }
    void texts_if_known(FieldName name, const std::vector<std::string>& values) {
        texts(name, values);
    }

    template <typename Object>
    void object(FieldName name, const Object& value) {
        json_.key(name);
        write(value);
    }
    template <typename Object>
    void object_if_known(FieldName name, const Object& value) {
        object(name, value);
    }
    template <typename Object>
    void object_or_null(FieldName name, const std::optional<Object>& value) {
        json_.key(name);
        if (value) {
            write(*value);
        } else {
            json_.null();
        }
    }
    template <typename Object>
    void object_if_any(FieldName name, const std::optional<Object>& value) {
        if (value) {
            object(name, *value);
        }
    }
    template <typename Object>
    void object_if_any(FieldName name, const Object& value) {
        if (value != Object()) {
            object(name, value);
        }
    }
    template <typename Fields>
    void group(FieldName name, Fields fields) {
        json_.key(name);
        json_.begin_object();
        fields(self());
        json_.end_object();
    }
    template <typename Fields>
    void for_others(Fields fields) {
        fields(self());
    }

    template <typename Item>
    void list(FieldName name, const std::vector<Item>& items) {
        list(name, items, [](const Item& item, Self& to) { Item::fields(item, to); });
    }
    template <typename Item, typename Fields>
    void list(FieldName name, const std::vector<Item>& items, Fields fields) {
        json_.key(name);
        json_.begin_array();
        for (const Item& item : items) {
            json_.begin_object();
            fields(item, self());
            json_.end_object();
        }
        json_.end_array();
    }
    template <typename Item>
    void list_if_any(FieldName name, const std::vector<Item>& items) {
        if (!items.empty()) {
            list(name, items);
        }
    }

    template <typename Object>
    void named(FieldName name, const Named<Object>& members) {
        json_.key(name);
        json_.begin_object();
        for (const auto& [key, value] : members) {
            json_.key(key);
            write(value);
        }
        json_.end_object();
    }
    template <typename Object>
    void named_if_any(FieldName name, const std::optional<Named<Object>>& members) {
        if (members) {
            named(name, *members);
        }
    }
    void named_texts(FieldName name, const Named<std::string>& members) {
        plain_members(name, members);
    }
    void named_numbers(FieldName name, const Named<std::uint64_t>& members) {
        plain_members(name, members);
    }
    template <typename Entry>
    void table(FieldName name, const std::vector<Entry>& entries, Layout layout) {
        json_.key(name);
        json_.begin_array();
        for (const Entry& entry : entries) {
            if (layout == Layout::lines) {
                json_.new_line();
            }
            write(entry);
        }
        json_.end_array();
    }

  protected:
    template <typename Value>
    void or_null(FieldName name, const std::optional<Value>& value) {
        json_.key(name);
        if (value) {
            json_.number(*value);
        } else {
            json_.null();
        }
    }
    template <typename Value>
    void plain_members(FieldName name, const Named<Value>& members) {
        json_.key(name);
        json_.begin_object();
        for (const auto& [key, value] : members) {
            json_.member(key, value);
        }
        json_.end_object();
    }

    JsonOutput& json_;

  private:
    Self& self() { return static_cast<Self&>(*this); }
};

}  // namespace memlab::model
