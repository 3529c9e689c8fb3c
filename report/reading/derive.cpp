// Derives the report of a process from its event log.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "model/json_writer.hpp"
#include "report/reading/input_file.hpp"
#include "report/reading/log_report.hpp"
#include "report/reading/read_ahead.hpp"
#include "report/reading/reader.hpp"
#include "trace/aggregate/aggregator.hpp"

namespace memlab::report {

namespace {

/// DeriveResult::leftover. A killed process leaves a zero byte after its last complete record, then
/// possibly part of another one; a complete log has nothing after its end.
std::string find_leftover(const std::string& path, std::uint64_t offset, bool is_complete) {
    const int fd = open(find_input(path).path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return {};
    }
    std::array<char, 1 << 16> buffer;
    bool found = false;
    // What was reserved and never written is passed over, however large it is.
    for (auto at = static_cast<off_t>(offset); !found;) {
        const off_t data = is_complete ? lseek(fd, at, SEEK_DATA) : at;
        if (data < 0 && errno == ENXIO) {
            break;  // only holes follow
        }
        at = std::max(at, data);
        const ssize_t got = pread(fd, buffer.data(), is_complete ? buffer.size() : 1, at);
        if (got <= 0) {
            break;
        }
        found = std::any_of(buffer.cbegin(), buffer.cbegin() + got, [](char c) { return c != 0; });
        at += got;
        if (!is_complete) {
            break;
        }
    }
    close(fd);
    return found ? "the data from byte " + std::to_string(offset) +
                       " on is not a record: the file was cut short there, or data was appended"
                 : std::string();
}

}  // namespace

std::string log_message(const trace::LogReadResult& read, const std::string& path) {
    const std::string prefix = path + ": ";
    return read.message.starts_with(prefix) ? read.message.substr(prefix.size()) : read.message;
}

std::string log_damage(const trace::LogReadResult& read, const std::string& path) {
    const std::string message = log_message(read, path);
    return "event log " + std::string(message.starts_with("damaged") ? "is " : "") + message;
}

DeriveResult describe_reading(const std::string& log_path, const trace::LogReadResult& read) {
    DeriveResult result;
    result.from_log = true;
    const std::string message = log_message(read, log_path);  // our caller adds the file's name
    if (read.status == trace::LogStatus::other_version) {
        result.error = message;
    } else if (!read.is_log()) {
        result.error = "neither a memlab report nor an event log (" + message +
                       "); give a memlab.*.json or .memlog file";
    } else if (read.records == 0) {
        result.error = "an event log without a whole record (" + message +
                       "); there is nothing to show, record again";
    }
    if (!result.error.empty()) {
        return result;
    }
    if (read.status == trace::LogStatus::damaged) {
        result.warning = "The " + log_damage(read, log_path) + ".";
    }
    result.records = read.records;
    if (read.gap) {
        result.gap = {read.gap->from_ns, read.gap->to_ns};
    } else if (read.lacks_events) {
        result.gap.emplace();
    }
    return result;
}

DeriveResult aggregate_log(const std::string& log_path, const LogSinkFactory& make_sink,
                           trace::Aggregator& aggregator) {
    DeriveResult result;
    try {
        const std::unique_ptr<trace::RecordSink> sink =
            make_sink ? make_sink(log_path, aggregator) : nullptr;
        const trace::LogReadResult read =
            sink ? read_log_ahead(log_path, *sink)
                 : read_log_ahead(log_path, aggregator, trace::LogPart::sums);
        if (auto* const follower = dynamic_cast<LogFollower*>(sink.get())) {
            follower->finish(read);
        }
        result = describe_reading(log_path, read);
        if (!result.error.empty()) {
            return result;
        }
        const bool complete = read.status == trace::LogStatus::complete;
        if (read.status != trace::LogStatus::damaged && !read.has_ring &&
            !is_being_written(log_path, aggregator.process().pid)) {
            result.leftover = find_leftover(log_path, read.offset, complete);
        }
        if (complete && !result.leftover.empty()) {
            result.warning =
                "The event log continues after its end, at byte " + std::to_string(read.offset) +
                ": data was appended, perhaps another log. Only the recording before it "
                "is shown.";
        }
    } catch (const std::bad_alloc&) {
        result.error = too_large_to_read;
    }
    return result;
}

void read_through(const std::string& log_path, const LogSinkFactory& make_sink) {
    trace::Aggregator figures;
    aggregate_log(log_path, make_sink, figures);
}

DeriveResult derive_json(const std::string& log_path) {
    DeriveResult result;
    try {
        trace::Aggregator aggregator;
        result = aggregate_log(log_path, {}, aggregator);
        if (result.error.empty()) {
            result.json = model::report_to_string(aggregator, model::Moment::end, result.warning);
        }
    } catch (const std::bad_alloc&) {
        result.error = too_large_to_read;
    }
    return result;
}

}  // namespace memlab::report
