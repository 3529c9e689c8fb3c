#include "report/whatif/pool_model.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace memlab::report::whatif {

using allocator::Address;
using allocator::BackendStatus;
using allocator::BlockInfo;
using allocator::Fence;
using allocator::FenceState;
using allocator::Tag;

/// A simulated device: only its capacity matters. Segments are never adjacent, as with the driver.
class PoolModel::Device final : public allocator::DeviceBackend {
  public:
    Device(const Meter& meter, bool one_stream, std::vector<RecordedSegment> segments)
        : meter_(meter), one_stream_(one_stream), recorded_(std::move(segments)) {}

    BackendStatus segment_alloc(std::uint64_t bytes, Address* address) override {
        if (!meter_.can_grow(bytes)) {
            return out_of_memory();
        }
        *address = take_address(bytes);
        return {};
    }
    BackendStatus segment_free(Address address, std::uint64_t /*bytes*/) override {
        taken_.erase(address);
        return {};
    }
    BackendStatus range_reserve(Address* base, std::uint64_t bytes) override {
        // The log has no event for it: a range begins at the page that is mapped first.
        if (at_ < recorded_.size() && take(recorded_[at_].address, bytes)) {
            *base = recorded_[at_].address;
        } else {
            *base = take_new(bytes);
        }
        return {};
    }
    BackendStatus range_release(Address base, std::uint64_t /*bytes*/) override {
        taken_.erase(base);
        return {};
    }
    BackendStatus pages_map(Address address, std::uint64_t bytes,
                            std::uint64_t /*chunk*/) override {
        if (at_ < recorded_.size()) {
            const bool same = recorded_[at_].address == address && recorded_[at_].bytes == bytes;
            at_ = same ? at_ + 1 : recorded_.size();
        }
        return meter_.can_grow(bytes) ? BackendStatus{} : out_of_memory();
    }
    BackendStatus pages_unmap(Address /*address*/, std::uint64_t /*bytes*/) override { return {}; }
    std::uint64_t total_memory() const override { return meter_.capacity(); }
    BackendStatus fence_record(Fence* fence) override {
        *fence = ++last_fence_;
        return {};
    }
    // Completions come from the log: see PoolModel::complete().
    FenceState fence_query(Fence /*fence*/) override { return FenceState::pending; }
    BackendStatus fence_wait_device(Fence /*fence*/) override { return {}; }
    bool ordered_behind(Fence /*fence*/) override { return one_stream_; }
    BackendStatus fence_wait_host(Fence /*fence*/) override { return {}; }
    void fence_release(Fence /*fence*/) override {}

  private:
    static BackendStatus out_of_memory() {
        return {BackendStatus::Kind::out_of_memory, allocator::out_of_memory_code};
    }

    /// The recorded address while the pool asks for what it asked for in the recording.
    Address take_address(std::uint64_t bytes) {
        if (at_ < recorded_.size() && recorded_[at_].bytes == bytes &&
            take(recorded_[at_].address, bytes)) {
            return recorded_[at_++].address;
        }
        return take_new(bytes);
    }
    /// Above all others; from now on no recorded address is used.
    Address take_new(std::uint64_t bytes) {
        at_ = recorded_.size();
        const Address address = next_;
        next_ += round_up(bytes, device_page) + device_page;
        return address;
    }
    /// False if the range is none that a driver could have given: the log may be hostile.
    bool take(Address address, std::uint64_t bytes) {
        const Address end = address + bytes;
        constexpr Address max_address = Address{1} << 57;
        const auto after = taken_.lower_bound(address);
        if (address == 0 || address % device_page != 0 || end <= address || end > max_address ||
            (after != taken_.end() && after->first < end) ||
            (after != taken_.begin() && std::prev(after)->second > address)) {
            return false;
        }
        taken_.emplace(address, end);
        next_ = std::max(next_, round_up(end, device_page) + device_page);
        return true;
    }

    const Meter& meter_;
    const bool one_stream_;
    const std::vector<RecordedSegment> recorded_;
    std::size_t at_ = 0;                ///< in recorded_
    std::map<Address, Address> taken_;  ///< recorded addresses in use, and their ends
    Address next_ = device_page;
    Fence last_fence_ = 0;
};

/// Updates the meter and the set of blocks in use.
class PoolModel::MeterObserver final : public allocator::PoolObserver {
  public:
    MeterObserver(PoolModel& model, std::uint32_t context) : model_(model), context_(context) {}

    void on_alloc(const BlockInfo& block, Tag tag) override {
        model_.meter_.allocated(block.requested, block.size);
        model_.add_block(static_cast<std::uint32_t>(tag), context_, block);
    }
    void on_free_requested(const BlockInfo& block, Tag /*tag*/) override {
        model_.meter_.freed(block.requested, block.size);
    }
    void on_free_completed(const BlockInfo& block) override {
        model_.meter_.completed(block.size);
        model_.remove_block(block.address);
    }
    void on_segment_alloc(Address segment, std::uint64_t size, Tag /*tag*/) override {
        grow(segment, size);
        model_.meter_.count_alloc(size);
    }
    void on_segment_free(Address segment, std::uint64_t size) override {
        shrink(segment, size);
        model_.meter_.count_free(size);
    }
    void on_segment_map(Address address, std::uint64_t bytes, Tag /*tag*/) override {
        grow(address, bytes);
        model_.meter_.count_map(bytes, 1);
    }
    void on_segment_unmap(Address address, std::uint64_t bytes) override {
        shrink(address, bytes);
        model_.meter_.count_unmap(bytes, 1);
    }
    void on_alloc_retry(std::uint64_t /*requested*/, Tag /*tag*/) override {}
    void on_reclaim(std::uint64_t /*requested*/, Tag /*tag*/) override {}
    void on_empty_cache() override {}
    void on_tick(std::uint64_t /*now_ns*/) override {}
    void on_sync() override {}

