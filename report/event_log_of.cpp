#include "report/event_log_of.hpp"

#include "profiler/trace/log_reader.hpp"
#include "report/every_record.hpp"
#include "report/reader.hpp"

namespace memlab::report {

namespace {

/// Thrown behind the first record, which is all that is wanted.
struct Seen {};

/// Is it of this process?
class FirstRecord final : public EveryRecord<FirstRecord> {
  public:
    explicit FirstRecord(const Process& process) : process_(process) {}
    template <typename Record>
    void take(const Record& /*record*/) {
        throw Seen();
    }
    void take(const trace::ProcessInfo& record) {
        same_ = record.pid == process_.pid && record.start_wall_ns == process_.start_wall_ns;
        throw Seen();
    }
    bool same() const { return same_; }

  private:
    const Process& process_;
    bool same_ = false;
};

}  // namespace

std::string event_log_of(const std::string& file, const Report& report) {
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
    FirstRecord first(report.process);
    try {
        trace::read_log(log, first);
    } catch (const Seen&) {  // so it shall be
    }
    return first.same() ? log : std::string();
}

}  // namespace memlab::report
