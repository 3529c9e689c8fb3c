#include "report/reading/find_event_log.hpp"

#include <utility>

#include "report/reading/input_file.hpp"
#include "report/reading/reader.hpp"
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

}  // namespace

std::optional<trace::ProcessInfo> read_process_info(const std::string& log) {
    FirstRecord first;
    try {
        read_input_log(log, first);
    } catch (const FirstRecordRead&) {  // expected
    }
    return first.process();
}

std::string find_event_log(const std::string& file, const model::Report& report) {
    if (is_event_log(file)) {
        return file;
    }
    constexpr std::string_view json = ".json";
    if (!file.ends_with(json)) {
        return {};
    }
    std::string log = file.substr(0, file.size() - json.size()) + ".memlog";
    if (!is_event_log(log)) {
        return {};
    }
    const std::optional<trace::ProcessInfo> process = read_process_info(log);
    const bool same = process && process->pid == report.process.pid &&
                      process->start_wall_ns == report.process.start_wall_ns;
    return same ? log : std::string();
}

}  // namespace memlab::report
