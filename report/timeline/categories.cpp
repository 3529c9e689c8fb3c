#include "report/timeline/categories.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "report/reading/read_ahead.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

namespace {

constexpr std::uint64_t max_rows = 1024;
constexpr std::uint64_t min_bucket_ns = 1024;

/// A power of two, so that at most max_rows cover the time.
std::uint64_t bucket_for(std::uint64_t duration_ns) {
    const std::uint64_t buckets = max_rows - 1;
    return std::bit_ceil(std::max(min_bucket_ns, duration_ns / buckets + 1));
}

/// Keeps the live bytes of each category while a log is read, and the rows made of them.
class CategoryCollector final : public trace::GenericSink<CategoryCollector> {
  public:
    CategoryCollector(const model::Report& report, std::uint64_t from_ns, std::uint64_t to_ns,
                      Resolver& resolver)
        : from_ns_(from_ns), to_ns_(to_ns), categories_(report.sites.size(), Category::other) {
        for (const model::Device& device : report.devices) {
            if (device.used() && has_categories(report, device)) {
                Followed& followed = followed_[static_cast<std::uint32_t>(device.index)];
                followed.timeline.device = device.index;
                followed.timeline.bucket_ns = bucket_for(to_ns - from_ns);
                followed.timeline.doubt = doubt_about_categories(report, device, resolver);
            }
        }
        for (std::size_t i = 0; i < report.sites.size(); ++i) {
            if (followed_.contains(static_cast<std::uint32_t>(report.sites[i].device))) {
                categories_[i] = categorize(report.sites[i], resolver);
            }
        }
    }

    template <typename Record>
    void take(const Record& record) {
        state_.on(record);
    }
    void take(const trace::ContextLost& lost) {
        begin(lost.time_ns);
        state_.on(lost);
        update_all();
    }
    /// The last part of a checkpoint: records before it are missing.
    void take(const trace::AggregateState& part) {
        state_.on(part);
        if (part.last) {
            update_all();
            begin(state_.duration_ns());
        }
    }

    void take(const trace::Event& event) {
        begin(event.time_ns);
        const trace::EventType type = event.type;
        const bool frees =
            type == trace::EventType::free_requested || type == trace::EventType::free_completed;
        const std::uint32_t freed = frees ? site_of(event) : trace::HashIndex::none;
        state_.on(event);
        count(freed);
        if (type == trace::EventType::alloc) {
            count(site_of(event));
        }
        update(event.device);
        if (freed != trace::HashIndex::none) {
            update(state_.sites()[freed].device);
        }
    }

    std::vector<CategoryTimeline> finish() {
        begin(std::max(from_ns_, state_.duration_ns()));
        std::vector<CategoryTimeline> timelines;
        for (auto& [index, followed] : followed_) {
            timelines.push_back(std::move(followed.timeline));
        }
        return timelines;
    }

  private:
    struct Followed {
        CategoryBytes now{};
        CategoryTimeline timeline;
    };

    /// Before the first record of the time range its values at the begin are those so far.
    void begin(std::uint64_t time_ns) {
        if (entered_ || std::max(time_ns, state_.duration_ns()) < from_ns_) {
            return;
        }
        entered_ = true;
        for (auto& [index, followed] : followed_) {
            CategoryTimeline& timeline = followed.timeline;
            timeline.rows.push_back({from_ns_, from_ns_, followed.now, followed.now});
            timeline.highest_ns = from_ns_;
            timeline.at_highest = followed.now;
            for (std::size_t i = 0; i < category_count; ++i) {
                const std::uint64_t bytes = followed.now.at(i);
                timeline.figures.at(i) = {bytes, bytes, from_ns_, bytes};
            }
        }
    }

    std::uint32_t site_of(const trace::Event& event) const {
        const std::uint32_t at = state_.live().find(event.address, trace::address_space(event));
        return at == trace::LiveTable::none ? trace::HashIndex::none : state_.live()[at].site;
    }

