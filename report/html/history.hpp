// What the page shows of a recording over time, from its event log: who held how much at moments of
// the run, the curves as envelopes, scopes, and maps of the pools. Its size does not grow with the
// log.
//
// A moment is the state after all records up to its time, as memlab-report timeline --at has it;
// that of a peak, and of the most that a device held in a stretch of the run, is the state right
// after the allocation that made it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "model/report.hpp"
#include "report/html/page_nn_modules.hpp"
#include "report/timeline/scope_tracker.hpp"

namespace memlab::report {

struct HistoryLimits {
    std::size_t moments = 2048;     ///< of each stretch of the run the highest; marks come on top
    std::size_t marks = 2048;       ///< the first ones
    std::size_t ooms = 256;         ///< the first ones
    std::size_t maps = 64;          ///< evenly over the run; those of peaks and OOMs come on top
    std::size_t map_parts = 3000;   ///< of a map, about: of more blocks neighbours are merged
    std::size_t peak_parts = 6000;  ///< the same, at peaks and OOMs
    std::size_t peak_maps = 24;     ///< at peaks and OOMs, the first ones
    std::size_t buckets = 4096;     ///< of all curves of a GPU
    std::size_t sites = 1024;       ///< that are followed, the largest; the others are summed
    std::size_t parts = 4096;       ///< the same of sites by nn.Module, those that come first
    std::size_t scopes = 4096;      ///< the longest ones
    std::uint64_t map_blocks = 10'000'000;  ///< looked at for the maps that are evenly spread
};

struct History {
    /// From a moment on until the next change.
    struct Change {
        std::uint32_t moment = 0;
        std::uint32_t blocks = 0;  ///< saturates
        std::uint64_t bytes = 0;
    };
    /// What is followed: of a site what an nn.Module holds, or what none does.
    struct Followed {
        std::size_t site = 0;                  ///< index into Report::sites
        std::optional<std::size_t> nn_module;  ///< index into PageNnModules::all

        bool operator==(const Followed&) const = default;
        bool operator<(const Followed& other) const {
            return std::tie(site, nn_module) < std::tie(other.site, other.nn_module);
        }
    };
    /// Of what is followed, or of several.
    struct Holder {
        std::vector<Change> changes;
    };
    /// What is summed: the sites of one kind of memory that are not followed, together.
    struct RestKey {
        std::uint64_t device = 0;
        std::string kind;
        std::optional<std::size_t> category;
        std::optional<std::size_t> nn_module;

        bool operator==(const RestKey&) const = default;
        bool operator<(const RestKey& other) const {
            return std::tie(device, kind, category, nn_module) <
                   std::tie(other.device, other.kind, other.category, other.nn_module);
        }
    };
    struct Rest {
        RestKey of;
        std::uint64_t allocations = 0;
        std::uint64_t allocated_bytes = 0;
        std::size_t sites = 0;
        Holder holder;
    };

    enum class What : std::uint8_t { peak, oom, mark, end };
    struct Event {
        What what = What::end;
        std::uint64_t time_ns = 0;
        std::optional<std::size_t> moment;  ///< none: what was held then is not known
        std::uint64_t device = 0;           ///< of peaks and failures
        std::uint64_t bytes = 0;            ///< of the peak; requested
        std::string name;                   ///< of a mark; the failed function
    };

    /// All curves of a device in a stretch of time: the least and the greatest values, what they
    /// were before it included, and the last ones. TimelineRow::unknown: not known yet.
    struct Bucket {
        using Values = std::array<std::uint64_t, model::curve_count>;
        Values min;
        Values max;
        Values last;
    };
    struct Curves {
        const model::Device* device = nullptr;
        std::uint64_t bucket_ns = 1;
        std::vector<Bucket> buckets;  ///< from 0 to the end of the run
        bool exact = true;            ///< false: some are those of the report
    };

    /// A range of a segment that is in use, or was freed and is not yet safe to reuse.
    struct Part {
        static constexpr std::size_t several = ~std::size_t{0};
        std::uint64_t offset = 0;
        std::uint64_t length = 0;
        std::size_t site = 0;           ///< index into Report::sites, or `several`
        std::uint32_t nn_modules = 0;   ///< BlockLayout's
        std::string label = {};         ///< the same
        std::string label_detail = {};  ///< the same
    };
    struct Segment {
        std::uint64_t device = 0;
        std::uint64_t address = 0;
        std::uint64_t size = 0;
        std::vector<Part> parts;  ///< by offset
    };
    struct Map {
        std::size_t moment = 0;
        std::vector<Segment> segments;
    };

    /// The most that sites of a category held together, and when first.
    struct CategoryMost {
        std::uint64_t device = 0;
        std::size_t category = 0;
        std::uint64_t bytes = 0;
        std::uint64_t time_ns = 0;
    };

    std::vector<std::uint64_t> moments;  ///< their times, which never decrease
    /// The stretches of the run, the first one from 0 on: each has a moment, and of each device
    /// that changed in it, and of each kind of memory with a peak of its own, the moment at which
    /// it held most. A multiple of the curves' buckets. 0: there are no such moments (a report
    /// alone).
    std::uint64_t moment_ns = 0;
    std::vector<std::size_t> within;       ///< moments after which more happened at the same time
    std::vector<CategoryMost> categories;  ///< of the sites that have one; none of a report alone
    std::vector<Event> events;             ///< by time
    PageNnModules nn_modules;
    std::vector<Followed> sites;
    std::vector<Holder> holders;  ///< by position in `sites`
    std::vector<Rest> rest;
    std::vector<Curves> curves;         ///< of the used devices, as in the report
    std::vector<TimelineScope> scopes;  ///< by begin
    std::vector<Map> maps;              ///< by moment
    std::size_t scopes_left_out = 0;
    std::size_t events_left_out = 0;
    std::size_t maps_left_out = 0;
    std::uint64_t merged_below = 0;  ///< bytes: smaller neighbours in maps were merged; 0: none
    std::string stretch;             ///< a sentence on what the log lacks; empty: nothing
    /// From and to: no event of this time is known.
    std::optional<std::pair<std::uint64_t, std::uint64_t>> gap;
};

/// By site of a report: the number of its category; none: it has none.
using SiteCategories = std::vector<std::optional<std::size_t>>;

/// Reads `log` once; `report` must be of it. The result points into `report`. May throw
/// std::bad_alloc.
History read_history(const model::Report& report, const std::string& log,
                     const SiteCategories& categories, const HistoryLimits& limits = {});

/// What a report alone knows: holders at the peak of each GPU and at the end, coarser curves.
History history_of_report(const model::Report& report, const SiteCategories& categories,
                          const HistoryLimits& limits = {});

/// Where the log lacks single events, exclusive of both times: the least and the most that the
/// report knows of it.
void fill_curves(History& history, std::uint64_t from_ns, std::uint64_t to_ns);

/// Moves the smallest followed sites to the rest, until there are at most `changes` in all; those
/// of the rest are not counted. If those of the rest by nn.Module are more, nn.Modules are told
/// apart to a smaller depth.
void limit_changes(History& history, const model::Report& report, const SiteCategories& categories,
                   std::size_t changes);

}  // namespace memlab::report
