// Makes the checkpoints that the event log wants once it has reached its limit, on a thread of its
// own. No thread of the program waits for it: the aggregate is frozen, not locked, while its state
// is encoded, and each block of it is appended under the recorder's lock for as long as copying it
// takes. Memory: the encoded state, and what is recorded in the meantime, up to 16 MiB.
#pragma once

#include <pthread.h>

#include <memory>

#include "profiler/batched_aggregator.hpp"
#include "threads/mutex.hpp"
#include "trace/log_writer.hpp"

namespace memlab::profiler {

class Checkpointer {
  public:
    /// All arguments belong to the recorder and must outlive this; `mutex` guards the others.
    Checkpointer(threads::Mutex& mutex, const bool& finished, trace::LogWriter* log,
                 BatchedAggregator& aggregator);
    /// Waits for the thread, which stops after the block at hand.
    ~Checkpointer();
    Checkpointer(const Checkpointer&) = delete;
    Checkpointer& operator=(const Checkpointer&) = delete;

  private:
    static void wanted(void* self) MEMLAB_UNCHECKED_LOCKS;
    static void* run(void* self);
    void loop();
    void make_checkpoint() MEMLAB_REQUIRES(mutex_);
    void append(const trace::CheckpointBlocks& checkpoint) MEMLAB_REQUIRES(mutex_);
    bool is_over() const MEMLAB_REQUIRES(mutex_) { return stop_ || finished_; }

    threads::Mutex& mutex_;
    const bool& finished_ MEMLAB_GUARDED_BY(mutex_);
    trace::LogWriter* const log_ MEMLAB_PT_GUARDED_BY(mutex_);
    BatchedAggregator& aggregator_;
    threads::ConditionVariable changed_;
    bool started_ MEMLAB_GUARDED_BY(mutex_) = false;
    bool stop_ MEMLAB_GUARDED_BY(mutex_) = false;
    pthread_t thread_{};
};

}  // namespace memlab::profiler
