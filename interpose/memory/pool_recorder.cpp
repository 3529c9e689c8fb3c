#include "interpose/memory/pool_recorder.hpp"

#include "profiler/cupti/current_call.hpp"

namespace memlab::interpose {

using allocator::Address;
using allocator::BlockInfo;
using allocator::Tag;
using trace::EventType;

[[gnu::hot]] trace::Event PoolRecorder::make_event(EventType type, Address address,
                                                   std::uint64_t requested, std::uint64_t size,
                                                   Tag tag) const {
    trace::Event event;
    event.type = type;
    event.kind = trace::MemoryKind::device;
    event.origin = trace::Origin::pool;
    event.device = device_;
    event.context = context_;
    event.api = static_cast<std::uint32_t>(tag >> 32);
    (type == EventType::free_requested ? event.name : event.stack) =
        static_cast<std::uint32_t>(tag);
    event.address = address;
    event.requested = requested;
    event.size = size;
    if (type == EventType::alloc || type == EventType::free_requested) {
        event.correlation = profiler::cupti::current_call().correlation;
    }
    return event;
}

[[gnu::hot]] void PoolRecorder::record(EventType type, Address address, std::uint64_t requested,
                                       std::uint64_t size, Tag tag) {
    if (recorder_ != nullptr) {
        recorder_->record(make_event(type, address, requested, size, tag));
    }
}

[[gnu::hot]] void PoolRecorder::on_alloc(const BlockInfo& block, Tag tag) {
    record(EventType::alloc, block.address, block.requested, block.size, tag);
}

[[gnu::hot]] void PoolRecorder::on_free_requested(const BlockInfo& block, Tag tag) {
    record(EventType::free_requested, block.address, block.requested, block.size, tag);
}

[[gnu::hot]] void PoolRecorder::on_free_completed(const BlockInfo& block) {
    record(EventType::free_completed, block.address, block.requested, block.size, 0);
}

[[gnu::hot]] void PoolRecorder::on_freed(const BlockInfo& block, Tag tag) {
    if (recorder_ != nullptr) {
        recorder_->record_freed(
            make_event(EventType::free_requested, block.address, block.requested, block.size, tag));
    }
}

void PoolRecorder::on_segment_alloc(Address segment, std::uint64_t size, Tag tag) {
    record(EventType::segment_alloc, segment, 0, size, tag);
}

void PoolRecorder::on_segment_free(Address segment, std::uint64_t size) {
    record(EventType::segment_free, segment, 0, size, 0);
}

void PoolRecorder::on_segment_map(Address address, std::uint64_t bytes, Tag tag) {
    record(EventType::segment_map, address, 0, bytes, tag);
}

void PoolRecorder::on_segment_unmap(Address address, std::uint64_t bytes) {
    record(EventType::segment_unmap, address, 0, bytes, 0);
}

void PoolRecorder::on_alloc_retry(std::uint64_t requested, Tag tag) {
    record(EventType::alloc_retry, 0, requested, 0, tag);
}

void PoolRecorder::on_reclaim(std::uint64_t requested, Tag tag) {
    record(EventType::reclaim, 0, requested, 0, tag);
}

void PoolRecorder::on_empty_cache() {
    record(EventType::empty_cache, 0, 0, 0, 0);
}

void PoolRecorder::on_tick(std::uint64_t now_ns) {
    record(EventType::tick, 0, now_ns, 0, 0);
}

void PoolRecorder::on_sync() {
    record(EventType::sync, 0, 0, 0, 0);
}

}  // namespace memlab::interpose
