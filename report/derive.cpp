// From an event log to the report that the process would have written, had it been able to.
#include <algorithm>
#include <array>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>

#include "report/read_ahead.hpp"
#include "report/reader.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/json/json_writer.hpp"

namespace memlab::report {

namespace {

/// DeriveResult::leftover. A process that is killed leaves a zero behind its last whole record,
/// then perhaps a part of one more; one that ends leaves nothing.
std::string leftover_of(const std::string& path, std::uint64_t offset, bool is_complete) {
    std::ifstream file(path, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    std::array<char, 1 << 16> buffer;
    while (file.good()) {
        file.read(buffer.data(), is_complete ? buffer.size() : 1);
        const auto* const end = buffer.begin() + file.gcount();
        if (std::any_of(buffer.cbegin(), end, [](char c) { return c != 0; })) {
            return "what the file holds from byte " + std::to_string(offset) +
                   " on is no record: it was cut short there, or something was added";
        }
        if (!is_complete) {
            break;
        }
    }
    return {};
}

}  // namespace

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
        if (read.status == trace::LogStatus::other_version) {
            result.error = message;
            return result;
        }
        if (!read.is_log()) {
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
        const bool complete = read.status == trace::LogStatus::complete;
        if (read.status != trace::LogStatus::damaged &&
            !is_being_written(log_path, aggregator.process().pid)) {
            result.leftover = leftover_of(log_path, read.offset, complete);
        }
        if (complete && !result.leftover.empty()) {
            result.warning = "The event log goes on behind its end, at byte " +
                             std::to_string(read.offset) +
                             ": something was added, perhaps another log. What is shown is the "
                             "recording before it.";
        }
        result.json = report_to_string(aggregator);
    } catch (const std::bad_alloc&) {
        result.error = "needs more memory than there is; read it on a larger machine";
    }
    return result;
}

std::string with_end(const std::string& json, const std::string& signal, int exit_code,
                     const ProcessTimes& times) {
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
        const auto start = process.at("start_wall_ns").get<std::uint64_t>();
        const auto recorded = process.at("duration_ns").get<std::uint64_t>();
        const std::uint64_t end = times.end_wall_ns;
        if (start >= times.start_wall_ns && end > start && end - start > recorded) {
            process["recorded_ns"] = recorded;
            process["duration_ns"] = end - start;
        }
        return root.dump();
    } catch (const std::exception&) {
        return json;
    }
}

}  // namespace memlab::report
