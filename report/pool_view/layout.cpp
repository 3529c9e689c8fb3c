#include "report/pool_view/layout.hpp"

#include <algorithm>

#include "report/read_ahead.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

namespace {

using trace::EventType;

/// The blocks of a device's pools, by address.
std::vector<LaidBlock> blocks_of(const trace::Aggregator& figures, std::uint32_t device) {
    std::vector<LaidBlock> blocks;
    figures.live().for_each([&](std::uint32_t, const trace::Live& live) {
        const trace::Site& site = figures.sites()[live.site];
        if (live.origin == trace::Origin::pool && site.device == device) {
            blocks.push_back(
                {live.address, live.size, live.time_ns, site.stack, live.site, live.pending});
        }
    });
    std::sort(blocks.begin(), blocks.end(),
              [](const LaidBlock& a, const LaidBlock& b) { return a.address < b.address; });
    return blocks;
}

/// Keeps the moments of each device.
class Follower final : public trace::EveryRecord<Follower> {
  public:
    Follower(const std::vector<const Device*>& devices, std::size_t ooms) {
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
        bool peak_seen = false;
        std::size_t ooms_left = 0;
    };

    Followed* find(std::uint32_t device) {
        const auto found = std::find_if(
            followed_.begin(), followed_.end(),
            [device](const Followed& each) { return each.pool.device->index == device; });
        return found == followed_.end() ? nullptr : &*found;
    }

    void keep(Followed& followed, PoolMoment::What what, std::uint64_t time_ns,
              std::uint64_t requested) const {
        const auto device = static_cast<std::uint32_t>(followed.pool.device->index);
        followed.pool.moments.push_back({what, time_ns, requested, lay_out(figures_, device)});
    }

    trace::Aggregator figures_;
    std::vector<Followed> followed_;
};

}  // namespace

std::vector<LaidSegment> lay_out(const trace::Aggregator& figures, std::uint32_t device) {
    std::vector<LaidSegment> laid;
    if (device >= figures.devices().size() || figures.devices()[device] == nullptr) {
        return laid;
    }
    const std::vector<LaidBlock> blocks = blocks_of(figures, device);
    auto block = blocks.begin();
    for (const auto& [address, size] : figures.devices()[device]->pool.segments()) {
        LaidSegment& segment = laid.emplace_back();
        segment.address = address;
        segment.size = size;
        while (block != blocks.end() && block->address < address) {
            ++block;  // of no segment that the recording knows
        }
        for (; block != blocks.end() && block->address - address < size; ++block) {
            if (block->size <= size - (block->address - address)) {
                segment.blocks.push_back(*block);
            }
        }
    }
    return laid;
}

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
