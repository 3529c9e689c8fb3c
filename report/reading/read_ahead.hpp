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

#include "report/parallel.hpp"
#include "report/reading/input_file.hpp"
#include "trace/reading/log_reader.hpp"

namespace memlab::report {

/// Consecutive records of a log. Events are stored apart from the other records, which are rare.
struct LogChunk {
    std::vector<trace::Event> events;
    /// By event: whether it is a free_requested that stands for its free_completed, too.
    std::vector<std::uint8_t> freed;
    /// In order; each with the number of events of this chunk that precede it.
    std::vector<std::pair<std::size_t, trace::AnyRecord>> others;

    void add(const trace::Event& event, bool is_freed) {
        events.push_back(event);
        freed.push_back(is_freed ? 1 : 0);
    }
    void clear() {
        events.clear();
        freed.clear();
        others.clear();
    }
    template <std::derived_from<trace::RecordSink> Sink>
    void pass_event(std::size_t i, Sink& sink) const {
        if (freed[i] != 0) {
            sink.on_freed(events[i]);
        } else {
            sink.on(events[i]);
        }
    }
    /// Passes all to `sink`.
    template <std::derived_from<trace::RecordSink> Sink>
    void pass(Sink& sink) const {
        std::size_t event = 0;
        for (const auto& [position, other] : others) {
            for (; event != position; ++event) {
                pass_event(event, sink);
            }
            std::visit([&sink](const auto& record) { sink.on(record); }, other);
        }
        for (; event != events.size(); ++event) {
            pass_event(event, sink);
        }
    }
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

    /// Passes the next record to `sink`, or a free and its completion; false at the end. Exceptions
    /// of the sink propagate.
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
            chunk_->pass_event(event_++, sink);
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
    if (!all_processors_busy()) {
        ReadAhead log(path, part);
        if (log.started()) {
            while (const LogChunk* const chunk = log.next()) {
                chunk->pass(sink);
            }
            return log.result();
        }
    }
    return read_input_log(path, sink, nullptr, part);
}

/// A sentence on what stretch of the recording `part` of its log has; empty: all of it.
std::string describe_stretch(const trace::LogReadResult& read, trace::LogPart part);

}  // namespace memlab::report
