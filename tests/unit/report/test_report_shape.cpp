// The published schema has the members that the structs of a report have: the same names, in the
// same order, of the same types, and required where they are always written.
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/report.hpp"
#include "tests/catch.hpp"

using namespace memlab::model;

using namespace memlab::report;
using Schema = nlohmann::ordered_json;

namespace {

/// A visitor of fields() that compares them with an object of the schema.
class SchemaFields {
  public:
    SchemaFields(const Schema& root, const Schema& object, std::string path)
        : root_(root), object_(resolved(object)), path_(std::move(path)) {
        CAPTURE(path_);
        CHECK(object_.value("type", "") == "object");
    }
    SchemaFields(const SchemaFields&) = delete;
    SchemaFields& operator=(const SchemaFields&) = delete;

    /// After all fields.
    void check() const {
        std::vector<std::string> names;
        for (const auto& property : object_.at("properties").items()) {
            names.push_back(property.key());
        }
        std::set<std::string> required;
        for (const auto& name : object_.at("required")) {
            required.insert(name.get<std::string>());
        }
        CAPTURE(path_);
        CHECK(names_ == names);
        CHECK(required_ == required);
    }

    void line() {}
    template <typename Value>
    void constant(const char* name, Value value) {
        CHECK(member(name, true).value("const", Schema()) == value);
    }
    void position(const char* name) { plain(name, "integer"); }
    void number(const char* name, std::uint64_t /*value*/) { plain(name, "integer"); }
    void signed_number(const char* name, std::int64_t /*value*/) { plain(name, "integer"); }
    void natural(const char* name, std::int64_t /*value*/) { plain(name, "integer"); }
    void extra(const char* name, std::uint64_t /*value*/) { plain(name, "integer"); }
    void index(const char* name, std::size_t /*value*/, Table) { plain(name, "integer"); }
    template <typename Line>
    void source_line(const char* name, Line /*value*/) {
        plain(name, "integer");
    }
    void real(const char* name, double /*value*/) { plain(name, "number"); }
    void flag(const char* name, bool /*value*/) { plain(name, "boolean"); }
    void text(const char* name, const std::string& /*value*/) { plain(name, "string"); }
    template <typename Value>
    void ratio(const char* name, const Value& /*value*/) {
        plain(name, "number or null");
    }
    template <typename Value>
    void number_or_null(const char* name, const Value& /*value*/) {
        plain(name, "integer or null");
    }
    template <typename Value>
    void earlier_index(const char* name, const Value& /*value*/) {
        plain(name, "integer or null");
    }
    template <typename Value>
    void text_or_null(const char* name, const Value& /*value*/) {
        plain(name, "string or null");
    }
    template <typename Value>
    void number_if_any(const char* name, const Value& /*value*/) {
        plain(name, "integer", false);
    }
    void index_if_any(const char* name, std::size_t /*value*/, Table) {
        plain(name, "integer", false);
    }
    template <typename Value>
    void natural_if_any(const char* name, const Value& /*value*/) {
        plain(name, "integer", false);
    }
    void text_if_any(const char* name, const std::string& /*value*/) {
        plain(name, "string", false);
    }
    template <typename Values>
    void numbers(const char* name, const Values& /*values*/) {
        CHECK(type_of(items(member(name, true))) == "integer");
    }
    template <typename Values>
    void indexes(const char* name, const Values& values, Table) {
        numbers(name, values);
    }
    template <typename Values>
    void texts(const char* name, const Values& /*values*/) {
        CHECK(type_of(items(member(name, true))) == "string");
    }
    template <typename Values>
    void texts_if_known(const char* name, const Values& values) {
        texts(name, values);
    }

    template <typename Object>
    void object(const char* name, const Object& /*value*/) {
        compare<Object>(member(name, true), name);
    }
    template <typename Object>
    void object_if_known(const char* name, const Object& value) {
        object(name, value);
    }
    template <typename Object>
    void object_if_any(const char* name, const Object& /*value*/) {
        compare<Object>(member(name, false), name);
    }
    template <typename Object>
    void object_if_any(const char* name, const std::optional<Object>& /*value*/) {
        compare<Object>(member(name, false), name);
    }
    template <typename Object>
    void object_or_null(const char* name, const std::optional<Object>& /*value*/) {
        const Schema& either = member(name, true).at("oneOf");
        CHECK(type_of(either.at(1)) == "null");
        compare<Object>(either.at(0), name);
    }
    template <typename Fields>
    void group(const char* name, Fields fields) {
        SchemaFields inner(root_, member(name, true), path_ + "." + name);
        fields(inner);
        inner.check();
    }
    template <typename Fields>
    void for_others(Fields fields) {
        fields(*this);
    }
    template <typename Item>
    void list(const char* name, const std::vector<Item>& values) {
        list(name, values, [](const Item& item, SchemaFields& to) { Item::fields(item, to); });
    }
    template <typename Item, typename Fields>
    void list(const char* name, const std::vector<Item>& /*values*/, Fields fields,
              bool always = true) {
        SchemaFields inner(root_, items(member(name, always)), path_ + "." + name);
        const Item none{};
        fields(none, inner);
        inner.check();
    }
    template <typename Item>
    void list_if_any(const char* name, const std::vector<Item>& values) {
        list(
            name, values, [](const Item& item, SchemaFields& to) { Item::fields(item, to); },
            false);
    }
    template <typename Entry>
    void table(const char* name, const std::vector<Entry>& entries, Layout) {
        list(name, entries);
    }
    template <typename Entry>
    void table_if_any(const char* name, const std::vector<Entry>& entries, Layout) {
        list_if_any(name, entries);
    }

