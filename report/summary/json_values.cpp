#include "report/summary/json_values.hpp"

#include <nlohmann/json.hpp>

#include "report/summary/json_object.hpp"

namespace memlab::report {

ordered_json text_or_null(const std::string& text) {
    return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

ordered_json place_json(const Place& place) {
    if (!place.recorded) {
        return nullptr;
    }
    return JsonObject::of(place);
}

ordered_json stack_json(const std::vector<StackFrame>& frames) {
    ordered_json list = ordered_json::array();
    for (const StackFrame& frame : frames) {
        list.push_back(JsonObject::of(frame));
    }
    return list;
}

std::string json_text(const ordered_json& value) {
    return value.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json errors_json(const std::vector<std::pair<std::string, std::string>>& errors) {
    ordered_json list = ordered_json::array();
    for (const auto& [file, error] : errors) {
        list.push_back({{"file", file}, {"error", error}});
    }
    return list;
}

std::string json_document(std::string_view format, const std::vector<std::string>& reports,
                          const std::vector<std::pair<std::string, std::string>>& errors) {
    std::string out = "{\n\"format\": \"";
    out.append(format).append("\",\n\"version\": 1,\n\"reports\": [");
    for (std::size_t i = 0; i < reports.size(); ++i) {
        out.append(i == 0 ? "\n" : ",\n").append(reports[i]);
    }
    out.append("],\n\"errors\": ").append(json_text(errors_json(errors))).append("\n}\n");
    return out;
}

}  // namespace memlab::report
