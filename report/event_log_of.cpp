#include "report/event_log_of.hpp"

#include "profiler/trace/aggregator.hpp"
#include "profiler/trace/log_reader.hpp"
#include "report/forwarding_sink.hpp"
#include "report/reader.hpp"

namespace memlab::report {

namespace {

/// Thrown behind the first record, which is all that is wanted.
struct Seen {};

/// Is it of this process?
class FirstRecord final : public ForwardingSink {
  public:
    FirstRecord(const Process& process, trace::RecordSink& rest)
        : ForwardingSink(rest), process_(process) {}
    using ForwardingSink::on;
    void on(const trace::ProcessInfo& record) override {
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
    trace::Aggregator rest;
    FirstRecord first(report.process, rest);
    try {
        trace::read_log(log, first);
    } catch (const Seen&) {  // so it shall be
    }
    return first.same() ? log : std::string();
}

}  // namespace memlab::report
