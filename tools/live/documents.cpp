#include "tools/live/documents.hpp"

#include <utility>

#include "report/reading/invalid.hpp"
#include "report/reading/json_fields.hpp"

namespace memlab::tools {
namespace {

template <typename Document>
std::optional<Document> read(const std::string& json, std::string* problem) {
    const auto root = report::JsonValue::parse(json, nullptr, false);
    try {
        const report::Node node(root);
        if (!root.is_object() || node.member("format").text() != Document::format) {
            node.fail(std::string("is not of the format ") + Document::format);
        }
        const model::TableSizes sizes;
        report::JsonFields fields(node, sizes, 0);
        Document document;
        Document::fields(document, fields);
        return document;
    } catch (const report::Invalid& invalid) {
        const std::string what = invalid.what();
        *problem = "its reply cannot be read: " + what.substr(0, what.find(report::advice)) +
                   "; is its memlab of another version?";
        return std::nullopt;
    }
}

}  // namespace

std::optional<model::StatusDocument> read_status(const std::string& json, std::string* problem) {
    return read<model::StatusDocument>(json, problem);
}

std::optional<model::IntervalDocument> read_interval(const std::string& json,
                                                     std::string* problem) {
    return read<model::IntervalDocument>(json, problem);
}

std::optional<model::ActionDocument> read_action(const std::string& json, std::string* problem) {
    return read<model::ActionDocument>(json, problem);
}

std::optional<model::PoolDocument> read_pool(const std::string& json, std::string* problem) {
    return read<model::PoolDocument>(json, problem);
}

LiveStatus ask_status(LiveConnection& connection) {
    LiveStatus answer{.process = connection.process(), .status = {}, .problem = {}, .document = {}};
    LiveReply reply = connection.ask(Verb::status);
    answer.problem = reply.problem;
    answer.document = std::move(reply.document);
    if (answer.problem.empty()) {
        answer.status = read_status(answer.document, &answer.problem);
    }
    return answer;
}

}  // namespace memlab::tools
