// The outcome as JSON for scripts, and as SARIF 2.1.0 for code scanners.
#include <cctype>
#include <nlohmann/json.hpp>

#include "report/check/render.hpp"
#include "report/summary/json_values.hpp"
#include "trace/event.hpp"

namespace memlab::report::check {

namespace {

using json = nlohmann::ordered_json;

json number(Figure figure) {
    if (figure.is_whole() && figure >= Figure()) {
        return figure.as_whole();
    }
    return figure.as_double();
}

json number_or_null(const std::optional<Figure>& figure) {
    return figure ? number(*figure) : json(nullptr);
}

const char* verdict_word(Verdict verdict) {
    static constexpr const char* names[] = {"ok",       "exceeded",    "no_limit",
                                            "recorded", "no_baseline", "unknown"};
    return trace::name_in<Verdict::unknown>(names, verdict, "");
}

json row_json(const Row& row) {
    json out;
    out["metric"] = info(row.metric).name;
    for (const Subject::Kind kind : {Subject::Kind::site, Subject::Kind::scope, Subject::Kind::kind,
                                     Subject::Kind::nn_module}) {
        out[std::string(keyword(kind))] =
            row.subject.kind == kind ? json(row.subject.text) : json(nullptr);
    }
    out["scope"] =
        row.subject.kind == Subject::Kind::scope ? json(row.subject.text) : json(nullptr);
    out["device"] = row.measured.device ? json(*row.measured.device) : json(nullptr);
    out["verdict"] = verdict_word(row.verdict);
    out["measured"] = number(row.measured.figure);
    out["allowed"] = number_or_null(row.allowed);
    out["baseline"] = number_or_null(row.baseline);
    out["limit"] =
        row.limit ? json(bound_text(row.limit->bound, info(row.metric).unit)) : json(nullptr);
    out["origin"] = row.limit ? json(row.limit->origin) : json(nullptr);
    out["note"] = report::text_or_null(row.measured.note);
    json responsible = json::array();
    for (const Responsible& each : row.measured.responsible) {
        responsible.push_back({{"place", report::place_json(each.place)},
                               {"kind", report::text_or_null(each.kind)},
                               {"value", number(each.figure)}});
    }
    out["responsible"] = std::move(responsible);
    return out;
}

/// A path as a URI reference.
std::string to_uri(const std::string& path) {
    static constexpr std::string_view digits = "0123456789ABCDEF";
    std::string uri;
    for (const char c : path) {
        const auto byte = static_cast<unsigned char>(c);
        const bool plain =
            byte < 128 && (std::isalnum(byte) != 0 ||
                           std::string_view("-._~/+").find(c) != std::string_view::npos);
        if (plain) {
            uri += c;
        } else {
            uri += {'%', digits[byte >> 4], digits[byte & 15]};
        }
    }
    return uri;
}

json location_json(const SourceLine& line) {
    json artifact;
    if (line.relative) {
        artifact = {{"uri", to_uri(line.file)}, {"uriBaseId", "%SRCROOT%"}};
    } else {
        artifact = {{"uri", (line.file.starts_with("/") ? "file://" : "") + to_uri(line.file)}};
    }
    return {{"physicalLocation",
             {{"artifactLocation", std::move(artifact)}, {"region", {{"startLine", line.line}}}}}};
}

}  // namespace

std::string render_json(const View& view) {
    json root;
    root["format"] = "memlab-check";
    root["version"] = 1;
    const int code = view.outcome.exit_code();
    root["verdict"] = code == 0 ? "ok" : code == 1 ? "exceeded" : "unknown";
    root["exit_code"] = code;
    json processes = json::array();
    for (std::size_t p = 0; p < view.processes.size(); ++p) {
        const Process& process = view.processes[p];
        json rows = json::array();
        for (const Row& row : view.outcome.rows) {
            if (row.process == p) {
                rows.push_back(row_json(row));
            }
        }
        processes.push_back({{"name", process.name},
                             {"file", process.file},
                             {"pid", process.pid},
                             {"ended", process.summary.ended},
                             {"lacks", report::lacks_json(process.lacks)},
                             {"rows", std::move(rows)}});
    }
    root["processes"] = std::move(processes);
    root["lacks"] = report::lacks_json(view.lacks);
    root["problems"] = view.outcome.problems;
    root["notes"] = view.outcome.notes;
    return report::json_text(root) + "\n";
}

std::string render_sarif(const View& view) {
    json rules = json::array();
    for (const MetricInfo& metric : metrics()) {
        std::string what(metric.what);
        for (char& c : what) {
            c = c == '\n' ? ' ' : c;
        }
        rules.push_back(
            {{"id", "memlab/" + std::string(metric.name)}, {"shortDescription", {{"text", what}}}});
    }
    json results = json::array();
    for (const Row& row : view.outcome.rows) {
        if (row.verdict != Verdict::exceeded) {
            continue;
        }
        std::string message = sentence(view, row) + ".";
        for (const Responsible& each : row.measured.responsible) {
            message += "\n" + responsible_text(view, row, each);
        }
        json result = {{"ruleId", "memlab/" + std::string(info(row.metric).name)},
                       {"ruleIndex", static_cast<std::size_t>(row.metric)},
                       {"level", "error"},
                       {"message", {{"text", message}}}};
        if (const auto line = source_line(view, row)) {
            result["locations"] = json::array({location_json(*line)});
        }
        results.push_back(std::move(result));
    }
    json notifications = json::array();
    for (const std::string& problem : view.outcome.problems) {
        notifications.push_back({{"level", "error"}, {"message", {{"text", problem}}}});
    }
    json run;
    run["tool"]["driver"] = {{"name", "memlab"}, {"version", view.version}, {"rules", rules}};
    run["invocations"] = json::array({{{"executionSuccessful", view.outcome.problems.empty()},
                                       {"toolExecutionNotifications", std::move(notifications)}}});
    run["results"] = std::move(results);
    json root;
    root["$schema"] = "https://json.schemastore.org/sarif-2.1.0.json";
    root["version"] = "2.1.0";
    root["runs"] = json::array({std::move(run)});
    return report::json_text(root) + "\n";
}

}  // namespace memlab::report::check
