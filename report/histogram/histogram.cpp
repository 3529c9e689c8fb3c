#include "report/histogram/histogram.hpp"

#include <algorithm>
#include <bit>

#include "model/bounded_sum.hpp"
#include "report/device_label.hpp"
#include "report/lacks.hpp"
#include "report/reading/read_ahead.hpp"

namespace memlab::report {

void CountAndBytes::add(const CountAndBytes& other) {
    model::add_to(count, other.count);
    model::add_to(bytes, other.bytes);
}

void CountAndBytes::subtract(const CountAndBytes& other) {
    count -= std::min(count, other.count);
    bytes -= std::min(bytes, other.bytes);
}

void Histogram::add_to(std::uint8_t power, const CountAndBytes& what) {
    const auto at =
        std::lower_bound(buckets_.begin(), buckets_.end(), power,
                         [](const Bucket& bucket, std::uint8_t of) { return bucket.power < of; });
    if (at != buckets_.end() && at->power == power) {
        at->sum.add(what);
    } else {
        buckets_.insert(at, {power, what});
    }
}

void Histogram::add(std::uint64_t value, const CountAndBytes& what) {
    add_to(static_cast<std::uint8_t>(std::bit_width(value)), what);
}

void Histogram::add(const Histogram& other) {
    for (const Bucket& bucket : other.buckets_) {
        add_to(bucket.power, bucket.sum);
    }
}

CountAndBytes Histogram::sum() const {
    CountAndBytes sum;
    for (const Bucket& bucket : buckets_) {
        sum.add(bucket.sum);
    }
    return sum;
}

class AllocationCounts::Sink final : public trace::GenericSink<AllocationCounts::Sink>,
                                     private trace::LiveObserver {
  public:
    Sink(AllocationCounts& counts, trace::Aggregator& figures)
        : counts_(counts), figures_(figures) {
        figures.set_observer(this);
    }
    ~Sink() override { figures_.set_observer(nullptr); }

    template <typename Record>
    void take(const Record& record) {
        figures_.on(record);
    }
    void on_freed(const trace::Event& event) override { figures_.on_freed(event); }
    void take(const trace::Checkpoint& checkpoint) {
        figures_.on(checkpoint);
        counts_.gap_end_ns_ = checkpoint.time_ns;
    }

  private:
    void allocated(std::uint32_t /*slot*/, const trace::Live& live,
                   const trace::Event& /*by*/) override {
        of_site(live.site).sizes.add(live.requested, {1, live.size});
    }
    void freed(std::uint32_t /*slot*/, const trace::Live& live,
               const trace::LifeEnd& end) override {
        if (end.cause != trace::LifeEnd::Cause::unseen) {
            of_site(live.site).lifetimes.add(figures_.duration_ns() - live.time_ns, {1, live.size});
        }
    }

    OfSite& of_site(std::uint32_t site) {
        if (site >= counts_.sites_.size()) {
            counts_.sites_.resize(figures_.sites().size());
        }
        return counts_.sites_[site];
    }

    AllocationCounts& counts_;
    trace::Aggregator& figures_;
};

std::unique_ptr<trace::RecordSink> AllocationCounts::follow(const std::string& log,
                                                            trace::Aggregator& figures) {
    log_ = log;
    sites_.clear();
    gap_end_ns_.reset();
    return std::make_unique<Sink>(*this, figures);
}

Histograms histograms(const model::Report& report, const std::string& log, AllocationCounts& counts,
                      const std::vector<bool>& taken, const std::optional<std::uint64_t>& device) {
    if (counts.log() != log) {
        trace::Aggregator figures;
        read_log_ahead(log, *counts.follow(log, figures));
    }
    Histograms out;
    out.gap_end_ns = counts.gap_end_ns();
    out.moment = moment_column(report);
    for (const model::Device& each : report.devices) {
        if (!each.used() || (device && !is_on(each.index, *device))) {
            continue;
        }
        DeviceHistograms& found = out.devices.emplace_back();
        found.device = &each;
        for (std::size_t i = 0; i < report.sites.size(); ++i) {
            const model::Site& site = report.sites[i];
            if (site.device != each.index || !taken.at(i)) {
                continue;
            }
            found.all.add({site.count, site.bytes});
            found.held.add({site.live_count, site.live_bytes});
            // The log of a running program may have grown since the report, and have more sites.
            if (i < counts.sites().size()) {
                found.sizes.add(counts.sites()[i].sizes);
                found.lifetimes.add(counts.sites()[i].lifetimes);
            }
        }
        found.size_unknown = found.all;
        found.size_unknown.subtract(found.sizes.sum());
        found.end_unknown = found.all;
        found.end_unknown.subtract(found.lifetimes.sum());
        found.end_unknown.subtract(found.held);
    }
    return out;
}

}  // namespace memlab::report
