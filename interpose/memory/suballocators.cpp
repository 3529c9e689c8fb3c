#include "interpose/memory/suballocators.hpp"

#include <iterator>

namespace memlab::interpose {

using trace::Event;
using trace::EventType;

bool Suballocators::is_described_now(profiler::Recorder& recorder, int gpu,
                                     FunctionRef<bool(trace::DeviceInfo&)> describe) {
    const std::lock_guard lock(mutex_);
    if (!of(gpu).described.load(std::memory_order_relaxed)) {
        trace::DeviceInfo info;
        if (!describe(info)) {
            return false;
        }
        info.index = device_index(gpu);
        info.allocator = pytorch;
        info.gpu = static_cast<std::uint32_t>(gpu);
        recorder.record(info);
        of(gpu).described.store(true, std::memory_order_release);
    }
    return true;
}

void Suballocators::allocated(profiler::Recorder& recorder, int gpu, const Event& alloc,
                              std::uint64_t reserved,
                              FunctionRef<SegmentRange(std::uint64_t)> find) {
    const std::lock_guard lock(mutex_);
    Gpu& known = of(gpu);
    if (reserved != known.expected.load(std::memory_order_relaxed)) {
        find_segments(recorder, gpu, alloc, find);
        known.unexplained = reserved - known.reserved;
        set_reserved(known, known.reserved);
        if (known.unexplained != 0 && !said_unexplained_) {
            said_unexplained_ = true;
            const bool less = known.unexplained >> 63 != 0;
            recorder.report_missed(
                "PyTorch's cache reserves other memory than memlab saw it take: its reserved bytes "
                "and its segments are not exact",
                less ? 0 - known.unexplained : known.unexplained);
        }
    }
    recorder.record(alloc);
}

void Suballocators::set_reserved(Gpu& gpu, std::uint64_t reserved) {
    gpu.reserved = reserved;
    gpu.expected.store(reserved + gpu.unexplained, std::memory_order_relaxed);
}

void Suballocators::belongs_to(Gpu& gpu, std::uint32_t context) {
    const std::uint32_t others = gpu.context.load(std::memory_order_relaxed);
    gpu.several_contexts = gpu.several_contexts || (others != 0 && others != context);
    gpu.context.store(gpu.several_contexts ? 0 : context, std::memory_order_relaxed);
}

/// Makes segments of all that holds the new block.
void Suballocators::find_segments(profiler::Recorder& recorder, int gpu, const Event& alloc,
                                  FunctionRef<SegmentRange(std::uint64_t)> find) {
    const std::uint64_t end = alloc.address + alloc.size;
    for (std::uint64_t at = alloc.address; at < end;) {
        const SegmentRange range = find(at);
        if (range.bytes == 0 || range.begin + range.bytes <= at) {
            return;
        }
        const auto known = segments_.find(range.begin);
        if (known == segments_.end() || known->second.bytes != range.bytes ||
            known->second.gpu != gpu) {
            remove_in(recorder, range.begin, range.bytes);
            segments_.emplace(range.begin, Segment{range.bytes, alloc.context, gpu, range.mapped});
            any_.store(true, std::memory_order_relaxed);
            set_reserved(of(gpu), of(gpu).reserved + range.bytes);
            belongs_to(of(gpu), alloc.context);
            Event made =
                make_event(range.mapped ? EventType::segment_map : EventType::segment_alloc, gpu,
                           alloc.context, range.begin, range.bytes);
            made.requested = 0;
            made.api = alloc.api;
            made.stack = alloc.stack;
            recorder.record(made);
        }
        at = range.begin + range.bytes;
    }
}

Suballocators::Segments::iterator Suballocators::remove(profiler::Recorder& recorder,
                                                        Segments::iterator segment) {
    const auto& [address, info] = *segment;
    set_reserved(of(info.gpu), of(info.gpu).reserved - info.bytes);
    Event gone = make_event(info.mapped ? EventType::segment_unmap : EventType::segment_free,
                            info.gpu, info.context, address, info.bytes);
    gone.requested = 0;
    recorder.record(gone);
    return segments_.erase(segment);
}

/// Ends the segments that overlap the range.
void Suballocators::remove_in(profiler::Recorder& recorder, std::uint64_t address,
                              std::uint64_t bytes) {
    auto at = segments_.upper_bound(address);
    if (at != segments_.begin()) {
        const auto before = std::prev(at);
        if (address - before->first < before->second.bytes) {
            at = before;
        }
    }
    while (at != segments_.end() && at->first < address + bytes) {
        at = remove(recorder, at);
    }
}

void Suballocators::memory_freed(profiler::Recorder& recorder, std::uint64_t address) {
    const std::lock_guard lock(mutex_);
    if (const auto segment = segments_.find(address); segment != segments_.end()) {
        remove(recorder, segment);
    }
}

void Suballocators::memory_unmapped(profiler::Recorder& recorder, std::uint64_t address,
                                    std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    remove_in(recorder, address, bytes);
}

bool Suballocators::cuts(std::uint64_t address) {
    const std::lock_guard lock(mutex_);
    const auto above = segments_.upper_bound(address);
    return above != segments_.begin() &&
           address - std::prev(above)->first < std::prev(above)->second.bytes;
}

void Suballocators::remove_context(std::uint32_t context) {
    const std::lock_guard lock(mutex_);
    std::erase_if(segments_, [&](const auto& segment) {
        if (segment.second.context != context) {
            return false;
        }
        Gpu& gpu = of(segment.second.gpu);
        set_reserved(gpu, gpu.reserved - segment.second.bytes);
        std::uint32_t ended = context;
        gpu.context.compare_exchange_strong(ended, 0, std::memory_order_relaxed);
        return true;
    });
}

}  // namespace memlab::interpose
