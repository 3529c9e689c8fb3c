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

#include "trace/log_reader.hpp"

namespace memlab::report {

/// A stretch of a log. Events are apart from the rest, which is rare.
struct LogStretch {
    std::vector<trace::Event> events;
    /// Each with the number of events of this stretch that come before it; in order.
    std::vector<std::pair<std::size_t, trace::AnyRecord>> others;
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

/// A log, record by record.
class LogWalk {
  public:
    explicit LogWalk(const std::string& path) : log_(path) {}

    /// As ReadAhead's.
    bool started() const { return log_.started(); }

    /// Hands the next record to `sink`; false at the end. What the sink throws is passed on.
    template <std::derived_from<trace::RecordSink> Sink>
    bool next(Sink& sink) {
        while (stretch_ == nullptr ||
               (event_ == stretch_->events.size() && other_ == stretch_->others.size())) {
            stretch_ = log_.next();
            event_ = 0;
            other_ = 0;
            if (stretch_ == nullptr) {
                return false;
            }
        }
        if (other_ != stretch_->others.size() && stretch_->others[other_].first == event_) {
            std::visit([&sink](const auto& record) { sink.on(record); },
                       stretch_->others[other_++].second);
        } else {
            sink.on(stretch_->events[event_++]);
        }
        return true;
    }

    /// How it ended; after next() returned false.
    const trace::LogReadResult& result() const { return log_.result(); }

  private:
    ReadAhead log_;
    const LogStretch* stretch_ = nullptr;
    std::size_t event_ = 0;
    std::size_t other_ = 0;
};

/// As trace::read_log, with a thread more where the system gives one. What the sink throws is
/// passed on.
template <std::derived_from<trace::RecordSink> Sink>
trace::LogReadResult read_log_ahead(const std::string& path, Sink& sink) {
    LogWalk log(path);
    if (!log.started()) {
        return trace::read_log(path, sink);
    }
    while (log.next(sink)) {
    }
    return log.result();
}

}  // namespace memlab::report
