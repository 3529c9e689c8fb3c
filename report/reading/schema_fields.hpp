// The JSON Schema (draft-07) of a document, made of the fields() of its structs: a visitor that
// puts a type, a description and the rules of each member into an object of the schema. A member
// without a description does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/report.hpp"
#include "trace/aggregate/memory_stat_keys.hpp"

namespace memlab::report {

using Schema = nlohmann::ordered_json;

/// A member as fields() names it, with all that is said of it.
class SchemaMember {
  public:
    /// What the schema of a member says that model::Newer is a rule of.
    static constexpr const char* newer = "older reports lack it";

    template <typename... Rules>
    SchemaMember(const char* name, const char* description, const Rules&... rules)
        : name_(name), description_(description) {
        (add(rules), ...);
    }

    const char* name() const { return name_; }
    /// The member's schema: its type, under its description and rules.
    Schema schema(const Schema& type) const {
        Schema out = {{"description", description_}};
        out.update(type);
        if (most_) {
            out[is_list(type) ? "maxItems" : "maximum"] = *most_;
        }
        if (least_) {
            out[is_list(type) ? "minItems" : "minimum"] = *least_;
        }
        if (!names_.empty() && type.contains("additionalProperties")) {
            out[each_ ? "required" : "propertyNames"] = each_ ? names_ : Schema{{"enum", names_}};
        } else if (!names_.empty()) {
            out["enum"] = names_;
        }
        if (pattern_ != nullptr) {
            out["pattern"] = pattern_;
        }
        if (is_newer_) {
            out["$comment"] = newer;
        }
        return out;
    }
    /// The member beside which alone this one is; null: it does not depend on one.
    const char* along() const { return along_; }

    static bool is_list(const Schema& type) { return type.value("type", Schema()) == "array"; }

  private:
    void add(const model::AtMost& rule) { most_ = rule.bound; }
    void add(const model::AtLeast& rule) { least_ = rule.bound; }
    template <std::size_t count>
    void add(const model::OneOf<count>& rule) {
        names_ = rule.words;
    }
    template <typename Enum>
    void add(const model::NameOf<Enum>& /*rule*/) {
        names_ = model::names_of_all<Enum>();
    }
    template <typename Enum>
    void add(const model::EachOf<Enum>& /*rule*/) {
        names_ = model::names_of_all<Enum>();
        each_ = true;
    }
    void add(const model::Matching& rule) { pattern_ = rule.pattern; }
    void add(const model::Newer& /*rule*/) { is_newer_ = true; }
    void add(const model::Along& rule) { along_ = rule.member; }

    const char* name_;
    const char* description_;
    std::optional<std::uint64_t> most_ = {};
    std::optional<std::uint64_t> least_ = {};
    Schema names_ = Schema::array();
    bool each_ = false;
    const char* pattern_ = nullptr;
    const char* along_ = nullptr;
    bool is_newer_ = false;
};

/// Fills an object of the schema with the members that it visits. The values do not matter.
class SchemaFields {
  public:
    using Member = const SchemaMember&;

    /// `object` must outlive this.
    explicit SchemaFields(Schema& object) : object_(object) {
        object_["type"] = "object";
        object_["required"] = Schema::array();
        object_["properties"] = Schema::object();
    }
    /// The schema of a struct.
    template <typename Object>
    static Schema of() {
        return made([](SchemaFields& to) {
            const Object value{};
            Object::fields(value, to);
        });
    }

