#include "report/whatif/pool_model.hpp"

namespace memlab::whatif {

using allocator::Address;
using allocator::BackendStatus;
using allocator::BlockInfo;
using allocator::Fence;
using allocator::FenceState;
using allocator::Tag;

/// A device of which only the capacity matters. Segments do not touch, as little as the driver's do
/// for the pool.
class PoolModel::Device final : public allocator::DeviceBackend {
  public:
    Device(const Meter& meter, bool one_stream) : meter_(meter), one_stream_(one_stream) {}

    BackendStatus segment_alloc(std::uint64_t bytes, Address* address) override {
        if (!meter_.can_grow(bytes)) {
            return out_of_memory();
        }
        *address = next_;
        next_ += round_up(bytes, device_page) + device_page;
        return {};
    }
    BackendStatus segment_free(Address /*address*/, std::uint64_t /*bytes*/) override { return {}; }
    BackendStatus range_reserve(Address* base, std::uint64_t bytes) override {
        *base = next_;
        next_ += round_up(bytes, device_page) + device_page;
        return {};
    }
    BackendStatus range_release(Address /*base*/, std::uint64_t /*bytes*/) override { return {}; }
    BackendStatus pages_map(Address /*address*/, std::uint64_t bytes) override {
        return meter_.can_grow(bytes) ? BackendStatus{} : out_of_memory();
    }
    BackendStatus pages_unmap(Address /*address*/, std::uint64_t /*bytes*/) override { return {}; }
    std::uint64_t total_memory() const override { return meter_.capacity(); }
    BackendStatus fence_record(Fence* fence) override {
        *fence = ++last_fence_;
        return {};
    }
    // Complete is what the log says is complete, and PoolModel tells the pool of it.
    FenceState fence_query(Fence /*fence*/) override { return FenceState::pending; }
    BackendStatus fence_wait_device(Fence /*fence*/) override { return {}; }
    bool ordered_behind(Fence /*fence*/) override { return one_stream_; }
    BackendStatus fence_wait_host(Fence /*fence*/) override { return {}; }
    void fence_release(Fence /*fence*/) override {}

  private:
    static BackendStatus out_of_memory() {
        return {BackendStatus::Kind::out_of_memory, allocator::out_of_memory_code};
    }

    const Meter& meter_;
    const bool one_stream_;
    Address next_ = device_page;
    Fence last_fence_ = 0;
};

/// Keeps the meter, and where the free memory is.
class PoolModel::Books final : public allocator::PoolObserver {
  public:
    explicit Books(PoolModel& model) : model_(model) {}

    void on_alloc(const BlockInfo& block, Tag tag) override {
        allocation_of_.emplace(block.id, static_cast<std::uint32_t>(tag));
        model_.meter_.allocated(block.requested, block.size);
        free_.take_at(block.address, block.size);
    }
    void on_free_requested(const BlockInfo& block, Tag /*tag*/) override {
        model_.meter_.freed(block.requested, block.size);
    }
    void on_free_completed(const BlockInfo& block) override {
        const auto found = allocation_of_.find(block.id);
        model_.held_.erase(found->second);
        allocation_of_.erase(found);
        model_.meter_.completed(block.size);
        free_.add(block.address, block.size);
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
    void on_make_room(std::uint64_t /*requested*/, Tag /*tag*/) override {}
    void on_empty_cache() override {}
    void on_tick(std::uint64_t /*now_ns*/) override {}
    void on_sync() override {}

    std::uint64_t reserved() const { return reserved_; }
    const FreeRanges& free() const { return free_; }

  private:
    void grow(Address address, std::uint64_t bytes) {
        model_.meter_.grow(bytes, [this] { return model_.free_space(); });
        reserved_ += bytes;
        free_.add(address, bytes);
    }
    void shrink(Address address, std::uint64_t bytes) {
        model_.meter_.shrink(bytes);
        reserved_ -= bytes;
        free_.take_at(address, bytes);
    }

    PoolModel& model_;
    std::unordered_map<std::uint64_t, std::uint32_t> allocation_of_;  ///< by block id
    FreeRanges free_;
    std::uint64_t reserved_ = 0;
};

struct PoolModel::OfContext {
    OfContext(PoolModel& model, const allocator::PoolOptions& options, Device& device)
        : books(model), pool(options, device, &books) {}

    Books books;
    allocator::Pool pool;
};

PoolModel::PoolModel(std::uint64_t capacity, const allocator::PoolOptions& options, bool one_stream)
    : Model(capacity), options_(options), device_(std::make_unique<Device>(meter_, one_stream)) {}

PoolModel::~PoolModel() = default;

FreeSpace PoolModel::free_space() const {
    FreeSpace space;
    for (const auto& [id, context] : contexts_) {
        space.largest = std::max(space.largest, context->books.free().largest());
        space.total += context->books.free().total();
    }
    return space;
}

PoolModel::OfContext& PoolModel::of_context(std::uint32_t context) {
    std::unique_ptr<OfContext>& found = contexts_[context];
    if (!found) {
        found = std::make_unique<OfContext>(*this, options_, *device_);
    }
    return *found;
}

bool PoolModel::allocate(std::uint32_t id, const Allocation& allocation) {
    if (allocation.requested > largest_request) {
        return false;
    }
    OfContext& context = of_context(allocation.context);
    if (options_.trim_after_ns != 0) {
        for (const auto& [each_id, each] : contexts_) {
            each->pool.tick(allocation.time_ns);
        }
    }
    allocator::AllocResult result = context.pool.allocate(allocation.requested, id);
    if (!result.status.ok()) {
        // As a live process does: what the other contexts' pools do not use goes back, then again.
        bool released = false;
        for (const auto& [other, each] : contexts_) {
            released = (each.get() != &context && each->pool.release_cached(true) > 0) || released;
        }
        if (released) {
            result = context.pool.allocate(allocation.requested, id);
        }
    }
    if (!result.status.ok()) {
        return false;
    }
    held_.emplace(id, Held{&context, result.block.address});
    return true;
}

void PoolModel::free(std::uint32_t id) {
    const Held held = held_.at(id);
    held.context->pool.free(held.address, id, allocator::FenceTiming::now_host_goes_on);
}

/// Nothing to do when the pool had the memory before: it needed it and ordered the device's work
/// instead, or all work goes to one stream.
void PoolModel::complete(std::uint32_t id) {
    const auto found = held_.find(id);
    if (found != held_.end()) {
        const Held held = found->second;
        held.context->pool.settle(held.address);  // the books forget it
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
        meter_.shrink(found->second->books.reserved());
        contexts_.erase(found);
    }
}

}  // namespace memlab::whatif
