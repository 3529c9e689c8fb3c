#include "report/read_ahead.hpp"

#include <sys/stat.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>

#include "report/text/ending_signals.hpp"
#include "report/text/progress.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

namespace {

/// Events of a stretch: some hundred KiB, so that a stretch is still in the cache when it is read.
constexpr std::size_t stretch_events = 2048;
/// Other records: definitions come in crowds.
constexpr std::size_t stretch_others = 1024;

/// How long a reading may take before anything is shown of it.
constexpr std::chrono::seconds patience{1};

/// 0 where nobody can tell.
std::uint64_t size_of(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)
               ? static_cast<std::uint64_t>(status.st_size)
               : 0;
}

/// A ring of stretches between the two threads.
class Ring {
  public:
    /// For the reader: a stretch to fill; null when nobody wants any more.
    LogStretch* to_fill() {
        std::unique_lock lock(mutex_);
        moved_.wait(lock, [&] { return filled_ - taken_ < size || abandoned_; });
        return abandoned_ ? nullptr : &stretches_[filled_ % size];
    }
    void fill() {
        const std::lock_guard lock(mutex_);
        ++filled_;
        moved_.notify_all();
    }
    void end() {
        const std::lock_guard lock(mutex_);
        ended_ = true;
        moved_.notify_all();
    }

    /// For the caller: what comes after the stretch that it has; null at the end.
    LogStretch* take() {
        std::unique_lock lock(mutex_);
        if (holds_) {
            ++taken_;
            holds_ = false;
            moved_.notify_all();
        }
        moved_.wait(lock, [&] { return filled_ != taken_ || ended_; });
        holds_ = filled_ != taken_;
        return holds_ ? &stretches_[taken_ % size] : nullptr;
    }
    void abandon() {
        const std::lock_guard lock(mutex_);
        abandoned_ = true;
        moved_.notify_all();
    }

  private:
    static constexpr std::size_t size = 4;
    LogStretch stretches_[size];
    std::mutex mutex_;
    std::condition_variable moved_;
    std::size_t filled_ = 0;
    std::size_t taken_ = 0;
    bool holds_ = false;
    bool ended_ = false;
    bool abandoned_ = false;
};

/// Nobody wants the rest.
struct Abandoned {};

/// Fills stretches with what the reader delivers.
class Filler final : public trace::EveryRecord<Filler> {
  public:
    explicit Filler(Ring& ring) : ring_(ring) {}

    void take(const trace::Event& record) {
        LogStretch& stretch = open();
        stretch.events.push_back(record);
        if (stretch.events.size() >= stretch_events) {
            close();
        }
    }

    template <typename Record>
    void take(const Record& record) {
        LogStretch& stretch = open();
        stretch.others.emplace_back(stretch.events.size(), record);
        if (stretch.others.size() >= stretch_others) {
            close();
        }
    }

    /// What is in hand goes on its way.
    void close() {
        if (stretch_ != nullptr) {
            stretch_ = nullptr;
            ring_.fill();
        }
    }

  private:
    LogStretch& open() {
        if (stretch_ == nullptr) {
            stretch_ = ring_.to_fill();
            if (stretch_ == nullptr) {
                throw Abandoned();
            }
            stretch_->events.clear();
            stretch_->others.clear();
            stretch_->events.reserve(stretch_events);
        }
        return *stretch_;
    }

    Ring& ring_;
    LogStretch* stretch_ = nullptr;
};

}  // namespace

class ReadAhead::Impl {
  public:
    explicit Impl(const std::string& path) {
        if (progress_terminal() >= 0) {
            progress_.emplace(progress_terminal(), path, size_of(path), Progress::Clock::now(),
                              patience);
        }
        // Signals meet the thread that draws, and so never between two halves of what it does.
        const SignalsHeld held(SignalsHeld::Which::all);
        thread_ = std::thread([this, path] { read(path); });
    }
    ~Impl() {
        ring_.abandon();
        thread_.join();
    }

    const LogStretch* next() {
        if (progress_) {
            progress_->look(bytes_read_.load(std::memory_order_relaxed), Progress::Clock::now());
        }
        const LogStretch* const stretch = ring_.take();
        if (stretch == nullptr) {
            progress_.reset();
        }
        return stretch;
    }
    const trace::LogReadResult& result() const { return result_; }

  private:
    void read(const std::string& path) noexcept {
        Filler filler(ring_);
        try {
            result_ = trace::read_log(path, filler, &bytes_read_);
            filler.close();
        } catch (const Abandoned&) {  // the caller knows
        } catch (const std::bad_alloc&) {
            result_.status = trace::LogStatus::damaged;
        }
        ring_.end();
    }

    Ring ring_;
    std::atomic<std::uint64_t> bytes_read_{0};
    std::optional<Progress> progress_;
    trace::LogReadResult result_;
    std::thread thread_;
};

ReadAhead::ReadAhead(const std::string& path) {
    try {
        impl_ = std::make_unique<Impl>(path);
    } catch (const std::system_error&) {  // no thread: see started()
    }
}

ReadAhead::~ReadAhead() = default;

const LogStretch* ReadAhead::next() {
    return impl_->next();
}

const trace::LogReadResult& ReadAhead::result() const {
    return impl_->result();
}

}  // namespace memlab::report
