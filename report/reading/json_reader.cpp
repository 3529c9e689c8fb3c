// A strict parser of schema version 1 (docs/report-format.md): every type, range and index is
// checked before it is used.
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "model/bounded_sum.hpp"
#include "report/reading/json_fields.hpp"
#include "report/reading/reader.hpp"
#include "report/reading/table_text.hpp"

namespace memlab::report {

namespace {

/// The schema nests nine deep; unknown members of later versions may nest deeper.
constexpr int max_depth = 64;

void check_identity(const Node& root) {
    const JsonValue* format = root.optional_member("format");
    if (format == nullptr || !format->is_string() || *format != "memlab-report") {
        throw Invalid(
            "JSON, but not a memlab report (its \"format\" is not \"memlab-report\"); "
            "give a memlab.*.json or .memlog file");
    }
    const std::uint64_t version = root.member("version").number();
    if (version != model::schema_version) {
        throw Invalid("has format version " + std::to_string(version) +
                      ", this memlab-report reads version " +
                      std::to_string(model::schema_version) +
                      "; use the memlab-report of the memlab that recorded it");
    }
}

/// Thrown if the fast table parser rejects the text: the whole document has to be parsed.
struct TableRejected {};

/// As many as any index may refer to where it is no table: what the member is fails in its turn.
std::size_t size_of(const Node& root, model::Table table) {
    const JsonValue* const found = root.optional_member(name_of(table));
    if (found == nullptr) {
        return table == model::Table::python_frames ? 0 : std::numeric_limits<std::size_t>::max();
    }
    return found->is_array() ? found->size() : std::numeric_limits<std::size_t>::max();
}

/// `add_tables(report, frames)` adds the stacks and sites that `root` lacks; there are that many
/// frames.
template <typename AddTables>
model::Report read_root(const Node& root, AddTables add_tables) {
    check_identity(root);
    model::Report report;
    model::TableSizes sizes;
    for (const model::Table table :
         {model::Table::modules, model::Table::python_frames, model::Table::frames}) {
        sizes[table] = size_of(root, table);
    }
    add_tables(report, sizes[model::Table::frames]);
    sizes[model::Table::stacks] =
        model::saturating_add(size_of(root, model::Table::stacks), report.stacks.size());
    sizes[model::Table::sites] =
        model::saturating_add(size_of(root, model::Table::sites), report.sites.size());
    report.coverage.because = "This report was written by a memlab without an audit.";
    JsonFields fields(root, sizes, 0);
    model::Report::fields(report, fields);
    forget_generated_addresses(report);
    return report;
}

/// A message about the file; nlohmann's name the classes of the library.
std::string describe(const JsonValue::parse_error& error, std::size_t size) {
    if (error.byte > size) {
        return "ends in the middle (after " + std::to_string(size) +
               " bytes); copy it again, or derive it from the .memlog beside it";
    }
    return "not valid JSON at byte " + std::to_string(error.byte) + advice;
}

/// Throws Invalid where it is no JSON.
JsonValue parse_json(std::string_view text) {
    try {
        return JsonValue::parse(text.begin(), text.end());
    } catch (const JsonValue::parse_error& error) {
        throw Invalid(describe(error, text.size()));
    } catch (const JsonValue::exception&) {
        throw Invalid(std::string("has a number out of range") + advice);
    }
}

/// None if the text is not as memlab writes it, or invalid.
std::optional<model::Report> read_with_tables(std::string_view text, const TableTexts& tables) {
    if (!tables.found) {
        return std::nullopt;
    }
    try {
        const JsonValue root = JsonValue::parse(without_tables(text, tables));
        return read_root(Node(root), [&](model::Report& report, std::size_t frames) {
            if (!read_stacks(tables.stacks, frames, report.stacks) ||
                !read_sites(tables.sites, report.stacks.size(), report.sites)) {
                throw TableRejected();
            }
        });
    } catch (const TableRejected&) {
    } catch (const Invalid&) {
    } catch (const JsonValue::exception&) {
    }
    return std::nullopt;
}

}  // namespace

ReadResult parse_report(std::string_view text) {
    return without_exceptions([&]() -> model::Report {
        // Depth is checked by scanning brackets. The parser's callback would make parsing
        // quadratic: with one, nlohmann walks the whole list again after each of its objects.
        TableTexts tables;
        if (!scan_tables(text, max_depth, &tables)) {
            throw Invalid(std::string("is nested too deeply") + advice);
        }
        if (std::optional<model::Report> report = read_with_tables(text, tables)) {
            return std::move(*report);
        }
        const JsonValue root = parse_json(text);
        if (!root.is_object()) {
            throw Invalid("JSON, but not a memlab report; give a memlab.*.json or .memlog file");
        }
        return read_root(Node(root), [](model::Report&, std::size_t) {});
    });
}

}  // namespace memlab::report
