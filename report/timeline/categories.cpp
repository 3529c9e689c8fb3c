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
class CategoryCollector final : public trace::GenericSink<CategoryCollector>,
                                private trace::LiveObserver {
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
        state_.set_observer(this);
    }

    template <typename Record>
    void take(const Record& record) {
        state_.on(record);
    }
    void take(const trace::ContextLost& lost) {
        begin(lost.time_ns);
        state_.on(lost);
        update();
    }
    void take(const trace::Event& event) {
        begin(event.time_ns);
        state_.on(event);
        update();
    }
    /// The last part of a checkpoint: records before it are missing.
    void take(const trace::AggregateState& part) {
        state_.on(part);
        if (part.last) {
            count_all();
            update();
            begin(state_.duration_ns());
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
        bool changed = false;  ///< since the latest update
        CategoryTimeline timeline;
    };

    /// Before the first record of the time range: its values at the start are those so far.
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

    void allocated(std::uint32_t /*slot*/, const trace::Live& live,
                   const trace::Event& /*by*/) override {
        add(live.site, live.size);
    }
    void freed(std::uint32_t /*slot*/, const trace::Live& live,
               const trace::LifeEnd& /*end*/) override {
        add(live.site, -live.size);
    }

    /// To what its category holds; a negative number is added as its complement.
    void add(std::uint32_t index, std::uint64_t bytes) {
        const trace::Site& site = state_.sites()[index];
        const auto at = followed_.find(site.device);
        if (at != followed_.end() && trace::counts_as_device_memory(site.kind)) {
            at->second.now.at(static_cast<std::size_t>(category_of(index))) += bytes;
            at->second.changed = true;
        }
    }
    void count_all() {
        for (auto& [index, followed] : followed_) {
            followed.now = {};
            followed.changed = true;
        }
        for (std::uint32_t site = 0; site < state_.sites().size(); ++site) {
            add(site, state_.sites()[site].live_bytes);
        }
    }

    /// The log of a running program has grown since the report.
    Category category_of(std::uint32_t site) const {
        return site < categories_.size() ? categories_[site] : Category::other;
    }

    /// Takes what has changed into the rows.
    void update() {
        for (auto& [index, followed] : followed_) {
            if (followed.changed && entered_ && state_.duration_ns() <= to_ns_) {
                add(followed.timeline, followed.now, state_.duration_ns());
            }
            followed.changed = false;
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
