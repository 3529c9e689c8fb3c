#include "report/runs/run_facts.hpp"

#include <cstdint>

#include "report/reading/json_fields.hpp"

namespace memlab::report {

std::string document_format(std::string_view head) {
    std::string dense;
    for (const char c : head) {
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
            dense += c;
        }
    }
    static constexpr std::string_view begin = "{\"format\":\"";
    const std::size_t end = dense.find('"', begin.size());
    return dense.starts_with(begin) && end != std::string::npos
               ? dense.substr(begin.size(), end - begin.size())
               : std::string();
}

bool parse_run_facts(std::string_view text, RunFacts* facts, std::string* error) {
    try {
        const JsonValue json = JsonValue::parse(text);
        const Node root(json);
        const std::uint64_t version = root.member("version").number();
        if (version != RunFacts::known_version) {
            *error = "has format version " + std::to_string(version) +
                     ", this memlab-report reads version 1; use the memlab-report of the memlab "
                     "that recorded it";
            return false;
        }
        const model::TableSizes no_tables;
        JsonFields fields(root, no_tables, 0);
        RunFacts::fields(*facts, fields);
        return true;
    } catch (const Invalid&) {
    } catch (const JsonValue::exception&) {
    }
    *error = "a damaged run file of memlab-run; the reports beside it are complete without it";
    return false;
}

}  // namespace memlab::report
