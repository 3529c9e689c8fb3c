#include "report/reading/find_event_log.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "report/reading/input_file.hpp"
#include "report/reading/reader.hpp"
#include "report/text/names.hpp"
#include "trace/log_reader.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

namespace {

/// Thrown after the first record to end the reading.
struct FirstRecordRead {};

class FirstRecord final : public trace::GenericSink<FirstRecord> {
  public:
    template <typename Record>
    void take(const Record& /*record*/) {
        throw FirstRecordRead();
    }
    void take(const trace::ProcessInfo& record) {
        process_ = record;
        throw FirstRecordRead();
    }
    std::optional<trace::ProcessInfo> process() { return std::move(process_); }

  private:
    std::optional<trace::ProcessInfo> process_;
};

struct FirstRecordResult {
    std::optional<trace::ProcessInfo> process;
    std::string problem;  ///< empty: there is a first record
};

FirstRecordResult read_first_record(const std::string& log) {
    FirstRecord first;
    try {
        const trace::LogReadResult read = read_input_log(log, first);
        std::string problem = read.message;
        if (problem.starts_with(log + ": ")) {
            problem.erase(0, log.size() + 2);
        }
        return {std::nullopt, problem.empty() ? "it has no record" : problem};
    } catch (const FirstRecordRead&) {  // expected
    }
    return {first.process(), ""};
}

}  // namespace

std::optional<trace::ProcessInfo> read_process_info(const std::string& log) {
    return read_first_record(log).process;
}

LogBeside find_log_beside(const std::string& file, const model::Report& report) {
    constexpr std::string_view json = ".json";
    const std::string log = file.ends_with(json)
                                ? file.substr(0, file.size() - json.size()) + ".memlog"
                                : std::string();
    struct stat status {};
    if (log.empty() || (lstat(log.c_str(), &status) != 0 && errno == ENOENT)) {
        return {};
    }
    const auto unreadable = [&](const std::string& problem) {
        return LogBeside{"", false,
                         "Its event log, " + base_name(log) +
                             ", cannot be read: " + problem.substr(0, problem.find(';')) + "."};
    };
    if (const std::string problem = file_problem(log); !problem.empty()) {
        return unreadable(problem);
    }
    const FirstRecordResult first = read_first_record(log);
    if (!first.problem.empty()) {
        return unreadable(first.problem);
    }
    const bool same = first.process && first.process->pid == report.process.pid &&
                      first.process->start_wall_ns == report.process.start_wall_ns;
    return {same ? log : std::string(), !same, ""};
}

std::string find_event_log(const std::string& file, const model::Report& report) {
    return is_event_log(file) ? file : find_log_beside(file, report).path;
}

}  // namespace memlab::report
