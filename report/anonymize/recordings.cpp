#include "report/anonymize/recordings.hpp"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "report/reading/input_file.hpp"
#include "report/symbols/embed_symbols.hpp"
#include "trace/log_writer.hpp"

namespace memlab::report {

namespace {

using json = nlohmann::ordered_json;

/// Passes a log's records on to a writer.
class LogCopy final : public trace::GenericSink<LogCopy> {
  public:
    LogCopy(trace::LogWriter& writer, Anonymizer& anonymizer)
        : writer_(writer), anonymizer_(anonymizer) {}

    /// As the log did.
    bool stopped() const { return stopped_; }

    void on_freed(const trace::Event& record) override { writer_.on_freed(record); }

  private:
    friend trace::GenericSink<LogCopy>;

    template <typename Record>
    void take(const Record& record) {
        writer_.on(record);
    }
    void take(const trace::ProcessInfo& record) {
        trace::ProcessInfo process = record;
        std::vector<std::string> paths = record.arguments;
        paths.push_back(record.executable);
        anonymizer_.learn(record.host, paths);
        process.executable = anonymizer_.path(record.executable);
        process.arguments = anonymizer_.arguments(record.arguments);
        process.host = anonymizer_.host(record.host);
        for (auto& [name, value] : process.ranks) {
            value = anonymizer_.text(value);
        }
        writer_.on(process);
    }
    void take(const trace::OptionValue& record) {
        writer_.on(trace::OptionValue{record.name, anonymizer_.text(record.value)});
    }
    void take(const trace::StringDef& record) {
        trace::StringDef string = record;
        string.text = anonymizer_.text(record.text);
        writer_.on(string);
    }
    void take(const trace::ModuleDef& record) {
        trace::ModuleDef module = record;
        module.path = anonymizer_.path(record.path);
        writer_.on(module);
    }
    void take(const trace::DeviceInfo& record) {
        trace::DeviceInfo device = record;
        device.uuid = anonymizer_.uuid(record.uuid);
        writer_.on(device);
    }
    void take(const trace::LogStopped& record) {
        if (writer_.stopped_because().empty()) {
            writer_.stop_as(
                {record.time_ns, anonymizer_.text(record.reason), record.events_dropped});
            stopped_ = true;
        }
    }
    void take(const trace::End& record) {
        trace::End end = record;
        end.log_stopped_because = anonymizer_.text(record.log_stopped_because);
        writer_.on(end);
    }

    trace::LogWriter& writer_;
    Anonymizer& anonymizer_;
    bool stopped_ = false;
};

std::vector<std::string> strings_of(const json& list) {
    std::vector<std::string> strings;
    for (const json& each : list) {
        strings.push_back(each.is_string() ? each.get<std::string>() : std::string());
    }
    return strings;
}

class JsonCopy {
  public:
    explicit JsonCopy(Anonymizer& anonymizer) : anonymizer_(anonymizer) {}

    void learn(const json& value) {
        if (value.is_object()) {
            if (value.contains("host") && value["host"].is_string()) {
                std::vector<std::string> paths;
                for (const char* name : {"arguments", "command"}) {
                    if (value.contains(name) && value[name].is_array()) {
                        paths = strings_of(value[name]);
                    }
                }
                for (const char* name : {"executable", "directory"}) {
                    if (value.contains(name) && value[name].is_string()) {
                        paths.push_back(value[name].get<std::string>());
                    }
                }
                anonymizer_.learn(value["host"].get<std::string>(), paths);
            }
            for (const auto& [name, member] : value.items()) {
                if (member.is_object() || name == "processes") {
                    learn(member);
                }
            }
        } else if (value.is_array()) {
            for (const json& each : value) {
                learn(each);
            }
        }
    }

    void replace(json& value, std::string_view name = {}) {
        if (value.is_object()) {
            for (auto& [member_name, member] : value.items()) {
                replace(member, member_name);
            }
        } else if (value.is_array() && (name == "arguments" || name == "command")) {
            value = anonymizer_.arguments(strings_of(value));
        } else if (value.is_array()) {
            for (json& each : value) {
                replace(each);
            }
        } else if (value.is_string()) {
            value = replaced(value.get<std::string>(), name);
        }
    }

  private:
    std::string replaced(const std::string& text, std::string_view name) {
        if (name == "host") {
            return anonymizer_.host(text);
        }
        if (name == "uuid") {
            return anonymizer_.uuid(text);
        }
        if (name == "executable" || name == "path") {
            return anonymizer_.path(text);
        }
        if (name == "command") {  // of an ancestor, in one text
            return anonymizer_.path(text.substr(0, text.find(' ')));
        }
        if (name == "report" || name == "log") {
            return anonymizer_.file_name(text);
        }
        return anonymizer_.text(text);
    }

    Anonymizer& anonymizer_;
};

}  // namespace

AnonymizedLog anonymize_log(const std::string& log, const std::string& output,
                            Anonymizer& anonymizer) {
    AnonymizedLog result;
    trace::LogWriter::Result created = trace::LogWriter::create(output, 0);
    if (!created.writer) {
        result.error = created.error;
        return result;
    }
    LogCopy copy(*created.writer, anonymizer);
    const trace::LogReadResult read = read_input_log(log, copy);
    created.writer->close();
    result.records = read.records;
    result.is_partial = read.gap.has_value();
    if (!read.is_log()) {
        result.error = read.message;
    } else if (const std::string& why = created.writer->stopped_because();
               !why.empty() && !copy.stopped()) {
        result.error = output + ": " + why;
    } else if (const std::string late = created.writer->incomplete_because(); !late.empty()) {
        result.error = output + ": " + late;
    } else if (read.status == trace::LogStatus::damaged) {
        result.warning = read.message;
    }
    if (!result.error.empty() || result.is_partial) {
        unlink(output.c_str());
    }
    return result;
}

std::string anonymize_json(std::string_view text, Anonymizer& anonymizer, std::string& error) {
    json root = json::parse(text, nullptr, false);
    if (!root.is_object() || !root.value("format", "").starts_with("memlab-")) {
        error = "neither a report nor the file of memlab-run";
        return "";
    }
    JsonCopy copy(anonymizer);
    copy.learn(root);
    copy.replace(root);
    return format_report(root);
}

}  // namespace memlab::report