    std::uint64_t reserved() const { return reserved_; }

  private:
    void grow(Address address, std::uint64_t bytes) {
        model_.meter_.grow(bytes, [this] {
            model_.space_.snapshot();
            return FreeSpace{};  // see at_growth()
        });
        reserved_ += bytes;
        model_.space_.reserve(context_, address, bytes);
    }
    void shrink(Address address, std::uint64_t bytes) {
        model_.meter_.shrink(bytes);
        reserved_ -= bytes;
        model_.space_.release(context_, address, bytes);
    }

    PoolModel& model_;
    const std::uint32_t context_;
    std::uint64_t reserved_ = 0;
};

struct PoolModel::ContextPool {
    ContextPool(PoolModel& model, std::uint32_t context)
        : observer(model, context),
          pool(allocator::options_of_context(model.options_, !model.has_context_), *model.device_,
               &observer) {}

    MeterObserver observer;
    allocator::Pool pool;
};

PoolModel::PoolModel(std::uint64_t capacity, const allocator::PoolOptions& options, bool one_stream,
                     std::vector<RecordedSegment> segments)
    : Model(capacity),
      options_(options),
      device_(std::make_unique<Device>(meter_, one_stream, std::move(segments))) {}

PoolModel::~PoolModel() = default;

FreeSpace PoolModel::at_growth() const {
    return space_.free_space();
}

void PoolModel::add_block(std::uint32_t id, std::uint32_t context, const BlockInfo& block) {
    const FreeSpaceAtPeak::Slot slot = space_.allocate(block.address, block.size);
    by_address_.insert(trace::HashIndex::mix(block.address), slot);
    if (slot >= owners_.size()) {
        owners_.resize(slot + std::size_t{1});
    }
    owners_[slot] = {id, context};
    if (id >= slots_.size()) {
        slots_.resize(id + std::size_t{1}, none);
    }
    slots_[id] = slot;
}

void PoolModel::remove_block(Address address) {
    const std::uint64_t hash = trace::HashIndex::mix(address);
    const FreeSpaceAtPeak::Slot slot = by_address_.find(
        hash, [&](FreeSpaceAtPeak::Slot each) { return space_.address(each) == address; });
    by_address_.erase(hash, slot);
    slots_[owners_[slot].allocation] = none;
    space_.free(slot);
}

PoolModel::ContextPool& PoolModel::context_pool(std::uint32_t context) {
    std::unique_ptr<ContextPool>& found = contexts_[context];
    if (!found) {
        found = std::make_unique<ContextPool>(*this, context);
        has_context_ = true;
    }
    return *found;
}

bool PoolModel::allocate(std::uint32_t id, const Allocation& allocation) {
    if (allocation.requested > max_request) {
        return false;
    }
    ContextPool& context = context_pool(allocation.context);
    if (options_.trim_after_ns != 0) {
        for (const auto& [each_id, each] : contexts_) {
            each->pool.tick(allocation.time_ns);
        }
    }
    allocator::AllocResult result = context.pool.allocate(allocation.requested, id);
    if (!result.status.ok()) {
        // As in a live process: release the unused memory of other contexts' pools and retry.
        bool released = false;
        for (const auto& [other, each] : contexts_) {
            released = (each.get() != &context && each->pool.release_cached(true) > 0) || released;
        }
        if (released) {
            result = context.pool.allocate(allocation.requested, id);
        }
    }
    return result.status.ok();
}

void PoolModel::free(std::uint32_t id) {
    const FreeSpaceAtPeak::Slot slot = slots_[id];
    context_pool(owners_[slot].context)
        .pool.free(space_.address(slot), id, allocator::FenceTiming::now_without_wait);
}

/// No-op when the pool has already reused the memory: behind a device-side wait, or since all work
/// is on one stream.
void PoolModel::complete(std::uint32_t id) {
    const FreeSpaceAtPeak::Slot slot = slots_[id];
    if (slot != none) {
        context_pool(owners_[slot].context)
            .pool.retire(space_.address(slot));  // calls remove_block()
    }
}

void PoolModel::empty_cache() {
    for (const auto& [id, context] : contexts_) {
        context->pool.release_cached(false);
    }
}

void PoolModel::context_lost(std::uint32_t context) {
    const auto found = contexts_.find(context);
    if (found != contexts_.end()) {
        meter_.shrink(found->second->observer.reserved());
        space_.release_all(context);
        contexts_.erase(found);
    }
}

}  // namespace memlab::report::whatif
