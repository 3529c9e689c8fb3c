// A PoolObserver that converts a pool's notifications into events of the recording.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/pool.hpp"
#include "profiler/recorder.hpp"

namespace memlab::interpose {

/// The tag of a pool call: the recording's string id of the API function, and the call's stack id;
/// of a free Recorder::freeing_collector().
constexpr allocator::Tag make_tag(std::uint32_t api_id, std::uint32_t stack_or_collector) {
    return static_cast<allocator::Tag>(api_id) << 32 | stack_or_collector;
}

class PoolRecorder final : public allocator::PoolObserver {
  public:
    /// `recorder` may be null.
    PoolRecorder(profiler::Recorder* recorder, std::uint32_t device, std::uint32_t context)
        : recorder_(recorder), device_(device), context_(context) {}

    void on_alloc(const allocator::BlockInfo& block, allocator::Tag tag) override;
    void on_free_requested(const allocator::BlockInfo& block, allocator::Tag tag) override;
    void on_free_completed(const allocator::BlockInfo& block) override;
    void on_freed(const allocator::BlockInfo& block, allocator::Tag tag) override;
    void on_segment_alloc(allocator::Address segment, std::uint64_t size,
                          allocator::Tag tag) override;
    void on_segment_free(allocator::Address segment, std::uint64_t size) override;
    void on_segment_map(allocator::Address address, std::uint64_t bytes,
                        allocator::Tag tag) override;
    void on_segment_unmap(allocator::Address address, std::uint64_t bytes) override;
    void on_alloc_retry(std::uint64_t requested, allocator::Tag tag) override;
    void on_reclaim(std::uint64_t requested, allocator::Tag tag) override;
    void on_empty_cache() override;
    void on_tick(std::uint64_t now_ns) override;
    void on_sync() override;

  private:
    trace::Event make_event(trace::EventType type, allocator::Address address,
                            std::uint64_t requested, std::uint64_t size, allocator::Tag tag) const;
    void record(trace::EventType type, allocator::Address address, std::uint64_t requested,
                std::uint64_t size, allocator::Tag tag);

    profiler::Recorder* const recorder_;
    const std::uint32_t device_;
    const std::uint32_t context_;
};

}  // namespace memlab::interpose
