#include "report/runs/run_facts.hpp"

#include <nlohmann/json.hpp>

namespace memlab::report {

namespace {

using JsonValue = nlohmann::json;

constexpr std::uint64_t known_version = 1;

std::optional<std::string> optional_text(const JsonValue& node) {
    return node.is_null() ? std::optional<std::string>() : node.get<std::string>();
}

RunFacts::Member read_member(const JsonValue& node) {
    RunFacts::Member member;
    member.pid = node.at("pid").get<std::uint64_t>();
    member.start_wall_ns = node.at("start_wall_ns").get<std::uint64_t>();
    member.start_ticks = node.at("start_ticks").get<std::uint64_t>();
    member.recovered = node.at("recovered").get<bool>();
    member.running = node.at("ended").get<std::string>() == "running";
    member.held_bytes =
        node.at("held_bytes").is_null() ? 0 : node.at("held_bytes").get<std::uint64_t>();
    member.arguments = node.at("arguments").get<std::vector<std::string>>();
    member.report = optional_text(node.at("report"));
    member.log = optional_text(node.at("log"));
    return member;
}

}  // namespace

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
        const JsonValue root = JsonValue::parse(text);
        const auto version = root.at("version").get<std::uint64_t>();
        if (version != known_version) {
            *error = "has format version " + std::to_string(version) +
                     ", this memlab-report reads version 1; use the memlab-report of the memlab "
                     "that recorded it";
            return false;
        }
        facts->host = root.at("host").get<std::string>();
        facts->pid = root.at("pid").get<std::uint64_t>();
        facts->command = root.at("command").get<std::vector<std::string>>();
        facts->start_wall_ns = root.at("start_wall_ns").get<std::uint64_t>();
        facts->end_wall_ns = root.at("end_wall_ns").get<std::uint64_t>();
        facts->signal = optional_text(root.at("signal")).value_or("");
        if (!root.at("exit_code").is_null()) {
            facts->exit_code = root.at("exit_code").get<std::uint64_t>();
        }
        facts->replaced = root.at("replaced").get<std::map<std::string, std::string>>();
        for (const JsonValue& node : root.at("processes")) {
            facts->members.push_back(read_member(node));
        }
        for (const JsonValue& node : root.at("ancestors")) {
            facts->ancestors[node.at("pid").get<std::uint64_t>()] = {
                node.at("parent_pid").get<std::uint64_t>(), node.at("command").get<std::string>()};
        }
        return true;
    } catch (const JsonValue::exception&) {
        *error = "a damaged run file of memlab-run; the reports beside it are complete without it";
        return false;
    }
}

}  // namespace memlab::report
