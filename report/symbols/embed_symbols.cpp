#include "report/symbols/embed_symbols.hpp"

#include <new>
#include <nlohmann/json.hpp>
#include <set>

#include "report/reading/reader.hpp"

namespace memlab::report {

namespace {

using json = nlohmann::ordered_json;

std::string dumped(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json source_json(const ResolvedAddress& resolved) {
    json sources = json::array();
    for (const model::SourceFrame& each : resolved.frames) {
        sources.push_back({{"function", each.function},
                           {"file", each.file},
                           {"line", std::max(each.line, 0)},
                           {"inlined", each.inlined}});
    }
    return sources;
}

EmbedResult embed(std::string_view text, Symbolizer& symbolizer) {
    EmbedResult result;
    // A report that the reader accepts has all members used below.
    const ReadResult read = parse_report(text);
    if (!read.report) {
        result.error = read.error;
        return result;
    }
    json root = json::parse(text);
    std::set<std::string> changed;
    for (std::size_t i = 0; i < read.report->frames.size(); ++i) {
        const model::Frame& frame = read.report->frames[i];
        const model::Module& module = read.report->modules.at(frame.module);
        if (frame.python != 0 || module.path.empty()) {
            continue;
        }
        ++result.frames;
        if (!frame.source.empty()) {
            ++result.named;
            continue;
        }
        const ResolvedAddress& resolved =
            symbolizer.resolve(module.path, module.build_id, frame.address);
        if (resolved.problem == "binary changed") {
            changed.insert(module.path);
        }
        if (!resolved.frames.empty()) {
            ++result.named;
            root["frames"][i]["source"] = source_json(resolved);
        }
    }
    result.changed.assign(changed.begin(), changed.end());
    result.json = format_report(root);
    return result;
}

}  // namespace

std::string format_report(const json& root) {
    std::string text = "{";
    bool first = true;
    for (const auto& [name, value] : root.items()) {
        text.append(first ? "\n" : ",\n").append(dumped(name)).append(":");
        first = false;
        if (!value.is_array() || value.empty() || !value.front().is_object()) {
            text.append(dumped(value));
            continue;
        }
        for (std::size_t i = 0; i < value.size(); ++i) {
            text.append(i == 0 ? "[\n" : ",\n").append(dumped(value[i]));
        }
        text.append("]");
    }
    return text.append("}\n");
}

EmbedResult embed_symbols(std::string_view json, Symbolizer& symbolizer) {
    try {
        return embed(json, symbolizer);
    } catch (const std::bad_alloc&) {
        EmbedResult result;
        result.error = "needs more memory than there is; symbolize it on a larger machine";
        return result;
    } catch (const std::exception& error) {
        EmbedResult result;
        result.error = std::string("cannot be symbolized (") + error.what() + "); record again";
        return result;
    }
}

}  // namespace memlab::report
