#include "interpose/memory/suballocators.hpp"

#include <algorithm>
#include <iterator>

namespace memlab::interpose {

using trace::Event;
using trace::EventType;

std::optional<std::uint32_t> Suballocators::find_locked(std::string_view name) const {
    const auto known = std::find(names_.begin(), names_.end(), name);
    return known == names_.end()
               ? std::nullopt
               : std::optional(static_cast<std::uint32_t>(known - names_.begin()) + 1);
}

std::optional<std::uint32_t> Suballocators::find(std::string_view name) {
    const threads::LockGuard lock(mutex_);
    return find_locked(name);
}

std::optional<std::uint32_t> Suballocators::find_or_add(std::string_view name) {
    const threads::LockGuard lock(mutex_);
    if (const auto known = find_locked(name)) {
        return known;
    }
    if (names_.size() + 1 >= max_allocators) {
        return std::nullopt;
    }
    names_.emplace_back(name);
    return static_cast<std::uint32_t>(names_.size());
}

bool Suballocators::is_described_now(profiler::Recorder& recorder, std::uint32_t device,
                                     FunctionRef<bool(trace::DeviceInfo&)> describe) {
    const threads::LockGuard lock(mutex_);
    Cache& cache = of(device);
    if (!cache.described.load(std::memory_order_relaxed)) {
        trace::DeviceInfo info;
        if (!describe(info)) {
            return false;
        }
        info.index = device;
        info.allocator = is_pytorchs(device) ? pytorch : names_[device / max_gpus - 2];
        info.gpu = static_cast<std::uint32_t>(gpu_of(device));
        recorder.record(info);
        cache.described.store(true, std::memory_order_release);
    }
    return true;
}

template <class Visit>
void Suballocators::for_each(const Visit& visit) {
    for (std::uint32_t gpu = 0; gpu < max_gpus; ++gpu) {
        if (pytorchs_[gpu].described.load(std::memory_order_relaxed)) {
            visit(pytorch_on(static_cast<int>(gpu)), pytorchs_[gpu]);
        }
    }
    for (auto& [device, cache] : others_) {
        visit(device, cache);
    }
}

const Suballocators::Segments::value_type* Suballocators::segment_at(const Cache& cache,
                                                                     std::uint64_t address) {
    const auto above = cache.segments.upper_bound(address);
    if (above == cache.segments.begin()) {
        return nullptr;
    }
    const auto& segment = *std::prev(above);
    return address - segment.first < segment.second.bytes ? &segment : nullptr;
}

void Suballocators::allocated(profiler::Recorder& recorder, const Event& alloc,
                              std::uint64_t reserved,
                              FunctionRef<SegmentRange(std::uint64_t)> find) {
    const threads::LockGuard lock(mutex_);
    Cache& cache = of(alloc.device);
    if (reserved != cache.expected.load(std::memory_order_relaxed)) {
        find_segments(recorder, alloc, find);
        find_woken(recorder, alloc, reserved, find);
        cache.unexplained = reserved - cache.reserved;
        set_reserved(cache, cache.reserved);
        if (cache.unexplained != 0 && !said_unexplained_) {
            said_unexplained_ = true;
            const bool less = cache.unexplained >> 63 != 0;
            recorder.report_missed(
                "PyTorch's cache reserves other memory than memlab saw it take: its reserved bytes "
                "and its segments are not exact",
                less ? 0 - cache.unexplained : cache.unexplained);
        }
    }
    recorder.record(alloc);
}

void Suballocators::allocated(profiler::Recorder& recorder, const Event& alloc,
                              FunctionRef<SegmentRange(std::uint64_t)> find) {
    const threads::LockGuard lock(mutex_);
    const Segments::value_type* const known = segment_at(of(alloc.device), alloc.address);
    if (known == nullptr || known->second.bytes - (alloc.address - known->first) < alloc.size) {
        find_segments(recorder, alloc, find);
    }
    recorder.record(alloc);
}

void Suballocators::set_reserved(Cache& cache, std::uint64_t reserved) {
    cache.reserved = reserved;
    cache.expected.store(reserved + cache.unexplained, std::memory_order_relaxed);
}

void Suballocators::add_context(Cache& cache, std::uint32_t context) {
    const std::uint32_t others = cache.context.load(std::memory_order_relaxed);
    cache.several_contexts = cache.several_contexts || (others != 0 && others != context);
    cache.context.store(cache.several_contexts ? 0 : context, std::memory_order_relaxed);
}

/// Makes segments of all that holds the new block.
void Suballocators::find_segments(profiler::Recorder& recorder, const Event& alloc,
                                  FunctionRef<SegmentRange(std::uint64_t)> find) {
    Cache& cache = of(alloc.device);
    const std::uint64_t end = alloc.address + alloc.size;
    for (std::uint64_t at = alloc.address; at < end;) {
        SegmentRange range = find_inner(recorder, alloc.device, at);
        if (range.bytes == 0) {
            range = find(at);
        }
        if (range.bytes == 0 || range.begin + range.bytes <= at) {
            return;
        }
        const auto known = cache.segments.find(range.begin);
        if (known == cache.segments.end() || known->second.bytes != range.bytes) {
            remove_in(recorder, alloc.device, range.begin, range.bytes, false);
            record_segment(recorder, alloc, range);
        }
        at = range.begin + range.bytes;
    }
}

void Suballocators::record_segment(profiler::Recorder& recorder, const Event& alloc,
                                   const SegmentRange& range) {
    Cache& cache = of(alloc.device);
    cache.segments.insert_or_assign(
        range.begin, Segment{range.bytes, alloc.context, range.mapped, range.inner, false});
    cache.unmapped.erase(range.begin);
    any_.store(true, std::memory_order_relaxed);
    if (!is_pytorchs(alloc.device)) {
        any_others_.store(true, std::memory_order_relaxed);
    }
    if (range.inner) {
        any_inner_.store(true, std::memory_order_relaxed);
    }
    set_reserved(cache, cache.reserved + range.bytes);
    add_context(cache, alloc.context);
    Event made = make_event(range.mapped ? EventType::segment_map : EventType::segment_alloc,
                            alloc.device, alloc.context, range.begin, range.bytes);
    made.requested = 0;
    made.api = alloc.api;
    made.stack = alloc.stack;
    recorder.record(made);
}

/// Memory without a block that was unmapped, and is mapped again where PyTorch has more reserved
/// than is known: it slept.
void Suballocators::find_woken(profiler::Recorder& recorder, const Event& alloc,
                               std::uint64_t reserved,
                               FunctionRef<SegmentRange(std::uint64_t)> find) {
    Cache& cache = of(alloc.device);
    for (auto at = cache.unmapped.begin(); at != cache.unmapped.end();) {
        const std::uint64_t address = at->first;
        const Segment slept = (at++)->second;
        if (reserved <= cache.reserved || slept.bytes > reserved - cache.reserved) {
            continue;
        }
        const SegmentRange range = find(address);
        if (range.begin == address && range.bytes == slept.bytes) {
            Event made = alloc;
            made.context = slept.context;
            record_segment(recorder, made, range);  // erases it there
        }
    }
}

/// The smallest block of another allocator on that GPU that holds the address.
SegmentRange Suballocators::find_inner(profiler::Recorder& recorder, std::uint32_t device,
                                       std::uint64_t address) {
    SegmentRange found;
    for_each([&](std::uint32_t other, const Cache& cache) {
        if (other == device || gpu_of(other) != gpu_of(device) ||
            segment_at(cache, address) == nullptr) {
            return;
        }
        recorder.with_aggregate([&](const trace::Aggregator& aggregate) {
            const trace::Live* const block = aggregate.suballocation_at(other, address);
            if (block != nullptr && (found.bytes == 0 || block->size < found.bytes)) {
                found = {block->address, block->size, false, true};
            }
        });
    });
    return found;
}

/// PyTorch takes all blocks back before it frees their segment; others need not.
void Suballocators::free_blocks(profiler::Recorder& recorder, std::uint32_t device,
                                std::uint64_t address, std::uint64_t bytes) {
    std::vector<Event> frees;
    recorder.with_aggregate([&](const trace::Aggregator& aggregate) {
        aggregate.for_each_suballocation(device, address, bytes, [&](const trace::Live& block) {
            frees.push_back(make_event(EventType::free_requested, device, block.context,
                                       block.address, block.size));
        });
    });
    for (const Event& free : frees) {
        recorder.record_freed(free);
    }
}

Suballocators::Segments::iterator Suballocators::remove(profiler::Recorder& recorder,
                                                        std::uint32_t device,
                                                        Segments::iterator segment) {
    Cache& cache = of(device);
    const auto [address, info] = *segment;
    if (!is_pytorchs(device)) {
        free_blocks(recorder, device, address, info.bytes);
    }
    set_reserved(cache, cache.reserved - info.bytes);
    Event gone = make_event(info.mapped ? EventType::segment_unmap : EventType::segment_free,
                            device, info.context, address, info.bytes);
    gone.requested = 0;
    recorder.record(gone);
    return cache.segments.erase(segment);
}

/// The first that ends behind the address.
Suballocators::Segments::iterator Suballocators::first_in(Segments& segments,
                                                          std::uint64_t address) {
    const auto at = segments.upper_bound(address);
    if (at != segments.begin()) {
        const auto before = std::prev(at);
        if (address - before->first < before->second.bytes) {
            return before;
        }
    }
    return at;
}

bool Suballocators::holds_blocks(profiler::Recorder& recorder, std::uint32_t device,
                                 std::uint64_t address, std::uint64_t bytes) {
    bool holds = false;
    recorder.with_aggregate([&](const trace::Aggregator& aggregate) {
        aggregate.for_each_suballocation(device, address, bytes,
                                         [&holds](const trace::Live&) { holds = true; });
    });
    return holds;
}

/// Of PyTorch's segments in the unmapped range those that hold blocks sleep, the others end.
void Suballocators::keep_asleep(profiler::Recorder& recorder, std::uint32_t device,
                                std::uint64_t address, std::uint64_t bytes) {
    Cache& cache = of(device);
    for (auto at = first_in(cache.segments, address);
         at != cache.segments.end() && at->first < address + bytes;) {
        const std::uint64_t begin = std::max(at->first, address);
        const std::uint64_t end = std::min(at->first + at->second.bytes, address + bytes);
        if (holds_blocks(recorder, device, begin, end - begin)) {
            at->second.asleep = true;
            any_asleep_.store(true, std::memory_order_relaxed);
            ++at;
            continue;
        }
        if (cache.unmapped.size() < max_unmapped) {
            at->second.asleep = any_asleep_.load(std::memory_order_relaxed);  // with the others
            cache.unmapped.insert_or_assign(at->first, at->second);
        }
        at = remove(recorder, device, at);
    }
}

void Suballocators::wake(std::uint64_t address, std::uint64_t bytes) {
    const threads::LockGuard lock(mutex_);
    bool any = false;
    for (Cache& cache : pytorchs_) {
        for (Segments* const segments : {&cache.segments, &cache.unmapped}) {
            for (auto& [begin, segment] : *segments) {
                const bool outside = begin >= address + bytes || begin + segment.bytes <= address;
                segment.asleep = segment.asleep && outside;
                any = any || segment.asleep;
            }
        }
    }
    any_asleep_.store(any, std::memory_order_relaxed);
}

void Suballocators::addresses_freed(profiler::Recorder& recorder, std::uint64_t address,
                                    std::uint64_t bytes) {
    if (any_asleep_.load(std::memory_order_relaxed)) {
        const threads::LockGuard lock(mutex_);
        for (std::uint32_t gpu = 0; gpu < max_gpus; ++gpu) {
            const std::uint32_t device = pytorch_on(static_cast<int>(gpu));
            remove_in(recorder, device, address, bytes, false);
            std::erase_if(of(device).unmapped, [&](const auto& unmapped) {
                return unmapped.first >= address && unmapped.first - address < bytes;
            });
        }
    }
}

bool Suballocators::sleeps(std::uint64_t bytes) {
    const threads::LockGuard lock(mutex_);
    for (const Cache& cache : pytorchs_) {
        for (const Segments* const segments : {&cache.segments, &cache.unmapped}) {
            for (const auto& [begin, segment] : *segments) {
                if (segment.asleep && segment.bytes == bytes) {
                    return true;
                }
            }
        }
    }
    return false;
}

/// Ends the segments that overlap the range.
void Suballocators::remove_in(profiler::Recorder& recorder, std::uint32_t device,
                              std::uint64_t address, std::uint64_t bytes, bool inner_only) {
    Segments& segments = of(device).segments;
    auto at = first_in(segments, address);
    while (at != segments.end() && at->first < address + bytes) {
        at = inner_only && !at->second.inner ? std::next(at) : remove(recorder, device, at);
    }
}

/// Ends the segments in the range that are blocks of other allocators, which end as well.
void Suballocators::remove_inner(profiler::Recorder& recorder, std::uint64_t address,
                                 std::uint64_t bytes) {
    if (any_inner_.load(std::memory_order_relaxed)) {
        for_each([&](std::uint32_t device, const Cache&) {
            mutex_.assert_held();
            remove_in(recorder, device, address, bytes, true);
        });
    }
}

void Suballocators::memory_freed(profiler::Recorder& recorder, std::uint64_t address) {
    const threads::LockGuard lock(mutex_);
    for_each([&](std::uint32_t device, Cache& cache) {
        mutex_.assert_held();
        const auto segment = cache.segments.find(address);
        if (segment != cache.segments.end() && !segment->second.inner) {
            remove_inner(recorder, address, segment->second.bytes);
            remove(recorder, device, segment);
        }
    });
}

void Suballocators::memory_unmapped(profiler::Recorder& recorder, std::uint64_t address,
                                    std::uint64_t bytes) {
    const threads::LockGuard lock(mutex_);
    remove_inner(recorder, address, bytes);
    for_each([&](std::uint32_t device, const Cache&) {
        mutex_.assert_held();
        if (is_pytorchs(device)) {
            keep_asleep(recorder, device, address, bytes);
        } else {
            remove_in(recorder, device, address, bytes, false);
        }
    });
}

void Suballocators::block_freed(profiler::Recorder& recorder, std::uint32_t device,
                                std::uint64_t address) {
    const threads::LockGuard lock(mutex_);
    std::uint64_t bytes = 0;
    for_each([&](std::uint32_t other, const Cache& cache) {
        const auto segment = cache.segments.find(address);
        if (other != device && segment != cache.segments.end() && segment->second.inner) {
            bytes = std::max(bytes, segment->second.bytes);
        }
    });
    if (bytes != 0) {
        remove_inner(recorder, address, bytes);
    }
}

void Suballocators::all_freed(profiler::Recorder& recorder, std::uint32_t allocator) {
    const threads::LockGuard lock(mutex_);
    for_each([&](std::uint32_t device, Cache& cache) {
        mutex_.assert_held();
        while (device / max_gpus == allocator + 1 && !cache.segments.empty()) {
            const auto [address, info] = *cache.segments.begin();
            remove_inner(recorder, address, info.bytes);
            if (const auto left = cache.segments.find(address); left != cache.segments.end()) {
                remove(recorder, device, left);
            }
        }
    });
}

bool Suballocators::cuts(std::uint64_t address) {
    const threads::LockGuard lock(mutex_);
    bool found = false;
    for_each([&](std::uint32_t, const Cache& cache) {
        found = found || segment_at(cache, address) != nullptr;
    });
    return found;
}

std::uint32_t Suballocators::device_at(std::uint32_t allocator, std::uint64_t address) {
    const threads::LockGuard lock(mutex_);
    std::uint32_t found = 0;
    for_each([&](std::uint32_t device, const Cache& cache) {
        if (device / max_gpus == allocator + 1 && segment_at(cache, address) != nullptr) {
            found = device;
        }
    });
    return found;
}

std::string Suballocators::owner_of(profiler::Recorder& recorder, std::uint64_t address) {
    const threads::LockGuard lock(mutex_);
    std::string owner;
    std::uint64_t smallest = ~std::uint64_t{0};
    for (const auto& other : others_) {
        const std::uint32_t device = other.first;
        if (segment_at(other.second, address) == nullptr) {
            continue;
        }
        recorder.with_aggregate([&](const trace::Aggregator& aggregate) {
            const trace::Live* const block = aggregate.suballocation_at(device, address);
            if (block != nullptr && block->address == address && block->size < smallest) {
                smallest = block->size;
                mutex_.assert_held();
                owner = names_[device / max_gpus - 2];
            }
        });
    }
    return owner;
}

void Suballocators::remove_context(std::uint32_t context) {
    const threads::LockGuard lock(mutex_);
    for_each([&](std::uint32_t, Cache& cache) {
        std::erase_if(cache.segments, [&](const auto& segment) {
            if (segment.second.context != context) {
                return false;
            }
            set_reserved(cache, cache.reserved - segment.second.bytes);
            std::uint32_t ended = context;
            cache.context.compare_exchange_strong(ended, 0, std::memory_order_relaxed);
            return true;
        });
    });
}

}  // namespace memlab::interpose
