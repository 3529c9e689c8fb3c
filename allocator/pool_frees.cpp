// How a freed block becomes reusable: fences, captures, streams.
#include "allocator/pool_impl.hpp"

#include <algorithm>
#include <new>

namespace memlab::allocator {

/// The live block that begins at `address`; null with the reason when there is none.
[[gnu::hot]] Block* Pool::Impl::find_live(Address address, FreeResult::Kind* why_not) {
    Block* block = store_.find(address);
    if (block == nullptr) {
        *why_not = FreeResult::Kind::not_ours;
        return nullptr;
    }
    if (block->address != address || block->state != BlockState::live) {
        *why_not = FreeResult::Kind::invalid;
        return nullptr;
    }
    return block;
}

[[gnu::hot]] void Pool::Impl::count_free(const Block& block) {
    counters_.decrease(Counter::allocation, block.segment->small(), 1);
    counters_.decrease(Counter::allocated_bytes, block.segment->small(), block.size);
    if (policy_.oversize(block.size)) {
        decrease(stats_.oversize_allocations, 1);
    }
}

/// Frees the block; its fence is recorded later.
FreeResult Pool::Impl::defer(Block& block, Tag tag, BackendStatus status) {
    count_free(block);
    observer_.on_free_requested(describe(block), tag);
    block.state = BlockState::deferred;
    block.use.order = frees_deferred_++;
    deferred_.push_back(block);
    return {FreeResult::Kind::freed, status};
}

/// Behind the work of `stream`, or, when that is 0, behind all work.
[[gnu::hot]] FreeResult Pool::Impl::free(Address address, Tag tag, FenceTiming timing,
                                         StreamId stream) {
    const Lock lock(mutex_);
    FreeResult::Kind why_not{};
    Block* block = find_live(address, &why_not);
    if (block == nullptr) {
        return {why_not, {}};
    }
    if (timing == FenceTiming::deferred) {
        return defer(*block, tag, {});
    }
    const std::uint32_t list = stream != 0 ? stream_list(stream) : 0;
    Fence fence = 0;
    bool stream_only = list != 0;
    const BackendStatus status = stream_only
                                     ? backend_.fence_record_in(stream, &fence, &stream_only)
                                     : backend_.fence_record(&fence);
    if (!status.ok()) {
        return status.kind == BackendStatus::Kind::not_now
                   ? defer(*block, tag, status)
                   : FreeResult{FreeResult::Kind::refused, status};
    }
    count_free(*block);
    const FreeSync sync =
        timing == FenceTiming::now ? policy_.options().free_sync : FreeSync::never;
    if (fence == 0 || (stream == 0 && frees_immediately(sync) && backend_.ordered_behind(fence))) {
        if (fence != 0) {
            backend_.fence_release(fence);
        }
        observer_.on_freed(describe(*block), tag);
        free_block(*block);
        return {FreeResult::Kind::freed, {}};
    }
    observer_.on_free_requested(describe(*block), tag);
    enqueue_pending(*block, fence, stream_only ? list : 0);
    if (backend_.fence_needs_host_wait(fence)) {
        return {FreeResult::Kind::freed, wait_for(*block).status};
    }
    if (stream != 0) {
        return {FreeResult::Kind::freed, {}};
    }
    // While the device is busy a query costs more than recording the fence, so there is none where
    // nothing depends on it; the next allocation that needs the memory polls.
    const std::uint64_t epoch = epoch_;
    if (sync == FreeSync::never || (sync == FreeSync::automatic && host_may_continue(*block))) {
        if (epoch_ == epoch && backend_.ordered_behind(fence)) {
            retire_through(*block);
        }
        return {FreeResult::Kind::freed, {}};
    }
    if (sync == FreeSync::automatic && backend_.fence_query(fence) == FenceState::complete) {
        retire(*block, FenceState::complete);
        return {FreeResult::Kind::freed, {}};
    }
    // Pending, or failed: then the wait returns immediately, with the error.
    return {FreeResult::Kind::freed, wait_for(*block).status};
}

/// The number of a stream's list, from 1; 0 when no more lists are possible. An empty list is
/// reused for the next stream.
std::uint32_t Pool::Impl::stream_list(StreamId stream) {
    constexpr std::size_t max_streams = 256;
    std::size_t unused = streams_.size();
    for (std::size_t i = 0; i < streams_.size(); ++i) {
        if (streams_[i].stream == stream) {
            return static_cast<std::uint32_t>(i + 1);
        }
        if (streams_[i].blocks.empty()) {
            unused = i;
        }
    }
    if (unused == streams_.size()) {
        if (unused == max_streams) {
            return 0;
        }
        try {
            streams_.emplace_back();
        } catch (const std::bad_alloc&) {
            return 0;
        }
    }
    streams_[unused].stream = stream;
    return static_cast<std::uint32_t>(unused + 1);
}

/// The stream's work may still run: its blocks stay in an anonymous list until they are retired.
void Pool::Impl::forget_stream(StreamId stream) {
    const Lock lock(mutex_);
    for (StreamFrees& frees : streams_) {
        if (stream == 0 || frees.stream == stream) {
            frees.stream = 0;
        }
    }
}

/// Whether a block becomes free immediately when the device is ordered behind its fence. Not while
/// others are pending: those are retired first, in order.
bool Pool::Impl::frees_immediately(FreeSync sync) const {
    return pending_.empty() && (sync == FreeSync::never ||
                                (sync == FreeSync::automatic && backend_.caller_never_waits()));
}

/// Queries the backend about the caller, without the lock, since that may inspect stacks and
/// libraries. When the host may continue, the block stays pending like any other.
[[gnu::hot]] bool Pool::Impl::host_may_continue(Block& block) {
    const std::uint64_t epoch = begin_wait(block);
    const bool may_continue = !backend_.caller_needs_host_wait();
    if (!end_wait(block, epoch)) {
        return true;
    }
    notify_change();  // this thread may not retire the block: others must stop relying on it
    return may_continue;
}

[[gnu::hot]] void Pool::Impl::enqueue_pending(Block& block, Fence fence, std::uint32_t list) {
    block.state = BlockState::pending;
    block.list = list;
    block.use.fence = fence;
    block.use.order = fences_recorded_++;
    pending_list(block).push_back(block);
}

/// Applies the state of a pending block's fence: frees the block, or quarantines it if the fence
/// failed. The block may be coalesced away.
[[gnu::hot]] void Pool::Impl::retire(Block& block, FenceState state) {
    if (state == FenceState::pending) {
        return;
    }
    pending_list(block).remove(block);
    backend_.fence_release(block.use.fence);
    block.use.fence = 0;
    if (state == FenceState::complete) {
        complete(block);
    } else {
        block.state = BlockState::quarantined;
    }
}

[[gnu::hot]] void Pool::Impl::complete(Block& block) {
    observer_.on_free_completed(describe(block));
    free_block(block);
}

/// Makes a retired block reusable. It may be coalesced away.
[[gnu::hot]] void Pool::Impl::free_block(Block& block) {
    const Segment& segment = *block.segment;
    const bool small = segment.small();
    counters_.decrease(Counter::active, small, 1);
    counters_.decrease(Counter::active_bytes, small, block.size);
    counters_.decrease(Counter::requested_bytes, small, block.use.requested);
    store_.free_block(block);
    count_split(segment);
}

/// Retires completed frees of pending_, where a complete fence implies all earlier ones. Searches
/// backwards from the newest, since a "pending" result is the cheap one, in doubling steps that
/// begin at half the length of the last time, and stops at the first complete fence. The frees
/// between the last two probes are left for later. The distance is limited: if the device is far
/// behind, walking the list would cost more than it gains.
[[gnu::hot]] void Pool::Impl::retire_recent() {
    constexpr std::size_t max_distance = 32;
    Block* block = pending_.newest();
    std::size_t walked = 0;
    for (std::size_t back = last_pending_count_ / 2; back <= max_distance; back = 2 * back + 1) {
        for (; block != nullptr && walked < back; ++walked) {
            block = block->use.list_previous;
        }
        if (block == nullptr) {
            break;
        }
        const FenceState state = backend_.fence_query(block->use.fence);
        if (state == FenceState::complete) {
            retire_through(*block);
        }
        if (state != FenceState::pending) {  // failed: left to retire_completed()
            break;
        }
    }
    last_pending_count_ = pending_.size();
}

/// Retires all frees that have completed by now, without waiting.
void Pool::Impl::retire_completed() {
    Retiring at = begin_retiring();
    while (retire_some(at)) {
        let_others_in();
    }
}

Pool::Impl::Retiring Pool::Impl::begin_retiring() const {
    return {.end = fences_recorded_, .pending = fences_recorded_};
}

/// As much of it as one hold of the lock may do; false when nothing is left. Galloping search from
/// the oldest: the step between queries doubles while fences are complete, and is reset to one when
/// they are not.
bool Pool::Impl::retire_some(Retiring& at) {
    std::size_t retired = 0;
    unsigned calls = 0;
    while (at.list <= streams_.size()) {
        const BlockList& list = at.list == 0 ? pending_ : streams_[at.list - 1].blocks;
        Block* const first = oldest_unwaited(list);
        if (first == nullptr || first->use.order >= at.pending) {
            last_pending_count_ = at.list == 0 ? pending_.size() : last_pending_count_;
            at = {.list = at.list + 1, .end = at.end, .pending = at.end};
            continue;
        }
        if (retired >= retired_per_hold || calls == calls_per_hold) {
            return true;
        }
        Block* probe = first;
        for (std::size_t i = 1; i < at.step && probe->use.list_next != nullptr &&
                                probe->use.list_next->use.order < at.pending;
             ++i) {
            probe = probe->use.list_next;
        }
        const FenceState state = backend_.fence_query(probe->use.fence);
        ++calls;
        if (state == FenceState::complete) {
            retired += retire_through(*probe);
            at.step = std::min(2 * at.step, retired_per_hold);
        } else if (probe != first) {
            at.pending = state == FenceState::pending ? probe->use.order : at.pending;
            at.step = 1;
        } else if (state == FenceState::pending) {
            at.pending = first->use.order;
        } else {
            retire(*first, state);
        }
    }
    return false;
}

/// The oldest block of a list that no thread waits for; null when there is none.
Block* Pool::Impl::oldest_unwaited(const BlockList& list) {
    Block* block = list.oldest();
    while (block != nullptr && block->waited_for) {
        block = block->use.list_next;
    }
    return block;
}

/// Retires `last`, and the earlier blocks of its list and the later ones that share its fence, the
/// oldest first and as many as one hold may; the number of them. The fence must be complete, or the
/// device ordered behind it.
[[gnu::hot]] std::size_t Pool::Impl::retire_through(Block& last) {
    const std::uint64_t end = last.use.order;
    const Fence fence = last.use.fence;
    bool last_is_left = !last.waited_for;
    std::size_t retired = 0;
    for (Block* block = pending_list(last).oldest();
         block != nullptr && retired < retired_per_hold &&
         (block->use.order <= end || block->use.fence == fence);) {
        Block* next = block->use.list_next;
        if (!block->waited_for) {
            last_is_left = last_is_left && block->use.order != end;
            retire(*block, FenceState::complete);
            ++retired;
        }
        block = next;
    }
    if (last_is_left) [[unlikely]] {
        retire(last, FenceState::complete);
    }
    return retired;
}

/// Waits for a pending block without the lock, then retires it.
Pool::Impl::HostWait Pool::Impl::wait_for(Block& block) {
    const Fence fence = block.use.fence;
    const std::uint64_t epoch = begin_wait(block);
    HostWait wait{backend_.fence_wait_host(fence), true};
    if (!end_wait(block, epoch)) {
        return wait;
    }
    const FenceState state = wait.status.ok() ? FenceState::complete : backend_.fence_query(fence);
    wait.retired = state != FenceState::pending;
    retire(block, state);
    notify_change();
    return wait;
}

/// Waits on the host until all blocks that are in pending_ now are retired, as cudaFree would have
/// before it returned; false if that failed. The newest fence first: it completes last, so one wait
/// suffices. Not for stream-ordered frees: plain CUDA's allocations do not wait for those either.
bool Pool::Impl::wait_for_all_pending() {
    ++stats_.num_sync_all_streams;
    observer_.on_sync();
    const std::uint64_t end = fences_recorded_;
    for (;;) {
        bool others_wait = false;
        Block* block = pending_.newest();
        while (block != nullptr && (block->use.order >= end || block->waited_for)) {
            others_wait = others_wait || (block->use.order < end && block->waited_for);
            block = block->use.list_previous;
        }
        if (block != nullptr) {
            if (!wait_for(*block).retired) {
                return false;
            }
            retire_completed();
        } else if (others_wait) {
            wait_for_change();
        } else {
            retire_completed();
            return true;
        }
    }
}

/// The same for the blocks that are deferred now: plain CUDA has their memory back when cudaFree
/// returns, even during a capture.
void Pool::Impl::wait_for_all_deferred() {
    if (deferred_.oldest() == nullptr) {
        return;
    }
    const std::uint64_t end = frees_deferred_;
    const std::uint64_t epoch = epoch_;
    mutex_.unlock();
    const BackendStatus waited = backend_.wait_host();
    mutex_.lock();
    if (!waited.ok() || epoch_ != epoch) {
        return;
    }
    for (Block* block = deferred_.oldest(); block != nullptr && block->use.order < end;
         block = deferred_.oldest()) {
        deferred_.remove(*block);
        complete(*block);
    }
}

void Pool::Impl::fence_deferred() {
    const Lock lock(mutex_);
    const std::uint64_t end = frees_deferred_;
    unsigned calls = 0;
    for (Block* block = deferred_.oldest(); block != nullptr && block->use.order < end;
         block = deferred_.oldest()) {
        if (calls == calls_per_hold) {
            calls = 0;
            let_others_in();
            continue;
        }
        ++calls;
        Fence fence = 0;
        if (!backend_.fence_record(&fence).ok()) {
            return;
        }
        deferred_.remove(*block);
        if (fence == 0) {
            complete(*block);
        } else {
            enqueue_pending(*block, fence, 0);
        }
    }
    if (calls != 0) {
        let_others_in();
    }
    retire_completed();
}

bool Pool::Impl::retire(Address address) {
    const Lock lock(mutex_);
    Block* block = store_.find(address);
    if (block == nullptr || block->address != address || block->waited_for) {
        return false;
    }
    if (block->state == BlockState::pending) {
        retire(*block, FenceState::complete);
        return true;
    }
    if (block->state == BlockState::deferred) {
        deferred_.remove(*block);
        complete(*block);
        return true;
    }
    return false;
}

}  // namespace memlab::allocator
