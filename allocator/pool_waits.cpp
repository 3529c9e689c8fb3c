// Waiting without the lock, as pool_impl.hpp has it: for a block's fence, for what another thread
// is at, and to let others have their turn. What a thread waits for, or is at, is known to itself:
// forget_left_wait() ends it when the thread jumped out.
#include <pthread.h>

#include "allocator/pool_impl.hpp"

namespace memlab::allocator {

namespace {

/// The block for which the calling thread waits without the lock of `pool`; null: none.
struct WaitHere {
    const void* pool;
    Block* block;
    std::uint64_t epoch;
};
__attribute__((tls_model("initial-exec"))) constinit thread_local WaitHere waiting_here{};

/// What the calling thread is at that others of `pool` may wait for: growing it, and giving pages
/// back meanwhile. Null: nothing.
struct BusyHere {
    const void* pool;
    bool* busy;  ///< Impl's, false once it is done
};
__attribute__((tls_model("initial-exec"))) constinit thread_local BusyHere busy_here[2]{};

}  // namespace

/// Drops the lock for a wait for the block; returns the epoch for end_wait(), which takes it again
/// and is false where abandon() was called meanwhile.
[[gnu::hot]] std::uint64_t Pool::Impl::begin_wait(Block& block) {
    const std::uint64_t epoch = epoch_;
    block.waited_for = true;
    waiting_here = {this, &block, epoch};
    mutex_.unlock();
    return epoch;
}

[[gnu::hot]] bool Pool::Impl::end_wait(Block& block, std::uint64_t epoch) {
    mutex_.lock();
    waiting_here.pool = nullptr;
    if (epoch_ != epoch) {
        return false;
    }
    block.waited_for = false;
    return true;
}

/// Waits, without the lock, until some thread has come to an end of what others wait for.
void Pool::Impl::wait_for_change() {
    changed_mutex_.lock();  // before the other is unlocked: no change is missed
    ++waiting_for_change_;
    mutex_.unlock();
    int cancellable = 0;  // a cancelled thread may not end here: it may have the turn to grow
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellable);
    changed_.wait(changed_mutex_);
    pthread_setcancelstate(cancellable, nullptr);
    changed_mutex_.unlock();
    mutex_.lock();
    --waiting_for_change_;
}

[[gnu::hot]] void Pool::Impl::notify_change() {
    if (waiting_for_change_ != 0) [[unlikely]] {
        const threads::LockGuard asleep(changed_mutex_);
        changed_.notify_all();
    }
}

void Pool::Impl::begin_busy(bool& busy) {
    busy = true;
    busy_here[busy_here[0].pool != nullptr ? 1 : 0] = {this, &busy};
}

void Pool::Impl::end_busy(bool& busy) {
    busy = false;
    busy_here[busy_here[1].pool != nullptr ? 1 : 0] = {};
    notify_change();
}

void Pool::Impl::forget_left_wait() {
    for (const unsigned inner : {1U, 0U}) {
        if (busy_here[inner].pool == this) {
            const Lock lock(mutex_);
            end_busy(*busy_here[inner].busy);
        }
    }
    if (waiting_here.pool != this) {
        return;
    }
    const Lock lock(mutex_);
    if (epoch_ == waiting_here.epoch) {
        waiting_here.block->waited_for = false;
        notify_change();
    }
    waiting_here.pool = nullptr;
}

/// Between two holds of a thread that goes on at once.
void Pool::Impl::let_others_in() {
    mutex_.unlock();
    for (unsigned i = 0; i < AdaptiveMutex::longest_pause; ++i) {
        __builtin_ia32_pause();
    }
    mutex_.lock();
}

}  // namespace memlab::allocator
