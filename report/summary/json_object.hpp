// Fills a JSON object as the fields() of a struct visit it (model/report_shape.hpp): the structs of
// the documents that memlab-report prints, which the JSON Schemas are made of, too.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/report_shape.hpp"

namespace memlab::report {

/// A visitor. Members are added in the order in which they are visited. Thread-safety: none.
class JsonObject {
  public:
    using Json = nlohmann::ordered_json;
    using Name = model::FieldName;

    /// `object` must outlive this.
    explicit JsonObject(Json& object) : object_(object) {}
    /// The object of a struct.
    template <typename Object>
    static Json of(const Object& value) {
        return made([&value](JsonObject& to) { Object::fields(value, to); });
    }

    template <typename Value>
    void constant(Name name, Value value) {
        add(name, value);
    }
    void number(Name name, std::uint64_t value) { add(name, value); }
    void real(Name name, double value) { add(name, value); }
    void flag(Name name, bool value) { add(name, value); }
    void text(Name name, const std::string& value) { add(name, value); }
    void numbers(Name name, const std::vector<std::uint64_t>& values) { add(name, values); }
    void texts(Name name, const std::vector<std::string>& values) { add(name, values); }
    void named_texts(Name name, const model::Named<std::string>& members) {
        Json& object = object_[name.text()] = Json::object();
        for (const auto& [key, value] : members) {
            object[key] = value;
        }
    }

    void number_or_null(Name name, const std::optional<std::uint64_t>& value) {
        add_or_null(name, value);
    }
    void signed_or_null(Name name, const std::optional<std::int64_t>& value) {
        add_or_null(name, value);
    }
    void real_or_null(Name name, const std::optional<double>& value) { add_or_null(name, value); }
    void ratio(Name name, const std::optional<double>& value) { add_or_null(name, value); }
    void text_or_null(Name name, const std::optional<std::string>& value) {
        add_or_null(name, value);
    }
    /// Null for empty text.
    void text_or_null(Name name, const std::string& value) {
        value.empty() ? add(name, nullptr) : add(name, value);
    }

    template <typename Object>
    void object(Name name, const Object& value) {
        add(name, of(value));
    }
    template <typename Object>
    void object_or_null(Name name, const std::optional<Object>& value) {
        value ? add(name, of(*value)) : add(name, nullptr);
    }
    template <typename Fields>
    void group(Name name, Fields fields) {
        add(name, made(fields));
    }
    template <typename Item>
    void list(Name name, const std::vector<Item>& items) {
        list(name, items, [](const Item& item, JsonObject& to) { Item::fields(item, to); });
    }
    template <typename Item, typename Fields>
    void list(Name name, const std::vector<Item>& items, Fields fields) {
        Json& list = object_[name.text()] = Json::array();
        for (const Item& item : items) {
            list.push_back(made([&](JsonObject& to) { fields(item, to); }));
        }
    }

  private:
    template <typename Fields>
    static Json made(Fields fields) {
        Json object = Json::object();
        JsonObject to(object);
        fields(to);
        return object;
    }
    void add(Name name, Json value) { object_[name.text()] = std::move(value); }
    template <typename Value>
    void add_or_null(Name name, const std::optional<Value>& value) {
        value ? add(name, *value) : add(name, nullptr);
    }

    Json& object_;
};

}  // namespace memlab::report
