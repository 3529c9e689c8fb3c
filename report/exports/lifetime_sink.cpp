#include "report/exports/lifetime_sink.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include "report/reading/read_ahead.hpp"

namespace memlab::report::exports {

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

void LifetimeSink::on(const trace::ProcessInfo& record) {
    process_ = record;
}

void LifetimeSink::on(const trace::StringDef& record) {
    if (!numbered_anew_) {
        strings_.push_back(record.text);
    }
}

bool LifetimeSink::reach(std::uint64_t time_ns) {
    const std::uint64_t time = std::max(now_, time_ns);
    if (!entered_ && time >= stretch_.from_ns) {
        entered_ = true;
        now_ = stretch_.from_ns;
        entered();
    }
    over_ = over_ || time > stretch_.until_ns;
    now_ = over_ ? stretch_.until_ns : time;
    return !over_;
}

void LifetimeSink::finish() {
    if (!entered_) {
        entered_ = true;
        now_ = stretch_.from_ns;
        entered();
    }
}

void LifetimeSink::on(const trace::Checkpoint& record) {
    if (over_) {
        // Its numbers are others: what is live at the end of the stretch keeps those it has.
        numbered_anew_ = true;
        return;
    }
    while (!live_.empty()) {
        end(live_.begin(), nullptr);
    }
    for (auto& [space, level] : levels_) {
        while (!level.segments.empty()) {
            remove(level, level.segments.begin());
        }
    }
    strings_.assign(1, {});  // they are defined again
    reach(record.time_ns);
}

void LifetimeSink::on(const trace::OomEvent& record) {
    if (reach(record.time_ns)) {
        failed(record);
    }
}

void LifetimeSink::on(const trace::DeviceSample& record) {
    if (reach(record.time_ns)) {
        sampled(record);
    }
}

void LifetimeSink::on(const trace::End& record) {
    reach(record.time_ns);
}

void LifetimeSink::on(const Event& record) {
    if (!reach(record.time_ns)) {
        return;
    }
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

void LifetimeSink::end(Live::iterator at, const Event* by) {
    Allocation& allocation = at->second;
    if (!allocation.pending) {
        freed(allocation, by);
        allocation.pending = true;
    }
    completed(allocation, by);
    if (allocation.in_segment) {
        level_of(allocation.event).blocks.erase(allocation.event.address);
    }
    live_.erase(at);
}

void LifetimeSink::allocate(const Event& event) {
    const Key key{trace::address_space(event), event.address};
    if (const auto at = live_.find(key); at != live_.end()) {
        end(at, nullptr);
    }
    Allocation allocation;
    allocation.number = ++count_;
    allocation.event = event;
    Level& level = level_of(event);
    allocation.pooled = event.origin == Origin::pool && key.first == level.space;
    allocation.size = event.size == 0 && !allocation.pooled ? event.requested : event.size;
    if (allocation.pooled) {
        end_blocks(level, event.address, allocation.size);
        // Blocks outside of all segments are not tracked by address.
        if (const auto around = first_segment_after(level, event.address);
            allocation.size != 0 && around != level.segments.end() &&
            around->first <= event.address &&
            allocation.size <= around->second.size - (event.address - around->first)) {
            level.blocks[event.address] = allocation.size;
            allocation.in_segment = true;
        }
    }
    allocated(live_.emplace(key, allocation).first->second);
}

void LifetimeSink::free(const Event& event) {
    const auto at = live_.find({trace::address_space(event), event.address});
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

void LifetimeSink::complete(const Event& event) {
    const auto at = live_.find({trace::address_space(event), event.address});
    if (at != live_.end()) {
        end(at, &event);
    }
}

void LifetimeSink::end_blocks(Level& level, std::uint64_t address, std::uint64_t size) {
    const std::uint64_t behind = range_end(address, size);
    auto at = level.blocks.upper_bound(address);
    if (at != level.blocks.begin() &&
        range_end(std::prev(at)->first, std::prev(at)->second) > address) {
        --at;
    }
    while (at != level.blocks.end() && at->first < behind) {
        const std::uint64_t block = at->first;
        ++at;
        end(live_.find({level.space, block}), nullptr);
    }
}

/// The first segment whose end is above `address`.
LifetimeSink::Ranges::iterator LifetimeSink::first_segment_after(Level& level,
                                                                 std::uint64_t address) {
    auto at = level.segments.upper_bound(address);
    if (at != level.segments.begin() &&
        range_end(std::prev(at)->first, std::prev(at)->second.size) > address) {
        --at;
    }
    return at;
}

void LifetimeSink::remove(Level& level, Ranges::iterator segment) {
    const auto [address, removed] = *segment;
    end_blocks(level, address, removed.size);
    level.segments.erase(segment);
    segment_removed(removed.device, address, removed.size, removed.mapped);
}

void LifetimeSink::add_segment(const Event& event) {
    Level& level = level_of(event);
    const std::uint64_t behind = range_end(event.address, event.size);
    if (behind == event.address) {
        return;
    }
    end_blocks(level, event.address, event.size);
    for (auto at = first_segment_after(level, event.address);
         at != level.segments.end() && at->first < behind;) {
        remove(level, at++);
    }
    Event added = event;
    added.size = behind - event.address;
    segment_added(added);
    const Range range{.size = added.size,
                      .device = event.device,
                      .context = event.context,
                      .mapped = event.type == EventType::segment_map};
    auto at = level.segments.emplace(event.address, range).first;
    // Adjacent mapped ranges are one segment: blocks may span both.
    const auto join = [&level](Ranges::iterator front, Ranges::iterator rear) {
        if (front->second.mapped && rear->second.mapped &&
            front->second.context == rear->second.context &&
            front->first + front->second.size == rear->first) {
            front->second.size += rear->second.size;
            level.segments.erase(rear);
            return front;
        }
        return rear;
    };
    if (at != level.segments.begin()) {
        at = join(std::prev(at), at);
    }
    if (const auto next = std::next(at); next != level.segments.end()) {
        join(at, next);
    }
}

void LifetimeSink::free_segment(const Event& event) {
    Level& level = level_of(event);
    if (const auto at = level.segments.find(event.address); at != level.segments.end()) {
        remove(level, at);
    }
}

/// Removes a range from mapped segments, which may be split.
void LifetimeSink::unmap(const Event& event) {
    Level& level = level_of(event);
    const std::uint64_t behind = range_end(event.address, event.size);
    end_blocks(level, event.address, event.size);
    auto at = first_segment_after(level, event.address);
    while (at != level.segments.end() && at->first < behind) {
        const auto [address, segment] = *at;
        if (!segment.mapped) {
            ++at;
            continue;
        }
        const std::uint64_t end = range_end(address, segment.size);
        const std::uint64_t from = std::max(address, event.address);
        const std::uint64_t to = std::min(end, behind);
        level.segments.erase(at);
        if (address < from) {
            level.segments[address] = segment;
            level.segments[address].size = from - address;
        }
        if (to < end) {
            level.segments[to] = segment;
            level.segments[to].size = end - to;
        }
        segment_removed(segment.device, from, to - from, true);
        at = level.segments.lower_bound(to);
    }
}

void LifetimeSink::on(const trace::ContextLost& record) {
    if (!reach(record.time_ns)) {
        return;
    }
    for (auto at = live_.begin(); at != live_.end();) {
        const auto here = at++;
        if (here->second.event.context == record.context) {
            end(here, nullptr);
        }
    }
    for (auto& [space, level] : levels_) {
        for (auto at = level.segments.begin(); at != level.segments.end();) {
            const auto here = at++;
            if (here->second.context == record.context) {
                remove(level, here);
            }
        }
    }
}

std::string describe_missing(const trace::LogReadResult& read, trace::LogPart part,
                             const Stretch& stretch) {
    const bool beginning = part == trace::LogPart::beginning;
    const bool concerned = !read.gap || (stretch.until_ns > read.gap->from_ns &&
                                         (beginning || stretch.from_ns < read.gap->to_ns));
    return concerned ? report::describe_stretch(read, part) : std::string();
}

}  // namespace memlab::report::exports