    /// The log of a running program has grown since the report.
    Category category_of(std::uint32_t site) const {
        return site < categories_.size() ? categories_[site] : Category::other;
    }

    /// Brings the live bytes of a site up to date.
    void count(std::uint32_t index) {
        if (index == trace::HashIndex::none) {
            return;
        }
        counted_.resize(std::max(counted_.size(), state_.sites().size()));
        const trace::Site& site = state_.sites()[index];
        const auto at = followed_.find(site.device);
        if (at == followed_.end() || !trace::counts_as_device_memory(site.kind)) {
            return;
        }
        at->second.now.at(static_cast<std::size_t>(category_of(index))) +=
            site.live_bytes - counted_[index];
        counted_[index] = site.live_bytes;
    }

    void update_all() {
        for (auto& [index, followed] : followed_) {
            update(index);
        }
    }

    /// Takes what a device holds now into its rows. An event may have ended memory of other sites,
    /// too; that shows in the sum, and then all are counted anew.
    void update(std::uint32_t device) {
        const auto at = followed_.find(device);
        if (at == followed_.end() || device >= state_.devices().size() ||
            state_.devices()[device] == nullptr) {
            return;
        }
        Followed& followed = at->second;
        if (sum(followed.now) !=
            state_.devices()[device]->curve(trace::CurveName::allocated).current) {
            followed.now = {};
            counted_.assign(state_.sites().size(), 0);
            for (auto& [index, other] : followed_) {
                other.now = {};
            }
            for (std::uint32_t site = 0; site < state_.sites().size(); ++site) {
                count(site);
            }
        }
        if (entered_ && state_.duration_ns() <= to_ns_) {
            add(followed.timeline, followed.now, state_.duration_ns());
        }
    }

    static void add(CategoryTimeline& timeline, const CategoryBytes& now, std::uint64_t now_ns) {
        const std::uint64_t begin_ns = timeline.rows.front().begin_ns;
        const std::uint64_t row_ns =
            begin_ns + (now_ns - begin_ns) / timeline.bucket_ns * timeline.bucket_ns;
        if (timeline.rows.back().last == now) {
            return;
        }
        if (timeline.rows.back().begin_ns != row_ns) {
            const CategoryBytes before = timeline.rows.back().last;
            timeline.rows.push_back({row_ns, row_ns, before, before});
        }
        CategoryRow& row = timeline.rows.back();
        row.last = now;
        if (sum(now) > sum(row.bytes)) {
            row.bytes = now;
            row.at_ns = now_ns;
        }
        if (sum(now) > sum(timeline.at_highest)) {
            timeline.at_highest = now;
            timeline.highest_ns = now_ns;
        }
        for (std::size_t i = 0; i < category_count; ++i) {
            CategoryTimeline::Figures& figures = timeline.figures.at(i);
            figures.at_end = now.at(i);
            if (now.at(i) > figures.highest) {
                figures.highest = now.at(i);
                figures.highest_ns = now_ns;
            }
        }
    }

    const std::uint64_t from_ns_;
    const std::uint64_t to_ns_;
    std::vector<Category> categories_;            ///< by site
    std::map<std::uint32_t, Followed> followed_;  ///< by device
    std::vector<std::uint64_t> counted_;  ///< by site: its live bytes that are in Followed::now
    bool entered_ = false;
    trace::Aggregator state_;
};

}  // namespace

std::uint64_t sum(const CategoryBytes& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

std::vector<CategoryTimeline> read_categories(const model::Report& report, const std::string& log,
                                              std::uint64_t from_ns, std::uint64_t to_ns,
                                              Resolver& resolver) {
    CategoryCollector collector(report, from_ns, to_ns, resolver);
    read_log_ahead(log, static_cast<trace::RecordSink&>(collector));
    return collector.finish();
}

}  // namespace memlab::report
