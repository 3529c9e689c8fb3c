#include "report/export/history.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

namespace memlab::exports {

using trace::AddressSpace;
using trace::Event;
using trace::EventType;
using trace::Origin;

namespace {

/// The end of a range, limited to the address space.
std::uint64_t range_end(std::uint64_t address, std::uint64_t size) {
    const std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
    return size > last - address ? last : address + size;
}

}  // namespace

void History::on(const trace::ProcessInfo& record) {
    process_ = record;
}

void History::on(const trace::StringDef& record) {
    strings_.push_back(record.text);
}

void History::on(const trace::Checkpoint& record) {
    while (!live_.empty()) {
        end(live_.begin(), nullptr);
    }
    while (!segments_.empty()) {
        remove(segments_.begin());
    }
    strings_.assign(1, {});  // they are defined again
    now_ = std::max(now_, record.time_ns);
}

void History::on(const trace::OomEvent& record) {
    now_ = std::max(now_, record.time_ns);
    failed(record);
}

void History::on(const trace::DeviceSample& record) {
    now_ = std::max(now_, record.time_ns);
    sampled(record);
}

void History::on(const trace::End& record) {
    now_ = std::max(now_, record.time_ns);
}

void History::on(const Event& record) {
    now_ = std::max(now_, record.time_ns);
    switch (record.type) {
        case EventType::alloc:
            allocate(record);
            break;
        case EventType::free_requested:
            free(record);
            break;
        case EventType::free_completed:
            complete(record);
            break;
        case EventType::segment_alloc:
        case EventType::segment_map:
            add_segment(record);
            break;
        case EventType::segment_free:
            free_segment(record);
            break;
        case EventType::segment_unmap:
            unmap(record);
            break;
        case EventType::mark:
        case EventType::scope_begin:
        case EventType::scope_end:
            noted(record);
            break;
        default:
            break;  // neither allocations nor segments
    }
}

void History::end(Live::iterator at, const Event* by) {
    Allocation& allocation = at->second;
    if (!allocation.pending) {
        freed(allocation, by);
        allocation.pending = true;
    }
    completed(allocation, by);
    if (allocation.in_segment) {
        blocks_.erase(allocation.event.address);
    }
    live_.erase(at);
}

void History::allocate(const Event& event) {
    const Key key{trace::address_space(event.kind), event.address};
    if (const auto at = live_.find(key); at != live_.end()) {
        end(at, nullptr);
    }
    Allocation allocation;
    allocation.number = ++count_;
    allocation.event = event;
    allocation.pooled = event.origin == Origin::pool && key.first == AddressSpace::pointer;
    allocation.size = event.size == 0 && !allocation.pooled ? event.requested : event.size;
    if (allocation.pooled) {
        end_blocks(event.address, allocation.size);
        // Blocks outside of all segments are not tracked by address.
        if (const auto around = first_segment_after(event.address);
            allocation.size != 0 && around != segments_.end() && around->first <= event.address &&
            allocation.size <= around->second.size - (event.address - around->first)) {
            blocks_[event.address] = allocation.size;
            allocation.in_segment = true;
        }
    }
    allocated(live_.emplace(key, allocation).first->second);
}

void History::free(const Event& event) {
    const auto at = live_.find({trace::address_space(event.kind), event.address});
    if (at == live_.end() || at->second.pending) {
        return;
    }
    if (!at->second.pooled || event.origin == Origin::driver) {
        end(at, &event);
        return;
    }
    freed(at->second, &event);
    at->second.pending = true;
}

void History::complete(const Event& event) {
    const auto at = live_.find({trace::address_space(event.kind), event.address});
    if (at != live_.end()) {
        end(at, &event);
    }
}

void History::end_blocks(std::uint64_t address, std::uint64_t size) {
    const std::uint64_t behind = range_end(address, size);
    auto at = blocks_.upper_bound(address);
    if (at != blocks_.begin() && range_end(std::prev(at)->first, std::prev(at)->second) > address) {
        --at;
    }
    while (at != blocks_.end() && at->first < behind) {
        const std::uint64_t block = at->first;
        ++at;
        end(live_.find({AddressSpace::pointer, block}), nullptr);
    }
}

/// The first segment whose end is above `address`.
History::Ranges::iterator History::first_segment_after(std::uint64_t address) {
    auto at = segments_.upper_bound(address);
    if (at != segments_.begin() &&
        range_end(std::prev(at)->first, std::prev(at)->second.size) > address) {
        --at;
    }
    return at;
}

void History::remove(Ranges::iterator segment) {
    const auto [address, removed] = *segment;
    end_blocks(address, removed.size);
    segments_.erase(segment);
    segment_removed(removed.device, address, removed.size, removed.mapped);
}

void History::add_segment(const Event& event) {
    const std::uint64_t behind = range_end(event.address, event.size);
    if (behind == event.address) {
        return;
    }
    end_blocks(event.address, event.size);
    for (auto at = first_segment_after(event.address);
         at != segments_.end() && at->first < behind;) {
        remove(at++);
    }
    Event added = event;
    added.size = behind - event.address;
    segment_added(added);
    const Range range{.size = added.size,
                      .device = event.device,
                      .context = event.context,
                      .mapped = event.type == EventType::segment_map};
    auto at = segments_.emplace(event.address, range).first;
    // Adjacent mapped ranges are one segment: blocks may span both.
    const auto join = [this](Ranges::iterator front, Ranges::iterator rear) {
        if (front->second.mapped && rear->second.mapped &&
            front->second.context == rear->second.context &&
            front->first + front->second.size == rear->first) {
            front->second.size += rear->second.size;
            segments_.erase(rear);
            return front;
        }
        return rear;
    };
    if (at != segments_.begin()) {
        at = join(std::prev(at), at);
    }
    if (const auto next = std::next(at); next != segments_.end()) {
        join(at, next);
    }
}

void History::free_segment(const Event& event) {
    if (const auto at = segments_.find(event.address); at != segments_.end()) {
        remove(at);
    }
}

/// Removes a range from mapped segments, which may be split.
void History::unmap(const Event& event) {
    const std::uint64_t behind = range_end(event.address, event.size);
    end_blocks(event.address, event.size);
    auto at = first_segment_after(event.address);
    while (at != segments_.end() && at->first < behind) {
        const auto [address, segment] = *at;
        if (!segment.mapped) {
            ++at;
            continue;
        }
        const std::uint64_t end = range_end(address, segment.size);
        const std::uint64_t from = std::max(address, event.address);
        const std::uint64_t to = std::min(end, behind);
        segments_.erase(at);
        if (address < from) {
            segments_[address] = segment;
            segments_[address].size = from - address;
        }
        if (to < end) {
            segments_[to] = segment;
            segments_[to].size = end - to;
        }
        segment_removed(segment.device, from, to - from, true);
        at = segments_.lower_bound(to);
    }
}

void History::on(const trace::ContextLost& record) {
    now_ = std::max(now_, record.time_ns);
    for (auto at = live_.begin(); at != live_.end();) {
        const auto here = at++;
        if (here->second.event.context == record.context) {
            end(here, nullptr);
        }
    }
    for (auto at = segments_.begin(); at != segments_.end();) {
        const auto here = at++;
        if (here->second.context == record.context) {
            remove(here);
        }
    }
}

}  // namespace memlab::exports
