#include "report/pool_view/layout.hpp"

#include <algorithm>

#include "report/read_ahead.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

namespace {

using trace::EventType;

/// The blocks of a device's pools, by address.
std::vector<BlockLayout> snapshot_blocks(const trace::Aggregator& figures, std::uint32_t device) {
    std::vector<BlockLayout> blocks;
    figures.live().for_each([&](std::uint32_t, const trace::Live& live) {
        const trace::Site& site = figures.sites()[live.site];
        if (live.origin == trace::Origin::pool && site.device == device) {
            blocks.push_back(
                {live.address, live.size, live.time_ns, site.stack, live.site, live.pending});
        }
    });
    std::sort(blocks.begin(), blocks.end(),
              [](const BlockLayout& a, const BlockLayout& b) { return a.address < b.address; });
    return blocks;
}

/// Takes the snapshots of each device.
class SnapshotTaker final : public trace::GenericSink<SnapshotTaker> {
  public:
    SnapshotTaker(const std::vector<const Device*>& devices, std::size_t ooms) {
        for (const Device* device : devices) {
            followed_.push_back({{device, {}}, false, ooms});
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
        if (!followed->peak_seen && event.type == EventType::alloc &&
            figures_.devices()[event.device]->curve(trace::CurveName::allocated).current ==
                followed->pool.device->curve(Curve::allocated).peak_bytes) {
            followed->peak_seen = true;
            add_snapshot(*followed, PoolSnapshot::What::peak, event.time_ns, 0);
        }
    }
    void take(const trace::OomEvent& oom) {
        figures_.on(oom);
        Followed* const followed = find(oom.device);
        if (followed != nullptr && followed->ooms_left != 0) {
            --followed->ooms_left;
            add_snapshot(*followed, PoolSnapshot::What::oom, oom.time_ns, oom.requested);
        }
    }

    std::vector<DevicePool> finish() {
        std::vector<DevicePool> pools;
        for (Followed& followed : followed_) {
            add_snapshot(followed, PoolSnapshot::What::end, figures_.duration_ns(), 0);
            pools.push_back(std::move(followed.pool));
        }
        return pools;
    }

  private:
    struct Followed {
        DevicePool pool;
        bool peak_seen = false;
        std::size_t ooms_left = 0;
    };

    Followed* find(std::uint32_t device) {
        const auto found = std::find_if(
            followed_.begin(), followed_.end(),
            [device](const Followed& each) { return each.pool.device->index == device; });
        return found == followed_.end() ? nullptr : &*found;
    }

    void add_snapshot(Followed& followed, PoolSnapshot::What what, std::uint64_t time_ns,
                      std::uint64_t requested) const {
        const auto device = static_cast<std::uint32_t>(followed.pool.device->index);
        followed.pool.moments.push_back(
            {what, time_ns, requested, snapshot_segments(figures_, device)});
    }

    trace::Aggregator figures_;
    std::vector<Followed> followed_;
};

}  // namespace

std::vector<SegmentLayout> snapshot_segments(const trace::Aggregator& figures,
                                             std::uint32_t device) {
    std::vector<SegmentLayout> segments;
    if (device >= figures.devices().size() || figures.devices()[device] == nullptr) {
        return segments;
    }
    const std::vector<BlockLayout> blocks = snapshot_blocks(figures, device);
    auto block = blocks.begin();
    for (const auto& [address, size] : figures.devices()[device]->pool.segments()) {
        SegmentLayout& segment = segments.emplace_back();
        segment.address = address;
        segment.size = size;
        while (block != blocks.end() && block->address < address) {
            ++block;  // not in a known segment
        }
        for (; block != blocks.end() && block->address - address < size; ++block) {
            if (block->size <= size - (block->address - address)) {
                segment.blocks.push_back(*block);
            }
        }
    }
    return segments;
}

std::uint64_t SegmentLayout::active_bytes() const {
    std::uint64_t sum = 0;
    for (const BlockLayout& block : blocks) {
        sum += block.size;
    }
    return sum;
}

std::uint64_t SegmentLayout::largest_free() const {
    std::uint64_t largest = 0;
    std::uint64_t free_from = address;
    for (const BlockLayout& block : blocks) {
        largest = std::max(largest, block.address - free_from);
        free_from = block.address + block.size;
    }
    return std::max(largest, address + size - free_from);
}

std::uint64_t PoolSnapshot::reserved_bytes() const {
    std::uint64_t sum = 0;
    for (const SegmentLayout& segment : segments) {
        sum += segment.size;
    }
    return sum;
}

std::uint64_t PoolSnapshot::active_bytes() const {
    std::uint64_t sum = 0;
    for (const SegmentLayout& segment : segments) {
        sum += segment.active_bytes();
    }
    return sum;
}

std::uint64_t PoolSnapshot::pending_bytes() const {
    std::uint64_t sum = 0;
    for (const SegmentLayout& segment : segments) {
        for (const BlockLayout& block : segment.blocks) {
            sum += block.pending ? block.size : 0;
        }
    }
    return sum;
}

std::uint64_t PoolSnapshot::largest_free() const {
    std::uint64_t largest = 0;
    for (const SegmentLayout& segment : segments) {
        largest = std::max(largest, segment.largest_free());
    }
    return largest;
}

PoolSnapshots snapshot_pools(const std::vector<const Device*>& devices, const std::string& log,
                             std::size_t ooms) {
    PoolSnapshots pools;
    if (log.empty()) {
        for (const Device* device : devices) {
            pools.devices.push_back({device, {}});
        }
        return pools;
    }
    SnapshotTaker taker(devices, ooms);
    const trace::LogReadResult read = read_log_ahead(log, taker);
    pools.devices = taker.finish();
    pools.stretch = describe_stretch(read, trace::LogPart::everything);
    return pools;
}

}  // namespace memlab::report
