#include "report/pool_view/layout.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "report/reading/read_ahead.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

namespace {

BlockLayout layout_of(const trace::Aggregator& figures, const trace::Live& live, bool pending) {
    BlockLayout block{live.address, live.size, live.time_ns, figures.sites()[live.site].stack,
                      live.site,    pending};
    block.nn_modules = figures.nn_modules().code_of(live.nn_modules);
    // What is cut from a segment may begin where it does, and it is that which has a name.
    if (figures.labels().any_live() && !live.is_segment) {
        block.label = figures.string(figures.labels().name_of(live.address));
        block.label_detail = figures.string(figures.labels().detail_of(live.address));
    }
    return block;
}

/// Puts blocks into their segments, both of one device.
std::vector<SegmentLayout> lay_out(std::vector<BlockLayout> blocks,
                                   const std::vector<trace::PoolLayout::Range>& ranges) {
    std::sort(blocks.begin(), blocks.end(),
              [](const BlockLayout& a, const BlockLayout& b) { return a.address < b.address; });
    std::vector<SegmentLayout> segments;
    auto block = blocks.begin();
    for (const auto& [address, size] : ranges) {
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

}  // namespace

std::vector<SegmentLayout> snapshot_segments(const trace::Aggregator& figures,
                                             std::uint32_t device) {
    if (device >= figures.devices().size() || figures.devices()[device] == nullptr) {
        return {};
    }
    std::vector<BlockLayout> blocks;
    figures.live().for_each([&](std::uint32_t, const trace::Live& live) {
        const trace::Site& site = figures.sites()[live.site];
        if (live.origin == trace::Origin::pool && site.device == device) {
            blocks.push_back(layout_of(figures, live, live.pending));
        }
    });
    return lay_out(std::move(blocks), figures.devices()[device]->pool.segments());
}

struct PoolCollector::OfDevice {
    /// The latest of the peaks, and what has changed since.
    struct Peak {
        bool seen = false;
        std::uint64_t bytes = 0;
        std::uint64_t time_ns = 0;
        std::uint64_t serial = 0;  ///< of the allocation that made it
        std::uint64_t number = 0;  ///< no other of any device has it
        std::size_t ooms_before = 0;
        std::vector<BlockLayout> ended;  ///< as they were then
        /// As they were then, if they have changed.
        std::optional<std::vector<trace::PoolLayout::Range>> segments;
        /// If there was a checkpoint since, which replaced everything.
        std::optional<std::vector<SegmentLayout>> finished;
    };
    Peak peak;
    std::vector<PoolSnapshot> others;  ///< by time
};

class PoolCollector::Sink final : public trace::GenericSink<PoolCollector::Sink>,
                                  public LogFollower,
                                  private trace::LiveObserver {
  public:
    Sink(PoolCollector& to, trace::Aggregator& figures) : to_(to), figures_(figures) {
        figures.set_observer(this);
    }
    ~Sink() override { figures_.set_observer(nullptr); }

    template <typename Record>
    void take(const Record& record) {
        figures_.on(record);
    }
    void on_freed(const trace::Event& event) override { figures_.on_freed(event); }
    void take(const trace::OomEvent& oom) {
        figures_.on(oom);
        OfDevice& device = of_device(oom.device);
        if (device.others.size() < to_.ooms_) {
            device.others.push_back({PoolSnapshot::What::oom, oom.time_ns, oom.requested,
                                     snapshot_segments(figures_, oom.device)});
        }
    }

    void finish(const trace::LogReadResult& read) override {
        to_.stretch_ = describe_stretch(read, trace::LogPart::everything);
        finish_peaks();
        to_.devices_.resize(std::max(to_.devices_.size(), figures_.devices().size()));
        for (std::uint32_t i = 0; i < to_.devices_.size(); ++i) {
            const std::optional<std::uint64_t> stopped = figures_.log_stopped_ns();
            to_.devices_[i].others.push_back(
                {stopped ? PoolSnapshot::What::stop : PoolSnapshot::What::end,
                 stopped.value_or(figures_.duration_ns()), 0, snapshot_segments(figures_, i)});
        }
    }

  private:
    OfDevice& of_device(std::uint32_t device) {
        if (device >= to_.devices_.size()) {
            to_.devices_.resize(std::size_t{device} + 1);
        }
        return to_.devices_[device];
    }

    void allocated(std::uint32_t /*slot*/, const trace::Live& live,
                   const trace::Event& by) override {
        const trace::Curve& curve =
            figures_.devices()[by.device]->curve(trace::CurveName::allocated);
        if (curve.current != curve.peak) {
            return;
        }
        OfDevice& device = of_device(by.device);
        OfDevice::Peak& peak = device.peak;
        if (peak.seen && peak.bytes == curve.peak) {
            return;
        }
        peak.seen = true;
        peak.bytes = curve.peak;
        peak.time_ns = by.time_ns;
        peak.serial = live.serial;
        peak.number = ++peaks_;
        peak.ooms_before = device.others.size();
        peak.ended.clear();
        peak.segments.reset();
        peak.finished.reset();
    }

    /// The peak at which the block was in use or not yet safe to reuse; null: none.
    OfDevice::Peak* peak_with(const trace::Live& live) {
        const std::uint32_t device = figures_.sites()[live.site].device;
        if (live.origin != trace::Origin::pool || device >= to_.devices_.size()) {
            return nullptr;
        }
        OfDevice::Peak& peak = to_.devices_[device].peak;
        return peak.seen && !peak.finished && live.serial <= peak.serial ? &peak : nullptr;
    }
    bool was_noted(std::uint32_t slot, const OfDevice::Peak& peak) const {
        return slot < noted_.size() && noted_[slot] == peak.number;
    }

    void freed(std::uint32_t slot, const trace::Live& live,
               const trace::LifeEnd& /*end*/) override {
        if (OfDevice::Peak* const peak = peak_with(live)) {
            if (slot >= noted_.size()) {
                noted_.resize(std::max<std::size_t>(slot + std::size_t{1}, 2 * noted_.size()));
            }
            noted_[slot] = peak->number;
            peak->ended.push_back(layout_of(figures_, live, false));
        }
    }
    void ended(std::uint32_t slot, const trace::Live& live,
               const trace::LifeEnd& /*end*/) override {
        OfDevice::Peak* const peak = peak_with(live);
        if (peak != nullptr && !was_noted(slot, *peak)) {
            peak->ended.push_back(layout_of(figures_, live, true));
        }
    }
    void segment_added(const trace::Event& by) override { keep_segments(by.device); }
    void segment_removed(std::uint32_t device, const trace::PoolLayout::Range& /*range*/) override {
        keep_segments(device);
    }
    void interrupted() override { finish_peaks(); }

    /// Before they change.
    void keep_segments(std::uint32_t device) {
        if (device < to_.devices_.size()) {
            OfDevice::Peak& peak = to_.devices_[device].peak;
            if (peak.seen && !peak.finished && !peak.segments) {
                peak.segments = figures_.devices()[device]->pool.segments();
            }
        }
    }

    /// Undoes what has changed since each peak.
    void finish_peaks() {
        for (OfDevice& device : to_.devices_) {
            OfDevice::Peak& peak = device.peak;
            if (!peak.seen || peak.finished) {
                continue;
            }
            const auto index = static_cast<std::uint32_t>(&device - to_.devices_.data());
            std::vector<BlockLayout> blocks = std::move(peak.ended);
            figures_.live().for_each([&](std::uint32_t slot, const trace::Live& live) {
                if (figures_.sites()[live.site].device == index && peak_with(live) == &peak &&
                    !was_noted(slot, peak)) {
                    blocks.push_back(layout_of(figures_, live, live.pending));
                }
            });
            peak.finished = lay_out(
                std::move(blocks),
                peak.segments ? *peak.segments : figures_.devices()[index]->pool.segments());
        }
    }

    PoolCollector& to_;
    trace::Aggregator& figures_;
    std::uint64_t peaks_ = 0;
    std::vector<std::uint64_t> noted_;  ///< by slot of the live table: Peak::number
};

PoolCollector::PoolCollector(std::size_t ooms) : ooms_(ooms) {}
PoolCollector::~PoolCollector() = default;

LogSinkFactory PoolCollector::sink_factory() {
    return
        [this](const std::string& log, trace::Aggregator& figures) { return follow(log, figures); };
}

std::unique_ptr<PoolCollector::Sink> PoolCollector::follow(const std::string& log,
                                                           trace::Aggregator& figures) {
    log_ = log;
    devices_.clear();
    return std::make_unique<Sink>(*this, figures);
}

void PoolCollector::read(const std::string& log) {
    trace::Aggregator figures;
    const std::unique_ptr<Sink> sink = follow(log, figures);
    sink->finish(read_log_ahead(log, *sink));
}

std::vector<PoolSnapshot> PoolCollector::moments(std::uint64_t device, std::uint64_t peak) const {
    if (device >= devices_.size()) {
        return {};
    }
    const OfDevice& of = devices_[device];
    std::vector<PoolSnapshot> moments = of.others;
    if (of.peak.seen && of.peak.bytes == peak) {
        moments.insert(moments.begin() + static_cast<std::ptrdiff_t>(of.peak.ooms_before),
                       {PoolSnapshot::What::peak, of.peak.time_ns, 0, *of.peak.finished});
    }
    return moments;
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

PoolSnapshots snapshot_pools(const std::vector<const model::Device*>& devices,
                             const std::string& log, PoolCollector& collected) {
    PoolSnapshots pools;
    if (!log.empty() && collected.log() != log) {
        collected.read(log);
    }
    for (const model::Device* device : devices) {
        DevicePool& pool = pools.devices.emplace_back(DevicePool{device, {}});
        if (!log.empty()) {
            pool.moments =
                collected.moments(device->index, device->curve(model::Curve::allocated).peak_bytes);
        }
    }
    if (!log.empty()) {
        pools.stretch = collected.stretch();
    }
    return pools;
}

}  // namespace memlab::report
