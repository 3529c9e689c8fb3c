#include "report/summary/json_values.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "report/text/terminal.hpp"

#include "report/summary/json_object.hpp"

namespace memlab::report {

ordered_json text_or_null(const std::string& text) {
    return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

void add_detail(const std::string& detail, ordered_json& label) {
    if (!detail.empty()) {
        label["detail"] = detail;
    }
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
    std::string text = value.dump(2, ' ', false, ordered_json::error_handler_t::replace);
    const auto is_plain = [](char c) { return (static_cast<unsigned char>(c) & 0x80) == 0; };
    if (std::all_of(text.begin(), text.end(), is_plain)) {
        return text;
    }
    // What a terminal obeys is written as an escape, which reads the same.
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const std::size_t length = byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
        const std::string_view character = std::string_view(text).substr(i, length);
        if (length > 1 && is_control(character)) {
            unsigned code = byte & (length == 2 ? 0x1fU : 0x0fU);
            for (const char next : character.substr(1)) {
                code = code << 6 | (static_cast<unsigned char>(next) & 0x3fU);
            }
            std::array<char, 8> escape{};
            std::snprintf(escape.data(), escape.size(), "\\u%04x", code & 0xffffU);
            out += escape.data();
        } else {
            out += character;
        }
        i += length;
    }
    return out;
}

ordered_json lacks_json(const std::vector<Lack>& lacks) {
    ordered_json list = ordered_json::array();
    for (const Lack& lack : lacks) {
        list.push_back(JsonObject::of(lack));
    }
    return list;
}

std::string with_lacks(std::string object, const std::vector<Lack>& lacks) {
    const std::size_t close = object.rfind('}');
    const std::size_t last = object.find_last_not_of(" \n", close - 1);
    object.replace(last + 1, close - last - 1,
                   (object[last] == '{' ? "\n  \"lacks\": " : ",\n  \"lacks\": ") +
                       json_text(lacks_json(lacks)) + "\n");
    return object;
}

ordered_json errors_json(const std::vector<std::pair<std::string, std::string>>& errors) {
    ordered_json list = ordered_json::array();
    for (const auto& [file, error] : errors) {
        list.push_back({{"file", file}, {"error", error}});
    }
    return list;
}

std::string json_document(std::string_view format, const std::vector<std::string>& reports,
                          const std::vector<std::pair<std::string, std::string>>& errors,
                          const std::vector<Lack>& lacks) {
    std::string out = "{\n\"format\": \"";
    out.append(format).append("\",\n\"version\": 1,\n\"reports\": [");
    for (std::size_t i = 0; i < reports.size(); ++i) {
        out.append(i == 0 ? "\n" : ",\n").append(reports[i]);
    }
    out.append("],\n\"lacks\": ").append(json_text(lacks_json(lacks)));
    out.append(",\n\"errors\": ").append(json_text(errors_json(errors))).append("\n}\n");
    return out;
}

}  // namespace memlab::report
