// Reads an event log with two threads: one takes the file apart, the other, the caller's, adds it
// up. What takes long is shown where show_progress_on() says.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "profiler/trace/log_reader.hpp"

namespace memlab::report {

/// A stretch of a log. Events are apart from the rest, which is rare.
struct LogStretch {
    using Other =
        std::variant<trace::ProcessInfo, trace::OptionValue, trace::DeviceInfo, trace::ContextInfo,
                     trace::ContextLost, trace::StringDef, trace::ModuleDef, trace::PythonFrameDef,
                     trace::StackDef, trace::OomEvent, trace::DeviceSample, trace::Missed,
                     trace::Work, trace::Bypass, trace::Coverage, trace::End>;
    std::vector<trace::Event> events;
    /// Each with the number of events of this stretch that come before it; in order.
    std::vector<std::pair<std::size_t, Other>> others;
};

/// The reading thread.
class ReadAhead {
  public:
    explicit ReadAhead(const std::string& path);
    /// Waits for the thread; what it has not delivered is dropped.
    ~ReadAhead();
    ReadAhead(const ReadAhead&) = delete;
    ReadAhead& operator=(const ReadAhead&) = delete;

    /// False where the system gives no thread; then there is nothing to ask for.
    bool started() const { return impl_ != nullptr; }

    /// The next stretch, valid until the next call; null at the end.
    const LogStretch* next();

    /// How it ended; after next() returned null.
    const trace::LogReadResult& result() const;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

/// As trace::read_log, with a thread more where the system gives one. What the sink throws is
/// passed on.
template <std::derived_from<trace::RecordSink> Sink>
trace::LogReadResult read_log_ahead(const std::string& path, Sink& sink) {
    ReadAhead log(path);
    if (!log.started()) {
        return trace::read_log(path, sink);
    }
    while (const LogStretch* stretch = log.next()) {
        auto other = stretch->others.begin();
        const auto deliver_others = [&](std::size_t before) {
            for (; other != stretch->others.end() && other->first == before; ++other) {
                std::visit([&sink](const auto& record) { sink.on(record); }, other->second);
            }
        };
        for (std::size_t i = 0; i < stretch->events.size(); ++i) {
            deliver_others(i);
            sink.on(stretch->events[i]);
        }
        deliver_others(stretch->events.size());
    }
    return log.result();
}

}  // namespace memlab::report
