#include "report/pool_view/layout.hpp"

#include <algorithm>
#include <map>

#include "profiler/trace/aggregator.hpp"
#include "report/every_record.hpp"
#include "report/read_ahead.hpp"

namespace memlab::report {

namespace {

using trace::EventType;

/// The pool of one device as its events change it. A recording may have holes: what overlaps
/// something older replaces it, and a block outside of all segments is not shown.
class Layout {
  public:
    void follow(const trace::Event& event) {
        switch (event.type) {
            case EventType::segment_alloc:
                cut(event.address, event.size);
                segments_[event.address] = {event.size, event.context};
                break;
            case EventType::segment_map:
                cut(event.address, event.size);
                join(event);
                break;
            case EventType::segment_free:
            case EventType::segment_unmap:
                cut(event.address, event.size);
                break;
            case EventType::alloc:
                blocks_[event.address] = {
                    {event.address, event.size, event.time_ns, event.stack, false}, event.context};
                break;
            case EventType::free_requested:
                if (const auto block = blocks_.find(event.address); block != blocks_.end()) {
                    block->second.laid.pending = true;
                }
                break;
            case EventType::free_completed:
                blocks_.erase(event.address);
                break;
            default:
                break;
        }
    }

    void lose(std::uint32_t context) {
        const auto lost = [context](const auto& each) { return each.second.context == context; };
        std::erase_if(segments_, lost);
        std::erase_if(blocks_, lost);
    }

    PoolMoment moment(PoolMoment::What what, std::uint64_t time_ns, std::uint64_t requested) const {
        PoolMoment moment{what, time_ns, requested, {}};
        for (const auto& [address, segment] : segments_) {
            LaidSegment& laid = moment.segments.emplace_back();
            laid.address = address;
            laid.size = segment.size;
            std::uint64_t free_from = address;
            for (auto block = blocks_.lower_bound(address);
                 block != blocks_.end() && block->first < address + segment.size; ++block) {
                const LaidBlock& candidate = block->second.laid;
                if (candidate.address >= free_from &&
                    candidate.size <= address + segment.size - candidate.address) {
                    laid.blocks.push_back(candidate);
                    free_from = candidate.address + candidate.size;
                }
            }
        }
        return moment;
    }

  private:
    struct Segment {
        std::uint64_t size = 0;
        std::uint32_t context = 0;
    };
    struct Block {
        LaidBlock laid;
        std::uint32_t context = 0;
    };

    /// Mapped ranges that touch are one segment: it grew.
    void join(const trace::Event& event) {
        std::uint64_t address = event.address;
        std::uint64_t size = event.size;
        const auto next = segments_.find(address + size);
        if (next != segments_.end() && next->second.context == event.context) {
            size += next->second.size;
            segments_.erase(next);
        }
        auto before = segments_.lower_bound(address);
        if (before != segments_.begin()) {
            --before;
            if (before->first + before->second.size == address &&
                before->second.context == event.context) {
                before->second.size += size;
                return;
            }
        }
        segments_[address] = {size, event.context};
    }

    /// Takes [address, address + size) out of the segments.
    void cut(std::uint64_t address, std::uint64_t size) {
        const std::uint64_t end = address + size;
        auto at = segments_.lower_bound(address);
        if (at != segments_.begin() &&
            std::prev(at)->first + std::prev(at)->second.size > address) {
            --at;
        }
        while (at != segments_.end() && at->first < end) {
            const std::uint64_t begin = at->first;
            const Segment segment = at->second;
            at = segments_.erase(at);
            if (begin < address) {
                segments_[begin] = {address - begin, segment.context};
            }
            if (begin + segment.size > end) {
                at =
                    segments_
                        .insert_or_assign(end, Segment{begin + segment.size - end, segment.context})
                        .first;
                ++at;
            }
        }
    }

    std::map<std::uint64_t, Segment> segments_;
    std::map<std::uint64_t, Block> blocks_;
};

/// Keeps the moments of each device.
class Follower final : public EveryRecord<Follower> {
  public:
    Follower(const std::vector<const Device*>& devices, std::size_t ooms) {
        for (const Device* device : devices) {
            followed_.push_back({{device, {}}, {}, false, ooms});
        }
    }

