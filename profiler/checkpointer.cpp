#include "profiler/checkpointer.hpp"

#include <ctime>
#include <new>

#include "threads/own_thread.hpp"

namespace memlab::profiler {
namespace {

void sleep_for(long nanoseconds) {
    const timespec time{.tv_sec = 0, .tv_nsec = nanoseconds};
    nanosleep(&time, nullptr);
}

/// False without host memory.
bool encode(const trace::Aggregator& aggregate, trace::CheckpointBlocks& checkpoint) {
    try {
        aggregate.checkpoint(checkpoint);
        checkpoint.finish();
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

}  // namespace

Checkpointer::Checkpointer(threads::Mutex& mutex, const bool& finished, trace::LogWriter* log,
                           BatchedAggregator& aggregator)
    : mutex_(mutex), finished_(finished), log_(log), aggregator_(aggregator) {
    if (log_ != nullptr) {
        log_->on_checkpoint_wanted(&Checkpointer::wanted, this);
    }
}

Checkpointer::~Checkpointer() {
    {
        const threads::LockGuard lock(mutex_);
        stop_ = true;
        if (log_ != nullptr) {
            log_->on_checkpoint_wanted(nullptr, nullptr);
        }
        changed_.notify_one();
    }
    if (started_) {
        pthread_join(thread_, nullptr);
    }
}

/// The log calls it under mutex_. The thread is created when the first checkpoint is wanted: most
/// recordings never want one. Where none can be created the log stops at its limit.
void Checkpointer::wanted(void* self) {
    auto& of = *static_cast<Checkpointer*>(self);
    if (of.started_) {
        of.changed_.notify_one();
        return;
    }
    of.started_ = threads::start_own_thread(&Checkpointer::run, self, &of.thread_);
}

void* Checkpointer::run(void* self) {
    static_cast<Checkpointer*>(self)->loop();
    return nullptr;
}

void Checkpointer::loop() {
    const threads::LockGuard lock(mutex_);
    for (;;) {
        while (!is_over() && !log_->wants_checkpoint()) {
            changed_.wait(mutex_);
        }
        if (is_over()) {
            return;
        }
        make_checkpoint();
    }
}

/// Without host memory the log asks again when it begins the next region.
void Checkpointer::make_checkpoint() {
    try {
        const std::unique_ptr<trace::CheckpointBlocks> checkpoint = log_->begin_checkpoint();
        bool encoded = false;
        {
            const BatchedAggregator::Frozen frozen(aggregator_);
            mutex_.unlock();
            encoded = encode(frozen.aggregate(), *checkpoint);
        }
        mutex_.lock();
        if (encoded) {
            append(*checkpoint);
        }
    } catch (const std::bad_alloc&) {
    }
}

void Checkpointer::append(const trace::CheckpointBlocks& checkpoint) {
    constexpr long between_blocks_ns = 50'000;
    constexpr long catching_up_ns = 2'000'000;
    for (std::size_t next = 0; !is_over();) {
        const auto step = log_->append_checkpoint(checkpoint, next);
        if (step == trace::LogWriter::CheckpointStep::complete) {
            return;
        }
        const bool more = step == trace::LogWriter::CheckpointStep::more;
        next += more ? 1 : 0;
        mutex_.unlock();
        sleep_for(more ? between_blocks_ns : catching_up_ns);
        mutex_.lock();
    }
}

}  // namespace memlab::profiler