    void line() {}
    template <typename Value>
    void constant(Member member, Value value) {
        add(member, {{"const", value}});
    }
    void position(Member member) { add(member, whole_number()); }
    void number(Member member, std::uint64_t /*value*/) { add(member, whole_number()); }
    void extra(Member member, std::uint64_t /*value*/) { add(member, whole_number()); }
    /// In a report that is not sound it may be negative.
    void natural(Member member, std::int64_t /*value*/) { add(member, {{"type", "integer"}}); }
    template <typename Line>
    void source_line(Member member, Line /*value*/) {
        add(member, whole_number());
    }
    void signed_number(Member member, std::int64_t /*value*/) {
        add(member, {{"type", "integer"}});
    }
    void signed_or_null(Member member, const std::optional<std::int64_t>& /*value*/) {
        add(member, or_null({{"type", "integer"}}));
    }
    void real(Member member, double /*value*/) { add(member, {{"type", "number"}}); }
    void real_or_null(Member member, const std::optional<double>& /*value*/) {
        add(member, or_null({{"type", "number"}}));
    }
    void ratio(Member member, const std::optional<double>& /*value*/) {
        add(member, or_null({{"type", "number"}, {"minimum", 0}, {"maximum", 1}}));
    }
    void flag(Member member, bool /*value*/) { add(member, {{"type", "boolean"}}); }
    void text(Member member, const std::string& /*value*/) { add(member, text_type()); }
    void index(Member member, std::size_t /*value*/, model::Table table) {
        add(member, position_in(table));
    }
    void number_or_null(Member member, const std::optional<std::uint64_t>& /*value*/) {
        add(member, or_null(whole_number()));
    }
    void earlier_index(Member member, const std::optional<std::size_t>& /*value*/) {
        Schema type = whole_number();
        type["$comment"] = "index of an earlier entry";
        add(member, or_null(type));
    }
    void text_or_null(Member member, const std::optional<std::string>& /*value*/) {
        add(member, or_null(text_type()));
    }

    void number_if_any(Member member, std::uint64_t /*value*/) {
        add_optional(member, whole_number());
    }
    void index_if_any(Member member, std::size_t /*value*/, model::Table table) {
        add_optional(member, position_in(table));
    }
    void natural_if_any(Member member, const std::optional<std::int64_t>& /*value*/) {
        add_optional(member, whole_number());
    }
    void number_if_known(Member member, const std::optional<std::uint64_t>& /*value*/) {
        add_optional(member, whole_number());
    }
    void flag_if_any(Member member, bool /*value*/) { add_optional(member, {{"type", "boolean"}}); }
    void text_if_any(Member member, const std::string& /*value*/) {
        add_optional(member, text_type());
    }

    void numbers(Member member, const std::vector<std::uint64_t>& /*values*/) {
        add(member, list_of(whole_number()));
    }
    void indexes(Member member, const std::vector<std::size_t>& /*values*/, model::Table table) {
        add(member, list_of(position_in(table)));
    }
    void texts(Member member, const std::vector<std::string>& /*values*/) {
        add(member, list_of(text_type()));
    }
    void texts_if_known(Member member, const std::vector<std::string>& values) {
        texts(member, values);
    }

    template <typename Object>
    void object(Member member, const Object& /*value*/) {
        add(member, of<Object>());
    }
    template <typename Object>
    void object_if_known(Member member, const Object& value) {
        object(member, value);
    }
    template <typename Object>
    void object_if_any(Member member, const Object& /*value*/) {
        add_optional(member, of<Object>());
    }
    template <typename Object>
    void object_if_any(Member member, const std::optional<Object>& /*value*/) {
        add_optional(member, of<Object>());
    }
    template <typename Object>
    void object_or_null(Member member, const std::optional<Object>& /*value*/) {
        add(member, or_null(of<Object>()));
    }
    template <typename Fields>
    void group(Member member, Fields fields) {
        add(member, made(fields));
    }
    template <typename Fields>
    void for_others(Fields fields) {
        fields(*this);
    }

    template <typename Item>
    void list(Member member, const std::vector<Item>& /*items*/) {
        add(member, list_of(of<Item>()));
    }
    template <typename Item, typename Fields>
    void list(Member member, const std::vector<Item>& /*items*/, Fields fields) {
        add(member, list_of(made([&fields](SchemaFields& to) {
                const Item item{};
                fields(item, to);
            })));
    }
    template <typename Item>
    void list_if_any(Member member, const std::vector<Item>& /*items*/) {
        Schema list = list_of(of<Item>());
        list["minItems"] = 1;
        add_optional(member, list);
    }
    template <typename Entry>
    void table(Member member, const std::vector<Entry>& entries, model::Layout /*layout*/) {
        list(member, entries);
    }
    template <typename Entry>
    void table_if_any(Member member, const std::vector<Entry>& entries, model::Layout /*layout*/) {
        list_if_any(member, entries);
    }

