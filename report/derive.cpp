// From an event log to the report that the process would have written, had it been able to.
#include <new>
#include <nlohmann/json.hpp>

#include "profiler/trace/aggregator.hpp"
#include "report/json_writer.hpp"
#include "report/read_ahead.hpp"
#include "report/reader.hpp"

namespace memlab::report {

DeriveResult derive_json(const std::string& log_path, const LogFollower& follower) {
    DeriveResult result;
    result.from_log = true;
    try {
        trace::Aggregator aggregator;
        const std::unique_ptr<trace::RecordSink> followed =
            follower ? follower(log_path, aggregator) : nullptr;
        const trace::LogReadResult read =
            followed ? read_log_ahead(log_path, *followed) : read_log_ahead(log_path, aggregator);
        // The reader names the file; so does whoever shows our result.
        std::string message = read.message;
        if (message.compare(0, log_path.size() + 2, log_path + ": ") == 0) {
            message.erase(0, log_path.size() + 2);
        }
        if (read.status == trace::LogStatus::not_a_log) {
            result.error = "neither a memlab report nor an event log (" + message +
                           "); give a memlab.*.json or .memlog file";
            return result;
        }
        if (read.records == 0) {
            result.error = "an event log without a whole record (" + message +
                           "); there is nothing to show, record again";
            return result;
        }
        if (read.status == trace::LogStatus::damaged) {
            result.warning = "The event log is " + message + ".";
        }
        result.records = read.records;
        result.json = report_to_string(aggregator);
    } catch (const std::bad_alloc&) {
        result.error = "needs more memory than there is; read it on a larger machine";
    }
    return result;
}

std::string with_end(const std::string& json, const std::string& signal, int exit_code) {
    try {
        auto root = nlohmann::ordered_json::parse(json);
        auto& process = root.at("process");
        if (process.at("ended") != "cut off") {
            return json;
        }
        if (signal.empty()) {
            process["exit_code"] = exit_code;
        } else {
            process["signal"] = signal;
        }
        return root.dump();
    } catch (const std::exception&) {
        return json;
    }
}

}  // namespace memlab::report