    template <typename Object>
    void named(const char* name, const Named<Object>& /*members*/) {
        compare_named<Object>(member(name, true), name);
    }
    template <typename Object>
    void named_if_any(const char* name, const std::optional<Named<Object>>& /*members*/) {
        compare_named<Object>(member(name, false), name);
    }
    void named_texts(const char* name, const Named<std::string>& /*members*/) {
        CHECK(type_of(member(name, true).at("additionalProperties")) == "string");
    }
    void named_numbers(const char* name, const Named<std::uint64_t>& /*members*/) {
        CHECK(type_of(member(name, true).at("additionalProperties")) == "integer");
    }
    void named_numbers(const char* name, const Named<std::uint64_t>& members,
                       const char* signed_name, const std::optional<std::int64_t>& /*value*/) {
        named_numbers(name, members);
        CHECK(type_of(object_["properties"][name]["properties"][signed_name]) == "integer");
    }
    void curve(const char* name, const std::optional<CurveSummary>& /*summary*/, bool) {
        struct OrNull {
            SchemaFields& to;
            void number(const char* figure, std::uint64_t) { to.plain(figure, "integer or null"); }
        };
        SchemaFields inner(root_, member(name, true), path_ + "." + name);
        OrNull visit{inner};
        const CurveSummary none;
        CurveSummary::fields(none, visit);
        inner.check();
    }
    void rows(const char* columns, const char* rows, const Timeline& /*timeline*/) {
        std::vector<std::string> expected = {"bucket"};
        for (const char* const curve : curve_names) {
            for (const char* const figure : row_figures) {
                expected.push_back(std::string(curve) + figure);
            }
        }
        CHECK(member(columns, true).at("const") == expected);
        CHECK(type_of(items(items(member(rows, true)))) == "integer or null");
    }

  private:
    const Schema& resolved(const Schema& node) const {
        const auto reference = node.find("$ref");
        return reference == node.end()
                   ? node
                   : root_.at(Schema::json_pointer(reference->get<std::string>().substr(1)));
    }
    /// "integer", "string or null"; of an enumeration that of its values.
    std::string type_of(const Schema& reference) const {
        const Schema& node = resolved(reference);
        if (const auto either = node.find("oneOf"); either != node.end()) {
            return type_of(either->at(0)) + " or " + type_of(either->at(1));
        }
        if (const auto values = node.find("enum"); values != node.end()) {
            return values->at(0).type_name();
        }
        const Schema& type = node.at("type");
        return type.is_array()
                   ? type.at(0).get<std::string>() + " or " + type.at(1).get<std::string>()
                   : type.get<std::string>();
    }
    const Schema& items(const Schema& list) const {
        const Schema& node = resolved(list);
        CHECK(node.value("type", "") == "array");
        return resolved(node.at("items"));
    }
    const Schema& member(const char* name, bool always) {
        names_.emplace_back(name);
        if (always) {
            required_.insert(name);
        }
        CAPTURE(path_, name);
        const auto found = object_.at("properties").find(name);
        REQUIRE(found != object_.at("properties").end());
        return resolved(*found);
    }
    void plain(const char* name, std::string_view type, bool always = true) {
        const Schema& node = member(name, always);
        CAPTURE(path_, name);
        CHECK(type_of(node) == type);
    }
    template <typename Object>
    void compare(const Schema& object, const std::string& name) {
        SchemaFields inner(root_, object, path_ + "." + name);
        const Object value{};
        Object::fields(value, inner);
        inner.check();
    }
    /// All names, or each of those that there can be.
    template <typename Object>
    void compare_named(const Schema& object, const std::string& name) {
        if (const auto any = object.find("additionalProperties");
            any != object.end() && any->is_object()) {
            compare<Object>(*any, name + ".*");
            return;
        }
        for (const auto& property : object.at("properties").items()) {
            compare<Object>(property.value(), name + "." + property.key());
        }
    }

    const Schema& root_;
    const Schema& object_;
    const std::string path_;
    std::vector<std::string> names_ = {};
    std::set<std::string> required_ = {};
};

}  // namespace

TEST_CASE("the schema is of the structs' fields") {
    const Schema schema = Schema::parse(std::ifstream(MEMLAB_REPORT_SCHEMA));
    SchemaFields fields(schema, schema, "report");
    const Report report;
    Report::fields(report, fields);
    fields.check();
}
