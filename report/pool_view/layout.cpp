#include "report/pool_view/layout.hpp"

#include <algorithm>
#include <map>

#include "profiler/trace/aggregator.hpp"
#include "report/forwarding_sink.hpp"
#include "report/read_ahead.hpp"

namespace memlab::report {

namespace {

using trace::EventType;

/// Follows one device's pool. A recording may have holes: what overlaps something older replaces
/// it, and a block outside of all segments is not shown.
class Follower final : public ForwardingSink {
  public:
    Follower(trace::Aggregator& figures, const Device& device, std::size_t ooms)
        : ForwardingSink(figures), figures_(figures), device_(device), ooms_left_(ooms) {}
    using ForwardingSink::on;

    void on(const trace::Event& event) override {
        forward(event);
        if (event.device == device_.index && event.origin == trace::Origin::pool) {
            follow(event);
        }
        if (!peak_seen_ && event.type == EventType::alloc && event.device == device_.index &&
            allocated() == device_.curve(Curve::allocated).peak_bytes) {
            peak_seen_ = true;
            keep(PoolMoment::What::peak, event.time_ns, 0);
        }
    }
    void on(const trace::OomEvent& oom) override {
        forward(oom);
        if (oom.device == device_.index && ooms_left_ != 0) {
            --ooms_left_;
            keep(PoolMoment::What::oom, oom.time_ns, oom.requested);
        }
    }
    void on(const trace::ContextLost& lost) override {
        forward(lost);
        std::erase_if(segments_,
                      [&](const auto& segment) { return segment.second.context == lost.context; });
        std::erase_if(blocks_,
                      [&](const auto& block) { return block.second.context == lost.context; });
    }

    std::vector<PoolMoment> finish() {
        keep(PoolMoment::What::end, figures_.duration_ns(), 0);
        return std::move(moments_);
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

    std::uint64_t allocated() const {
        return figures_.devices()[static_cast<std::size_t>(device_.index)]
            ->curve(trace::CurveName::allocated)
            .current;
    }

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

    void keep(PoolMoment::What what, std::uint64_t time_ns, std::uint64_t requested) {
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
        moments_.push_back(std::move(moment));
    }

    const trace::Aggregator& figures_;
    const Device& device_;
    std::size_t ooms_left_;
    bool peak_seen_ = false;
    std::map<std::uint64_t, Segment> segments_;
    std::map<std::uint64_t, Block> blocks_;
    std::vector<PoolMoment> moments_;
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

std::vector<PoolMoment> pool_moments(const std::string& log, const Device& device,
                                     std::size_t ooms) {
    trace::Aggregator figures;
    Follower follower(figures, device, ooms);
    read_log_ahead(log, follower);
    return follower.finish();
}

}  // namespace memlab::report
