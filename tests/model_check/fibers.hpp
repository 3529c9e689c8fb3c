// Fibers (cooperative threads): simulate several threads on one, with switches where the test
// decides. So a checker controls every interleaving, and runs are deterministic.
//
// A fiber is a stack that runs one job at a time. A job may park() at any call depth, while it
// holds no lock that others need; then its caller continues, and may resume it later. Sanitizers
// are notified of every switch.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace memlab::model_check {

/// Thread-safety: none; belongs to one thread.
class Fibers {
  public:
    Fibers();
    ~Fibers();
    Fibers(const Fibers&) = delete;
    Fibers& operator=(const Fibers&) = delete;

    /// Runs `job` until it ends or parks. Returns the fiber it is parked on, or `ended`.
    std::size_t run(std::function<void()> job);

    /// Resumes a parked job until it ends or parks again; true when it parked.
    bool resume(std::size_t fiber);

    /// In a job: suspends it until resumed.
    void park();

    /// True in a job.
    bool inside() const { return running_ != nullptr; }

    static constexpr std::size_t ended = static_cast<std::size_t>(-1);

  private:
    struct Fiber;
    static void body(unsigned high, unsigned low);
    void enter(Fiber& fiber);
    void leave(Fiber& fiber);

    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::vector<std::size_t> idle_;
    std::unique_ptr<Fiber> home_;  ///< the thread's own stack
    Fiber* running_ = nullptr;
};

}  // namespace memlab::model_check
