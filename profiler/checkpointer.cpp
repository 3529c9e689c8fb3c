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

}  // namespace

Checkpointer::Checkpointer(std::mutex& mutex, const bool& finished, trace::LogWriter* log,
                           BatchedAggregator& aggregator)
    : mutex_(mutex), finished_(finished), log_(log), aggregator_(aggregator) {
    if (log_ != nullptr) {
        log_->on_checkpoint_wanted(&Checkpointer::wanted, this);
    }
}

Checkpointer::~Checkpointer() {
    {
        const std::lock_guard lock(mutex_);
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

/// Under mutex_. The thread is created when the first checkpoint is wanted: most recordings never
/// want one. Where none can be created the log stops at its limit.
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
    Lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return is_over() || log_->wants_checkpoint(); });
        if (is_over()) {
            return;
        }
        make_checkpoint(lock);
    }
}

void Checkpointer::make_checkpoint(Lock& lock) {
    try {
        const std::unique_ptr<trace::CheckpointBlocks> checkpoint = log_->begin_checkpoint();
        {
            const BatchedAggregator::Frozen frozen(aggregator_);
            lock.unlock();
            frozen.aggregate().checkpoint(*checkpoint);
        }
        checkpoint->finish();
        lock.lock();
        append(*checkpoint, lock);
    } catch (const std::bad_alloc&) {
        if (!lock.owns_lock()) {
            lock.lock();
        }
        // The log asks again when it begins the next region.
    }
}

void Checkpointer::append(const trace::CheckpointBlocks& checkpoint, Lock& lock) {
    constexpr long between_blocks_ns = 50'000;
    constexpr long catching_up_ns = 2'000'000;
    for (std::size_t next = 0; !is_over();) {
        const auto step = log_->append_checkpoint(checkpoint, next);
        if (step == trace::LogWriter::CheckpointStep::complete) {
            return;
        }
        const bool more = step == trace::LogWriter::CheckpointStep::more;
        next += more ? 1 : 0;
        lock.unlock();
        sleep_for(more ? between_blocks_ns : catching_up_ns);
        lock.lock();
    }
}

}  // namespace memlab::profiler
