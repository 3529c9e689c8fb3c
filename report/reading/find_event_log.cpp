#include "report/reading/find_event_log.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "report/reading/input_file.hpp"
#include "report/reading/reader.hpp"
#include "report/text/names.hpp"
#include "trace/reading/log_reader.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

namespace {

/// Behind the name of what gzip or zstd made of a file.
constexpr std::array<std::string_view, 2> compressed_endings = {".gz", ".zst"};

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

std::optional<RecordingName> recording_name(std::string_view name) {
    const auto take_off = [&name](std::string_view ending) {
        const bool there = name.ends_with(ending) && name.size() > ending.size();
        name.remove_suffix(there ? ending.size() : 0);
        return there;
    };
    std::any_of(compressed_endings.begin(), compressed_endings.end(), take_off);
    const bool is_log = take_off(".memlog");
    return is_log || take_off(".json") ? std::optional(RecordingName{std::string(name), is_log})
                                       : std::nullopt;
}

std::string name_of_log_beside(const std::string& file) {
    const auto name = recording_name(file);
    if (!name || name->is_log) {
        return {};
    }
    std::string plain = name->stem + ".memlog";
    const auto is_there = [](const std::string& path) {
        struct stat status {};
        return lstat(path.c_str(), &status) == 0 || errno != ENOENT;
    };
    if (is_there(plain)) {
        return plain;
    }
    for (const std::string_view compressed : compressed_endings) {
        if (std::string path = plain + std::string(compressed); is_there(path)) {
            return path;
        }
    }
    return {};
}

FoundLog find_log_beside(const std::string& file, const model::Report& report, Unpack unpack) {
    const std::string log = name_of_log_beside(file);
    if (log.empty() || (unpack == Unpack::no && !log.ends_with(".memlog"))) {
        return {};
    }
    const auto unreadable = [&](const std::string& problem) {
        return FoundLog{"", false,
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

FoundLog look_for_log(const std::string& file, const model::Report& report) {
    return is_event_log(file) ? FoundLog(file) : find_log_beside(file, report, Unpack::yes);
}

std::string find_event_log(const std::string& file, const model::Report& report) {
    return look_for_log(file, report).path;
}

}  // namespace memlab::report
