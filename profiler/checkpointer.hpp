// Makes the checkpoints that the event log wants once it has reached its limit, on a thread of its
// own. No thread of the program waits for it: the aggregate is frozen, not locked, while its state
// is encoded, and each block of it is appended under the recorder's lock for as long as copying it
// takes. Memory: the encoded state, and what is recorded in the meantime, up to 16 MiB.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "profiler/batched_aggregator.hpp"
#include "trace/log_writer.hpp"

namespace memlab::profiler {

class Checkpointer {
  public:
    /// All arguments belong to the recorder and must outlive this; `mutex` guards the others.
    Checkpointer(std::mutex& mutex, const bool& finished, trace::LogWriter* log,
                 BatchedAggregator& aggregator);
    /// Waits for the thread, which stops after the block at hand.
    ~Checkpointer();
    Checkpointer(const Checkpointer&) = delete;
    Checkpointer& operator=(const Checkpointer&) = delete;

  private:
    using Lock = std::unique_lock<std::mutex>;

    static void wanted(void* self);
    static void* run(void* self);
    void loop();
    void make_checkpoint(Lock& lock);
    void append(const trace::CheckpointBlocks& checkpoint, Lock& lock);
    bool is_over() const { return stop_ || finished_; }

    std::mutex& mutex_;
    const bool& finished_;
    trace::LogWriter* const log_;
    BatchedAggregator& aggregator_;
    std::condition_variable changed_;
    bool started_ = false;
    bool stop_ = false;
    pthread_t thread_{};
};

}  // namespace memlab::profiler
