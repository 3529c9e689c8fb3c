// The reader of a report's JSON: a visitor of the fields() of its structs, which checks every type,
// range and index before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/report.hpp"
#include "report/reading/json_node.hpp"

namespace memlab::report {

/// Reads the members of one object. Throws Invalid where a value is not what the schema says.
class JsonFields {
  public:
    /// `position`: of the object in its table. All arguments must outlive this.
    JsonFields(const Node& node, const model::TableSizes& sizes, std::size_t position)
        : node_(node), sizes_(sizes), position_(position) {}

    void line() {}
    template <typename Value>
    void constant(model::FieldName /*name*/, Value /*value*/) {}
    void position(model::FieldName /*name*/) {}
    void number(model::FieldName name, std::uint64_t& value) {
        value = node_.member(name).number();
    }
    void signed_number(model::FieldName name, std::int64_t& value) {
        value = node_.member(name).signed_number();
    }
    void natural(model::FieldName name, std::int64_t& value) {
        value = node_.member(name).natural_number();
    }
    void real(model::FieldName name, double& value) { value = node_.member(name).real(); }
    void ratio(model::FieldName name, std::optional<double>& value) {
        value = node_.member(name).ratio();
    }
    void flag(model::FieldName name, bool& value) { value = node_.member(name).boolean(); }
    void text(model::FieldName name, std::string& value) { value = node_.member(name).text(); }
    template <typename Line>
    void source_line(model::FieldName name, Line& value) {
        value = static_cast<Line>(node_.member(name).line_number());
    }
    void extra(model::FieldName name, std::uint64_t& value) {
        const JsonValue* const found = node_.optional_member(name);
        value = found != nullptr && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
    }
    template <typename Fields>
    void for_others(Fields /*fields*/) {}

    void index(model::FieldName name, std::size_t& value, model::Table table) {
        value = node_.member(name).index(sizes_[table], name_of(table));
    }
    void indexes(model::FieldName name, std::vector<std::size_t>& values, model::Table table) {
        node_.member(name).each(
            [&](const Node& item) { values.push_back(item.index(sizes_[table], name_of(table))); });
    }
    void earlier_index(model::FieldName name, std::optional<std::size_t>& value) {
        if (const Node member = node_.member(name); !member.is_null()) {
            value = member.index(position_, "what comes before it");
        }
    }
    void number_or_null(model::FieldName name, std::optional<std::uint64_t>& value) {
        if (has(name) && !node_.member(name).is_null()) {
            number(name, value.emplace());
        }
    }
    void text_or_null(model::FieldName name, std::optional<std::string>& value) {
        if (const Node member = node_.member(name); !member.is_null()) {
            value = member.text();
        }
    }

    void number_if_any(model::FieldName name, std::uint64_t& value) {
        if (has(name)) {
            number(name, value);
        }
    }
    void natural_if_any(model::FieldName name, std::optional<std::int64_t>& value) {
        if (has(name)) {
            natural(name, value.emplace());
        }
    }
    void number_if_known(model::FieldName name, std::optional<std::uint64_t>& value) {
        if (has(name)) {
            number(name, value.emplace());
        }
    }
    void flag_if_any(model::FieldName name, bool& value) {
        if (has(name)) {
            flag(name, value);
        }
    }
    void index_if_any(model::FieldName name, std::size_t& value, model::Table table) {
        if (has(name)) {
            index(name, value, table);
        }
    }
    void text_if_any(model::FieldName name, std::string& value) {
        if (has(name)) {
            text(name, value);
        }
    }

    void numbers(model::FieldName name, std::vector<std::uint64_t>& values) {
        node_.member(name).each([&](const Node& item) { values.push_back(item.number()); });
    }
    void texts(model::FieldName name, std::vector<std::string>& values) {
        node_.member(name).each([&](const Node& item) { values.push_back(item.text()); });
    }
    void texts_if_known(model::FieldName name, std::vector<std::string>& values) {
        if (has(name)) {
            texts(name, values);
        }
    }

    template <typename Object>
    void object(model::FieldName name, Object& value) {
        read(node_.member(name), 0, value);
    }
    template <typename Object>
    void object_if_known(model::FieldName name, Object& value) {
        if (has(name)) {
            object(name, value);
        }
    }
    template <typename Object>
    void object_if_any(model::FieldName name, Object& value) {
        object_if_known(name, value);
    }
    template <typename Object>
    void object_if_any(model::FieldName name, std::optional<Object>& value) {
        if (has(name)) {
            object(name, value.emplace());
        }
    }
    template <typename Object>
    void object_or_null(model::FieldName name, std::optional<Object>& value) {
        if (const Node member = node_.member(name); !member.is_null()) {
            read(member, 0, value.emplace());
        }
    }
    template <typename Fields>
    void group(model::FieldName name, Fields fields) {
        const Node node = node_.member(name);
        JsonFields inner(node, sizes_, 0);
        fields(inner);
    }

    template <typename Item>
    void list(model::FieldName name, std::vector<Item>& items) {
        list(name, items, [](Item& item, JsonFields& from) { Item::fields(item, from); });
    }
    template <typename Item, typename Fields>
    void list(model::FieldName name, std::vector<Item>& items, Fields fields) {
        node_.member(name).each([&](const Node& node) {
            JsonFields inner(node, sizes_, items.size());
            fields(items.emplace_back(), inner);
        });
    }
    template <typename Item>
    void list_if_any(model::FieldName name, std::vector<Item>& items) {
        if (has(name)) {
            list(name, items);
        }
    }
    /// Appends to what is there.
    template <typename Entry>
    void table(model::FieldName name, std::vector<Entry>& entries, model::Layout /*layout*/) {
        list(name, entries);
    }
    template <typename Entry>
    void table_if_any(model::FieldName name, std::vector<Entry>& entries,
                      model::Layout /*layout*/) {
        list_if_any(name, entries);
    }

    template <typename Object>
    void named(model::FieldName name, model::Named<Object>& members) {
        each_member(name, [&](const std::string& key, const Node& value) {
            read(value, 0, members.add(key));
        });
    }
    template <typename Object>
    void named_if_any(model::FieldName name, std::optional<model::Named<Object>>& members) {
        if (has(name)) {
            named(name, members.emplace());
        }
    }
    void named_texts(model::FieldName name, model::Named<std::string>& members) {
        each_member(name, [&](const std::string& key, const Node& value) {
            members.add(key, value.text());
        });
    }
    void named_numbers(model::FieldName name, model::Named<std::uint64_t>& members,
                       model::FieldName signed_name, std::optional<std::int64_t>& signed_value) {
        each_member(name, [&](const std::string& key, const Node& value) {
            if (key == signed_name.text()) {
                signed_value = value.signed_number();
            } else {
                members.add(key, value.number());
            }
        });
    }

    void curve(model::FieldName name, std::optional<model::CurveSummary>& summary, bool optional) {
        const Node node = node_.member(name);
        if (!optional || !node.member("peak_bytes").is_null()) {
            read(node, 0, summary.emplace());
        }
    }
    void rows(model::FieldName columns, model::FieldName rows, model::Timeline& timeline);

  private:
    template <typename Object>
    void read(const Node& node, std::size_t position, Object& value) {
        JsonFields inner(node, sizes_, position);
        Object::fields(value, inner);
    }
    bool has(model::FieldName name) const { return node_.optional_member(name) != nullptr; }
    template <typename Visit>
    void each_member(model::FieldName name, Visit visit) {
        node_.member(name).each_member(visit);
    }

    const Node& node_;
    const model::TableSizes& sizes_;
    const std::size_t position_;
};

}  // namespace memlab::report
