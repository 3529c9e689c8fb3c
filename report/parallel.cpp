#include "report/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "report/text/signal_cleanup.hpp"

namespace memlab::report {

namespace {

constexpr std::size_t max_threads = 16;

/// The pieces of work that are left.
class Queue {
  public:
    Queue(std::size_t count, const std::function<void(std::size_t)>& work)
        : count_(count), work_(work) {}

    void run() noexcept {
        for (std::size_t i = next_++; i < count_; i = next_++) {
            try {
                work_(i);
            } catch (...) {
                const std::lock_guard lock(mutex_);
                if (!exception_) {
                    exception_ = std::current_exception();
                }
                next_ = count_;
            }
        }
    }

    /// Once no thread runs.
    void rethrow() const {
        if (exception_) {
            std::rethrow_exception(exception_);
        }
    }

  private:
    const std::size_t count_;
    const std::function<void(std::size_t)>& work_;
    std::atomic<std::size_t> next_{0};
    std::mutex mutex_;
    std::exception_ptr exception_;
};

}  // namespace

void for_each_in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
    Queue queue(count, work);
    {
        std::vector<std::jthread> threads;
        const std::size_t wanted = std::min(
            {std::size_t{std::max(std::thread::hardware_concurrency(), 1U)}, max_threads, count});
        threads.reserve(wanted);
        try {
            // Signals are handled by the thread that called.
            const SignalBlocker blocked(SignalBlocker::Which::all);
            while (threads.size() + 1 < wanted) {
                threads.emplace_back([&queue] { queue.run(); });
            }
        } catch (const std::system_error&) {  // with those that there are
        }
        queue.run();
    }
    queue.rethrow();
}

}  // namespace memlab::report