    template <typename Record>
    void take(const Record& record) {
        figures_.on(record);
    }
    void take(const trace::Event& event) {
        figures_.on(event);
        Followed* const followed = find(event.device);
        if (followed == nullptr) {
            return;
        }
        if (event.origin == trace::Origin::pool) {
            followed->layout.follow(event);
        }
        if (!followed->peak_seen && event.type == EventType::alloc &&
            figures_.devices()[event.device]->curve(trace::CurveName::allocated).current ==
                followed->pool.device->curve(Curve::allocated).peak_bytes) {
            followed->peak_seen = true;
            keep(*followed, PoolMoment::What::peak, event.time_ns, 0);
        }
    }
    void take(const trace::OomEvent& oom) {
        figures_.on(oom);
        Followed* const followed = find(oom.device);
        if (followed != nullptr && followed->ooms_left != 0) {
            --followed->ooms_left;
            keep(*followed, PoolMoment::What::oom, oom.time_ns, oom.requested);
        }
    }
    void take(const trace::ContextLost& lost) {
        figures_.on(lost);
        for (Followed& followed : followed_) {
            followed.layout.lose(lost.context);
        }
    }

    std::vector<PoolOfDevice> finish() {
        std::vector<PoolOfDevice> pools;
        for (Followed& followed : followed_) {
            keep(followed, PoolMoment::What::end, figures_.duration_ns(), 0);
            pools.push_back(std::move(followed.pool));
        }
        return pools;
    }

  private:
    struct Followed {
        PoolOfDevice pool;
        Layout layout;
        bool peak_seen = false;
        std::size_t ooms_left = 0;
    };

    Followed* find(std::uint32_t device) {
        const auto found = std::find_if(
            followed_.begin(), followed_.end(),
            [device](const Followed& each) { return each.pool.device->index == device; });
        return found == followed_.end() ? nullptr : &*found;
    }

    static void keep(Followed& followed, PoolMoment::What what, std::uint64_t time_ns,
                     std::uint64_t requested) {
        followed.pool.moments.push_back(followed.layout.moment(what, time_ns, requested));
    }

    trace::Aggregator figures_;
    std::vector<Followed> followed_;
};

}  // namespace

std::uint64_t LaidSegment::active_bytes() const {
    std::uint64_t sum = 0;
    for (const LaidBlock& block : blocks) {
        sum += block.size;
    }
    return sum;
}

std::uint64_t LaidSegment::largest_free() const {
    std::uint64_t largest = 0;
    std::uint64_t free_from = address;
    for (const LaidBlock& block : blocks) {
        largest = std::max(largest, block.address - free_from);
        free_from = block.address + block.size;
    }
    return std::max(largest, address + size - free_from);
}

std::uint64_t PoolMoment::reserved_bytes() const {
    std::uint64_t sum = 0;
    for (const LaidSegment& segment : segments) {
        sum += segment.size;
    }
    return sum;
}

std::uint64_t PoolMoment::active_bytes() const {
    std::uint64_t sum = 0;
    for (const LaidSegment& segment : segments) {
        sum += segment.active_bytes();
    }
    return sum;
}

std::uint64_t PoolMoment::pending_bytes() const {
    std::uint64_t sum = 0;
    for (const LaidSegment& segment : segments) {
        for (const LaidBlock& block : segment.blocks) {
            sum += block.pending ? block.size : 0;
        }
    }
    return sum;
}

std::uint64_t PoolMoment::largest_free() const {
    std::uint64_t largest = 0;
    for (const LaidSegment& segment : segments) {
        largest = std::max(largest, segment.largest_free());
    }
    return largest;
}

std::vector<PoolOfDevice> pools_of(const std::vector<const Device*>& devices,
                                   const std::string& log, std::size_t ooms) {
    if (log.empty()) {
        std::vector<PoolOfDevice> pools;
        pools.reserve(devices.size());
        for (const Device* device : devices) {
            pools.push_back({device, {}});
        }
        return pools;
    }
    Follower follower(devices, ooms);
    read_log_ahead(log, follower);
    return follower.finish();
}

}  // namespace memlab::report
