#include "report/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "report/text/signal_cleanup.hpp"

namespace memlab::report {

namespace {

constexpr std::size_t max_threads = 16;

thread_local bool works_beside_others = false;

/// The pieces of work that are left.
class Queue {
  public:
    Queue(std::size_t count, const std::function<void(std::size_t)>& work, bool all_busy)
        : count_(count), work_(work), all_busy_(all_busy) {}

    /// `first`: begins with this piece, which nobody else takes; none: with one that is left.
    void run(std::optional<std::size_t> first) noexcept {
        const bool outer = std::exchange(works_beside_others, all_busy_);
        for (std::size_t i = first ? *first : next_++; i < count_; i = next_++) {
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
        works_beside_others = outer;
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
    const bool all_busy_;
    std::atomic<std::size_t> next_{1};  ///< 0 is the caller's
    std::mutex mutex_;
    std::exception_ptr exception_;
};

}  // namespace

void for_each_in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
    const std::size_t processors = std::max(std::thread::hardware_concurrency(), 1U);
    const std::size_t wanted = std::min({processors, max_threads, count});
    Queue queue(count, work, wanted == processors && count >= 4 * processors);
    {
        std::vector<std::jthread> threads;
        threads.reserve(wanted);
        try {
            // Signals are handled by the thread that called.
            const SignalBlocker blocked(SignalBlocker::Which::all);
            while (threads.size() + 1 < wanted) {
                threads.emplace_back([&queue] { queue.run(std::nullopt); });
            }
        } catch (const std::system_error&) {  // with those that there are
        }
        queue.run(0);
    }
    queue.rethrow();
}

bool all_processors_busy() {
    return works_beside_others;
}

}  // namespace memlab::report
