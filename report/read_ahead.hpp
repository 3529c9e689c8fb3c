// Reads an event log with two threads: one decodes the file, the caller's consumes the records.
// Shows progress on the terminal set with show_progress_on() if reading takes long.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "report/input_file.hpp"
#include "report/parallel.hpp"
#include "trace/log_reader.hpp"

namespace memlab::report {

/// Consecutive records of a log. Events are stored apart from the other records, which are rare.
struct LogChunk {
    std::vector<trace::Event> events;
    /// In order; each with the number of events of this chunk that precede it.
    std::vector<std::pair<std::size_t, trace::AnyRecord>> others;
};

/// Decodes a log in a thread of its own.
class ReadAhead {
  public:
    explicit ReadAhead(const std::string& path, trace::LogPart part = trace::LogPart::everything);
    /// Stops and joins the thread; drops chunks that were not delivered.
    ~ReadAhead();
    ReadAhead(const ReadAhead&) = delete;
    ReadAhead& operator=(const ReadAhead&) = delete;

    /// False if no thread could be created; then no other member may be called.
    bool started() const { return impl_ != nullptr; }

    /// The next chunk, valid until the next call; null at the end.
    const LogChunk* next();

    /// How the reading ended. Valid after next() returned null.
    const trace::LogReadResult& result() const;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

/// Delivers a log record by record.
class LogCursor {
  public:
    explicit LogCursor(const std::string& path, trace::LogPart part = trace::LogPart::everything)
        : log_(path, part) {}

    /// As ReadAhead::started().
    bool started() const { return log_.started(); }

    /// Passes the next record to `sink`; false at the end. Exceptions of the sink propagate.
    template <std::derived_from<trace::RecordSink> Sink>
    bool next(Sink& sink) {
        while (chunk_ == nullptr ||
               (event_ == chunk_->events.size() && other_ == chunk_->others.size())) {
            chunk_ = log_.next();
            event_ = 0;
            other_ = 0;
            if (chunk_ == nullptr) {
                return false;
            }
        }
        if (other_ != chunk_->others.size() && chunk_->others[other_].first == event_) {
            std::visit([&sink](const auto& record) { sink.on(record); },
                       chunk_->others[other_++].second);
        } else {
            sink.on(chunk_->events[event_++]);
        }
        return true;
    }

    /// How the reading ended. Valid after next() returned false.
    const trace::LogReadResult& result() const { return log_.result(); }

  private:
    ReadAhead log_;
    const LogChunk* chunk_ = nullptr;
    std::size_t event_ = 0;
    std::size_t other_ = 0;
};

/// As read_input_log(), but decodes in a second thread if one can be created and a processor is
/// free for it. Exceptions of the sink propagate.
template <std::derived_from<trace::RecordSink> Sink>
trace::LogReadResult read_log_ahead(const std::string& path, Sink& sink,
                                    trace::LogPart part = trace::LogPart::everything) {
    if (all_processors_busy()) {
        return read_input_log(path, sink, nullptr, part);
    }
    LogCursor log(path, part);
    if (!log.started()) {
        return read_input_log(path, sink, nullptr, part);
    }
    while (log.next(sink)) {
    }
    return log.result();
}

/// A sentence on what stretch of the recording `part` of its log has; empty: all of it.
std::string describe_stretch(const trace::LogReadResult& read, trace::LogPart part);

}  // namespace memlab::report
