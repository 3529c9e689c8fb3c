#include "report/reading/read_ahead.hpp"

#include <sys/stat.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>

#include "report/text/progress.hpp"
#include "report/text/signal_cleanup.hpp"
#include "report/text/units.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

namespace {

/// Events per chunk: a few hundred KiB, so that a chunk is still in the cache when it is read.
constexpr std::size_t max_events = 2048;
/// Other records per chunk; definitions come in bursts.
constexpr std::size_t max_others = 1024;

/// Progress is shown only if reading takes longer than this.
constexpr std::chrono::seconds progress_delay{1};

/// 0 if unknown.
std::uint64_t file_size(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)
               ? static_cast<std::uint64_t>(status.st_size)
               : 0;
}

/// A bounded single-producer, single-consumer queue of chunks.
class Ring {
  public:
    /// For the producer: waits for an empty chunk; null after cancel().
    LogChunk* acquire() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return published_ - taken_ < size || cancelled_; });
        return cancelled_ ? nullptr : &chunks_[published_ % size];
    }
    void publish() {
        const std::lock_guard lock(mutex_);
        ++published_;
        changed_.notify_all();
    }
    void end() {
        const std::lock_guard lock(mutex_);
        ended_ = true;
        changed_.notify_all();
    }

    /// For the consumer: releases its current chunk and waits for the next one; null at the end.
    LogChunk* take() {
        std::unique_lock lock(mutex_);
        if (has_current_) {
            ++taken_;
            has_current_ = false;
            changed_.notify_all();
        }
        changed_.wait(lock, [&] { return published_ != taken_ || ended_; });
        has_current_ = published_ != taken_;
        return has_current_ ? &chunks_[taken_ % size] : nullptr;
    }
    void cancel() {
        const std::lock_guard lock(mutex_);
        cancelled_ = true;
        changed_.notify_all();
    }

  private:
    static constexpr std::size_t size = 4;
    LogChunk chunks_[size];
    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t published_ = 0;
    std::size_t taken_ = 0;
    bool has_current_ = false;
    bool ended_ = false;
    bool cancelled_ = false;
};

/// Thrown in the reading thread after Ring::cancel().
struct Cancelled {};

/// Collects records into chunks.
class ChunkWriter final : public trace::GenericSink<ChunkWriter> {
  public:
    explicit ChunkWriter(Ring& ring) : ring_(ring) {}

    void take(const trace::Event& event) { add(event, false); }
    void on_freed(const trace::Event& event) override { add(event, true); }

    template <typename Record>
    void take(const Record& record) {
        LogChunk& chunk = open();
        chunk.others.emplace_back(chunk.events.size(), record);
        if (chunk.others.size() >= max_others) {
            close();
        }
    }

    /// Publishes the current chunk, if there is one.
    void close() {
        if (chunk_ != nullptr) {
            chunk_ = nullptr;
            ring_.publish();
        }
    }

  private:
    void add(const trace::Event& event, bool freed) {
        LogChunk& chunk = open();
        chunk.add(event, freed);
        if (chunk.events.size() >= max_events) {
            close();
        }
    }
    LogChunk& open() {
        if (chunk_ == nullptr) {
            chunk_ = ring_.acquire();
            if (chunk_ == nullptr) {
                throw Cancelled();
            }
            chunk_->clear();
            chunk_->events.reserve(max_events);
            chunk_->freed.reserve(max_events);
        }
        return *chunk_;
    }

    Ring& ring_;
    LogChunk* chunk_ = nullptr;
};

}  // namespace

class ReadAhead::Impl {
  public:
    Impl(const std::string& path, trace::LogPart part) {
        if (progress_terminal() >= 0) {
            progress_.emplace(progress_terminal(), path, file_size(path), Progress::Clock::now(),
                              progress_delay);
        }
        // Signals are handled by the thread that draws the progress line, never in the middle of
        // it.
        const SignalBlocker blocked(SignalBlocker::Which::all);
        thread_ = std::thread([this, path, part] { read(path, part); });
    }
    ~Impl() {
        ring_.cancel();
        thread_.join();
    }

    const LogChunk* next() {
        if (progress_) {
            progress_->update(bytes_read_.load(std::memory_order_relaxed), Progress::Clock::now());
        }
        const LogChunk* const chunk = ring_.take();
        if (chunk == nullptr) {
            progress_.reset();
        }
        return chunk;
    }
    const trace::LogReadResult& result() const { return result_; }

  private:
    void read(const std::string& path, trace::LogPart part) noexcept {
        ChunkWriter writer(ring_);
        try {
            result_ = read_input_log(path, writer, &bytes_read_, part);
            writer.close();
        } catch (const Cancelled&) {  // by the destructor
        } catch (const std::bad_alloc&) {
            result_.status = trace::LogStatus::damaged;
            result_.message = path + ": cannot be read further: no host memory";
        }
        ring_.end();
    }

    Ring ring_;
    std::atomic<std::uint64_t> bytes_read_{0};
    std::optional<Progress> progress_;
    trace::LogReadResult result_;
    std::thread thread_;
};

ReadAhead::ReadAhead(const std::string& path, trace::LogPart part) {
    try {
        impl_ = std::make_unique<Impl>(path, part);
    } catch (const std::system_error&) {  // no thread; started() returns false
    }
}

ReadAhead::~ReadAhead() = default;

const LogChunk* ReadAhead::next() {
    return impl_->next();
}

const trace::LogReadResult& ReadAhead::result() const {
    return impl_->result();
}

std::string describe_stretch(const trace::LogReadResult& read, trace::LogPart part) {
    if (!read.gap) {
        return {};
    }
    if (part == trace::LogPart::beginning) {
        return "This is of the first " + format_duration(read.gap->from_ns) +
               " only: of what came later the event log keeps the newest part, without what was "
               "before it (MEMLAB_LOG_LIMIT).";
    }
    return "The event log keeps its beginning, up to " + format_duration(read.gap->from_ns) +
           ", and its newest part, from " + format_duration(read.gap->to_ns) +
           " on (MEMLAB_LOG_LIMIT): single events in between are missing, their sums are not.";
}

}  // namespace memlab::report