    template <typename Object>
    void named(Member member, const model::Named<Object>& /*members*/) {
        add(member, object_of(of<Object>()));
    }
    template <typename Object>
    void named_if_any(Member member, const std::optional<model::Named<Object>>& /*members*/) {
        add_optional(member, object_of(of<Object>()));
    }
    void named_texts(Member member, const model::Named<std::string>& /*members*/) {
        add(member, object_of(text_type()));
    }
    void named_numbers(Member member, const model::Named<std::uint64_t>& /*members*/) {
        add(member, object_of(whole_number()));
    }
    /// The statistics of a pool: all of them, where no allocator of the program's told a part.
    void named_numbers(Member member, const model::Named<std::uint64_t>& /*members*/,
                       const SchemaMember& signed_member,
                       const std::optional<std::int64_t>& /*value*/) {
        Schema names = Schema::array();
        trace::visit_memory_stats(
            trace::MemoryStats(), [&](std::string_view name, std::string_view pool,
                                      std::string_view figure, std::uint64_t /*value*/) {
                names.push_back(std::string(name).append(pool).append(figure));
            });
        names.push_back(signed_member.name());
        Schema type = {{"type", "object"}};
        type["properties"][signed_member.name()] =
            signed_member.schema({{"type", "integer"}, {"minimum", -1}});
        type["additionalProperties"] = whole_number();
        add(member, type);
        object_["if"] = {{"not", {{"required", {"allocator"}}}}};
        object_["then"]["properties"][member.name()]["required"] = names;
    }
    void curve(Member member, const std::optional<model::CurveSummary>& /*summary*/, bool) {
        Schema type = of<model::CurveSummary>();
        for (Schema& figure : type["properties"]) {
            figure = or_null(figure);
        }
        add(member, type);
    }
    void rows(Member columns, Member rows, const model::Timeline& /*timeline*/) {
        Schema names = {"bucket"};
        for (const char* const curve : model::curve_names) {
            for (const char* const figure : model::row_figures) {
                names.push_back(std::string(curve) + figure);
            }
        }
        Schema row = list_of(or_null(whole_number()));
        row["minItems"] = names.size();
        row["maxItems"] = names.size();
        add(columns, {{"const", names}});
        add(rows, list_of(row));
    }

  private:
    static Schema whole_number() {
        return {{"type", "integer"},
                {"minimum", 0},
                {"maximum", std::numeric_limits<std::uint64_t>::max()}};
    }
    static Schema text_type() { return {{"type", "string"}}; }
    static Schema position_in(model::Table table) {
        Schema out = whole_number();
        out["$comment"] = std::string("index into ") + name_of(table);
        return out;
    }
    static Schema or_null(Schema type) {
        type["type"] = {type["type"], "null"};
        return type;
    }
    static Schema list_of(const Schema& type) { return {{"type", "array"}, {"items", type}}; }
    /// Of members whose names are data.
    static Schema object_of(const Schema& type) {
        return {{"type", "object"}, {"additionalProperties", type}};
    }
    template <typename Fields>
    static Schema made(Fields fields) {
        Schema object = Schema::object();
        SchemaFields inner(object);
        fields(inner);
        return object;
    }
    void add_optional(Member member, const Schema& type) {
        object_["properties"][member.name()] = member.schema(type);
        if (member.along() != nullptr) {
            object_["dependencies"][member.name()] = {member.along()};
        }
    }
    void add(Member member, const Schema& type) {
        add_optional(member, type);
        object_["required"].push_back(member.name());
    }

    Schema& object_;
};

}  // namespace memlab::report
