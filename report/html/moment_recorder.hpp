// Keeps, while a log is read, what every followed site holds, divided by nn.Module, and of it the
// moments that the page has: those that are asked for, and of each stretch of the run the one at
// which a device held most.
//
// The latter is known only at the end of the stretch. So it is kept as the aggregator keeps the
// composition of the peak: highs are numbered, and before a site's bytes change it saves what it
// held at the latest high, if it has not since. The work of an event is that of the sites that it
// changes and of the devices; that of a moment is that of the followed sites.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "report/html/history.hpp"
#include "trace/aggregate/aggregator.hpp"

namespace memlab::report {

/// Which sites are followed, and where the others are summed. A slot is a followed site, what an
/// nn.Module holds of one, or a sum.
class SiteSlots {
  public:
    SiteSlots(const model::Report& report, const SiteCategories& categories,
              const HistoryLimits& limits, History& history);

    static constexpr std::size_t none = ~std::size_t{0};  ///< of a device that is ignored
    /// Of a site without what nn.Modules hold of it. It may be newer than the report:
    /// its log has grown.
    std::size_t slot(std::size_t index, const trace::Site& site);
    /// Of what an nn.Module holds of a site, that of the site where the report does not know it.
    std::size_t slot(const trace::NnModuleStats& modules, std::uint32_t number,
                     const trace::Site& site);
    std::size_t count() const { return slots_.size(); }
    History::Holder& holder(std::size_t slot);

  private:
    struct Slot {
        bool summed = false;
        std::size_t at = 0;  ///< index into History::holders, or History::rest
    };
    std::size_t follow(const History::Followed& followed);
    std::size_t sum(const History::RestKey& key);
    std::optional<std::size_t> category_of(std::size_t index) const {
        return index < categories_.size() ? categories_[index] : std::nullopt;
    }

    const SiteCategories& categories_;
    History& history_;
    std::size_t most_parts_ = 0;
    std::set<std::uint64_t> devices_;
    std::vector<Slot> slots_;
    std::vector<std::size_t> of_site_;
    std::map<History::Followed, std::size_t> of_part_;
    std::map<History::RestKey, std::size_t> of_rest_;
};

/// Thread-safety: none. All that it is given must outlive it. Members may throw std::bad_alloc.
class MomentRecorder {
  public:
    MomentRecorder(const model::Report& report, const SiteCategories& categories,
                   const HistoryLimits& limits, std::uint64_t stretch_ns, History& history);

    /// The number of a device, whose moments are kept: its index among those so far.
    void add_device() { highs_.emplace_back(); }

    /// The bytes of its site are about to change.
    void touch(const trace::Live& live) { touched_.push_back({live.site, live.nn_modules}); }
    bool touched() const { return !touched_.empty(); }
    /// It is about to become another nn.Module's, as it was at all moments at which it was there.
    void move(const trace::Live& live, std::uint32_t to);
    /// Takes over what has changed with a record; a device's allocated bytes come after it.
    void update(const trace::Aggregator& state);
    /// Anything may have changed.
    void update_all(const trace::Aggregator& state);
    void set_allocated(std::size_t device, std::uint64_t bytes, std::uint64_t now_ns);

    /// The state as it is now, at a time of the stretch. `events`: of History::events, which get
    /// its number; `map`: its map, which gets it too.
    void keep(std::uint64_t time_ns, std::vector<std::size_t> events,
              std::optional<History::Map> map);

    /// The end of the current stretch: the first time that is not in it.
    std::uint64_t stretch_end_ns() const { return end_ns_; }
    /// Ends the stretch, and begins the next one.
    void end_stretch();
    /// Ends the stretch, and begins the one that has the time: of those in between nothing is
    /// known.
    void skip_to(std::uint64_t time_ns);
    /// After the last stretch.
    void finish();

  private:
    struct Held {
        std::uint64_t bytes = 0;
        std::uint64_t blocks = 0;
        bool operator==(const Held&) const = default;
    };
    using State = std::shared_ptr<const std::vector<Held>>;
    /// The latest high of a device in the current stretch.
    struct High {
        std::uint64_t bytes = 0;  ///< at it
        std::uint64_t now = 0;
        bool changed = false;  ///< in the stretch
        std::uint64_t time_ns = 0;
        std::uint64_t change = 0;  ///< number of the latest change then
        std::uint64_t serial = 0;  ///< of the latest allocation then
        bool within = false;       ///< more changed at that time
        std::uint32_t number = 1;
        std::vector<std::uint32_t> seen;  ///< by slot: the number of the high that `saved` is of
        std::vector<Held> saved;
    };
    struct Moment {
        std::uint64_t time_ns = 0;
        std::uint64_t change = 0;
        std::uint64_t serial = 0;
        State state;
        bool within = false;
        std::vector<std::size_t> events;
        std::optional<History::Map> map;
    };

    /// What changes: a site, and the number of a NnModuleHolding, or 0.
    struct Touched {
        std::uint32_t site = 0;
        std::uint32_t nn_modules = 0;
    };
    /// Before the change, a live allocation was in one slot; from then on it is in another.
    struct Moved {
        std::size_t from = 0;
        std::size_t to = 0;
        std::uint64_t bytes = 0;
        std::uint64_t serial = 0;
        std::uint64_t change = 0;
    };
    struct Moving {
        Touched from;
        Touched to;
        std::uint64_t bytes = 0;
        std::uint64_t serial = 0;
    };
    /// What slots hold more, or less as its complement, from a moment on.
    using Corrections = std::map<std::size_t, std::map<std::size_t, Held>>;

    void take(std::uint32_t index, const trace::Site& site);
    void take(std::uint32_t number, const trace::Aggregator& state);
    void take_moving(const trace::Aggregator& state);
    static void correct(std::vector<History::Change>& changes,
                        const std::map<std::size_t, Held>& corrections, std::size_t moments);
    void add(std::size_t slot, const Held& before, const Held& after);
    void save(std::size_t slot);
    void rise(High& high, std::uint64_t time_ns);
    State state_now();
    void write(Moment& moment);
    void add_to_category(std::uint32_t index, const trace::Site& site, std::uint64_t bytes);
    void note_categories(std::uint64_t now_ns);

    const SiteCategories& categories_;
    History& history_;
    SiteSlots slots_;
    std::uint64_t stretch_ns_;
    std::uint64_t end_ns_;
    std::vector<Touched> touched_;
    std::vector<Held> of_site_;  ///< by site, as last seen
    std::vector<Held> of_part_;  ///< the same, by index into NnModuleStats::holdings()
    std::vector<Held> now_;      ///< by slot
    std::uint64_t change_ = 0;   ///< numbers the records that changed something
    std::uint64_t serial_ = 0;   ///< of the latest allocation
    std::optional<Moving> moving_;
    std::vector<Moved> moved_;
    /// By History::moments: change and serial then.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> written_;
    State state_;  ///< of the change state_of_; null: none
    std::uint64_t state_of_ = 0;
    std::vector<High> highs_;
    std::vector<Moment> moments_;  ///< of the current stretch
    std::map<std::pair<std::uint64_t, std::size_t>, std::size_t> category_at_;
    std::vector<std::uint64_t> category_bytes_;  ///< now, as History::categories
};

}  // namespace memlab::report
