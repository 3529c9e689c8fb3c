// Who held what at the moments of a page, curves and maps: against the obvious way, of any
// recording.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "report/html/history.hpp"
#include "report/pool_view/layout.hpp"
#include "tests/unit/report/recorded.hpp"

using namespace memlab::test;
using namespace memlab::model;
using namespace memlab::report;
using memlab::trace::Aggregator;

namespace {

using Held = std::pair<std::uint64_t, std::uint64_t>;  // bytes, blocks
/// By call site and nn.Module, where something is held.
using State = std::map<History::Followed, Held>;

/// Some of each.
SiteCategories some_categories(const Report& report) {
    SiteCategories categories(report.sites.size());
    for (std::size_t i = 0; i < categories.size(); ++i) {
        if (i % 3 != 0) {
            categories[i] = i % 3;
        }
    }
    return categories;
}

/// What a holder has at a moment.
Held held_at(const History::Holder& holder, std::size_t moment) {
    Held held{0, 0};
    for (const History::Change& change : holder.changes) {
        if (change.moment <= moment) {
            held = {change.bytes, change.blocks};
        }
    }
    return held;
}

/// By Live::serial, the nn.Module that held it at last: a label that says so may come later.
using Owners = std::map<std::uint64_t, std::optional<std::size_t>>;

Owners owners_of(const Recorded& recorded, const PageNnModules& modules) {
    Owners owners;
    recorded.replay([&](const Aggregator& state) {
        state.live().for_each([&](std::uint32_t /*slot*/, const memlab::trace::Live& live) {
            owners[live.serial] = modules.of_code(state.nn_modules().code_of(live.nn_modules));
        });
    });
    return owners;
}

/// Of each live allocation by itself.
State state_of(const Aggregator& state, const Owners& owners) {
    State held;
    state.live().for_each([&](std::uint32_t /*slot*/, const memlab::trace::Live& live) {
        if (live.pending) {
            return;
        }
        Held& sum = held[{live.site, owners.at(live.serial)}];
        sum.first += live.size;
        sum.second += 1;
    });
    return held;
}

/// The holders of `history` at a moment are `state`, those that are summed in their sums.
void check_moment(const History& history, const Report& report, const SiteCategories& categories,
                  std::size_t moment, const State& state) {
    CAPTURE(moment, history.moments[moment]);
    PageNnModules modules = history.nn_modules;
    const std::vector<std::size_t> shown = modules.to_depth(modules.depth);
    State held;
    for (const auto& [of, each] : state) {
        Held& sum =
            held[{of.site, of.nn_module ? std::optional(shown[*of.nn_module]) : std::nullopt}];
        sum.first += each.first;
        sum.second += each.second;
    }
    State followed;
    for (std::size_t i = 0; i < history.sites.size(); ++i) {
        const Held each = held_at(history.holders[i], moment);
        Held& sum = followed[history.sites[i]];
        sum.first += each.first;
        sum.second += each.second;
    }
    std::map<History::RestKey, Held> rest;
    for (const auto& [of, each] : held) {
        const memlab::model::Site& site = report.sites[of.site];
        Held& sum = rest[{site.device, site.kind, categories[of.site], of.nn_module}];
        sum.first += each.first;
        sum.second += each.second;
    }
    for (const auto& [of, each] : followed) {
        if (history.nn_modules.depth == PageNnModules::every_depth) {
            REQUIRE(each == held[of]);
        }
        const memlab::model::Site& site = report.sites[of.site];
        Held& sum = rest[{site.device, site.kind, categories[of.site], of.nn_module}];
        sum.first -= each.first;
        sum.second -= each.second;
    }
    for (const History::Rest& each : history.rest) {
        REQUIRE(held_at(each.holder, moment) == rest[each.of]);
        rest.erase(each.of);
    }
    for (const auto& [key, sum] : rest) {
        REQUIRE(sum == Held{0, 0});
    }
}

/// By time: what was held after all records up to it.
State held_after(const Recorded& recorded, std::uint64_t time_ns, const Owners& owners) {
    Aggregator state;
    for (const AnyRecord& record : recorded.records()) {
        if (std::max(time_of(record), state.duration_ns()) <= time_ns) {
            feed(record, state);
        }
    }
    return state_of(state, owners);
}

State held_at_peak(const Recorded& recorded, std::uint64_t device, const Owners& owners) {
    State held;
    std::uint64_t highest = 0;
    recorded.replay([&](const Aggregator& state) {
        if (device < state.devices().size() && state.devices()[device] != nullptr) {
            const std::uint64_t now =
                state.devices()[device]->curve(memlab::trace::CurveName::allocated).current;
            if (now > highest) {
                highest = now;
                held = state_of(state, owners);
            }
        }
    });
    return held;
}

void check_holders(const Recorded& recorded, const History& history,
                   const SiteCategories& categories) {
    std::map<std::size_t, std::uint64_t> peaks;  // by moment: the device
    for (const History::Event& event : history.events) {
        if (event.what == History::What::peak) {
            REQUIRE(event.moment.has_value());
            peaks[*event.moment] = event.device;
        }
        if (event.moment) {
            REQUIRE(history.moments.at(*event.moment) == event.time_ns);
        }
    }
    REQUIRE(std::is_sorted(history.moments.begin(), history.moments.end()));
    const std::set<std::size_t> within(history.within.begin(), history.within.end());
    CHECK(within.size() < history.moments.size() / 2);
    const Owners owners = owners_of(recorded, history.nn_modules);
    for (std::size_t moment = 0; moment < history.moments.size(); ++moment) {
        const auto peak = peaks.find(moment);
        if (peak == peaks.end() && within.contains(moment)) {
            continue;
        }
        check_moment(history, recorded.report, categories, moment,
                     peak != peaks.end() ? held_at_peak(recorded, peak->second, owners)
                                         : held_after(recorded, history.moments[moment], owners));
    }
}

void check_curves(const Recorded& recorded, const History& history) {
    for (const History::Curves& curves : history.curves) {
        using Values = History::Bucket::Values;
        Values now{};
        now.back() = TimelineRow::unknown;
        std::vector<History::Bucket> expected(curves.buckets.size(), {now, now, now});
        std::size_t bucket = 0;
        const auto advance = [&](std::size_t to) {
            while (bucket < to) {
                expected[++bucket] = {now, now, now};
            }
        };
        recorded.replay([&](const Aggregator& state) {
            const std::uint64_t index = curves.device->index;
            if (index >= state.devices().size() || state.devices()[index] == nullptr) {
                return;
            }
            const memlab::trace::DeviceTotals& device = *state.devices()[index];
            advance(static_cast<std::size_t>(state.duration_ns() / curves.bucket_ns));
            for (std::size_t i = 0; i < memlab::model::curve_count; ++i) {
                if (may_be_unknown(i) && !device.sampled) {
                    continue;
                }
                const std::uint64_t value = device.curves.at(i).current;
                History::Bucket& here = expected[bucket];
                here.min[i] = std::min(here.min[i], value);
                here.max[i] =
                    here.max[i] == TimelineRow::unknown ? value : std::max(here.max[i], value);
                here.last[i] = now[i] = value;
            }
        });
        advance(expected.size() - 1);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            CAPTURE(i);
            REQUIRE(curves.buckets[i].min == expected[i].min);
            REQUIRE(curves.buckets[i].max == expected[i].max);
            REQUIRE(curves.buckets[i].last == expected[i].last);
        }
    }
}

}  // namespace

TEST_CASE("each stretch of a run has the moment at which each device held most") {
    std::size_t risen = 0;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        CAPTURE(seed);
        const Recorded recorded(PlausibleRecords::make(seed, 500));
        const Report& report = recorded.report;
        HistoryLimits limits;
        limits.moments = 40;
        limits.sites = 6;
        limits.buckets = 64;
        const SiteCategories categories = some_categories(report);
        const History history = read_history(report, recorded.log(), categories, limits);
        REQUIRE(history.moments.front() == 0);
        for (const History::Curves& curves : history.curves) {
            REQUIRE(history.moment_ns % curves.bucket_ns == 0);
            const std::uint64_t of_each = history.moment_ns / curves.bucket_ns;
            std::vector<std::uint64_t> highest(
                static_cast<std::size_t>(recorded.report.process.duration_ns / history.moment_ns) +
                1);
            std::vector<std::uint64_t> known(highest.size());
            constexpr auto allocated = static_cast<std::size_t>(memlab::model::Curve::allocated);
            for (std::size_t i = 0; i < curves.buckets.size(); ++i) {
                std::uint64_t& high = highest.at(i / of_each);
                high = std::max(high, curves.buckets[i].max[allocated]);
            }
            for (std::size_t moment = 0; moment < history.moments.size(); ++moment) {
                std::uint64_t held = 0;
                for (std::size_t i = 0; i < history.sites.size(); ++i) {
                    const auto& site = report.sites[history.sites[i].site];
                    if (site.device == curves.device->index && is_in_curves(site.kind)) {
                        held += held_at(history.holders[i], moment).first;
                    }
                }
                for (const History::Rest& rest : history.rest) {
                    if (rest.of.device == curves.device->index && is_in_curves(rest.of.kind)) {
                        held += held_at(rest.holder, moment).first;
                    }
                }
                std::uint64_t& high =
                    known.at(static_cast<std::size_t>(history.moments[moment] / history.moment_ns));
                high = std::max(high, held);
            }
            REQUIRE(known == highest);
            risen += highest.back() < *std::max_element(highest.begin(), highest.end()) ? 1 : 0;
        }
        // What a category held at most, at any time.
        std::map<std::pair<std::uint64_t, std::size_t>, std::uint64_t> most;
        recorded.replay([&](const Aggregator& state) {
            std::map<std::pair<std::uint64_t, std::size_t>, std::uint64_t> now;
            for (std::size_t i = 0; i < state.sites().size(); ++i) {
                const memlab::trace::Site& site = state.sites()[i];
                if (categories.at(i) && memlab::trace::counts_as_device_memory(site.kind)) {
                    now[{site.device, *categories[i]}] += site.live_bytes;
                }
            }
            for (const auto& [key, bytes] : now) {
                most[key] = std::max(most[key], bytes);
            }
        });
        for (const History::CategoryMost& each : history.categories) {
            CHECK(each.bytes == most[std::pair(each.device, each.category)]);
        }
    }
    CHECK(risen > 0);
}

TEST_CASE("who held what, and the curves, are exact at every moment of any recording") {
    std::size_t marks = 0;
    std::size_t ooms = 0;
    std::ptrdiff_t divided = 0;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        CAPTURE(seed);
        const Recorded recorded(PlausibleRecords::make(seed, 500));
        const SiteCategories categories = some_categories(recorded.report);
        HistoryLimits limits;
        limits.moments = 40;
        limits.sites = 6;
        limits.buckets = 64;
        History history = read_history(recorded.report, recorded.log(), categories, limits);
        const auto whole = [](const History::Followed& of) { return !of.nn_module; };
        CHECK(static_cast<std::size_t>(
                  std::count_if(history.sites.begin(), history.sites.end(), whole)) ==
              std::min<std::size_t>(recorded.report.sites.size(), 6));
        divided += std::count_if(history.sites.begin(), history.sites.end(), std::not_fn(whole));
        check_holders(recorded, history, categories);
        check_curves(recorded, history);
        for (const History::Event& event : history.events) {
            marks += event.what == History::What::mark ? 1 : 0;
            ooms += event.what == History::What::oom ? 1 : 0;
        }
        REQUIRE(history.events.back().what == History::What::end);
        CHECK(history.moments.back() == recorded.report.process.duration_ns);

        // All of it that is summed is as exact.
        limit_changes(history, recorded.report, categories, 20);
        std::size_t changes = 0;
        for (const History::Holder& holder : history.holders) {
            changes += holder.changes.size();
        }
        CHECK(changes <= 20);
        check_holders(recorded, history, categories);
        limit_changes(history, recorded.report, categories, 0);
        check_holders(recorded, history, categories);
        CHECK(history.nn_modules.depth == 0);
        for (const History::Rest& rest : history.rest) {
            if (rest.of.nn_module) {
                const auto& name = history.nn_modules.all[*rest.of.nn_module].name;
                CHECK((!name || name->empty()));
            }
        }
        std::uint64_t allocations = 0;
        std::uint64_t expected = 0;
        for (const History::Rest& rest : history.rest) {
            allocations += rest.allocations;
        }
        for (const History::Followed& of : history.sites) {
            allocations += of.nn_module ? 0 : recorded.report.sites[of.site].count;
        }
        for (const memlab::model::Site& site : recorded.report.sites) {
            expected += site.count;
        }
        CHECK(allocations == expected);
    }
    CHECK(marks > 0);
    CHECK(ooms > 0);
    CHECK(divided > 0);
}

TEST_CASE("maps are the pool's layout at their moments") {
    std::size_t segments = 0;
    std::size_t in_nn_modules = 0;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        CAPTURE(seed);
        const Recorded recorded(PlausibleRecords::make(seed, 400));
        const SiteCategories categories(recorded.report.sites.size());
        HistoryLimits limits;
        limits.moments = 16;
        limits.maps = 8;
        const History history = read_history(recorded.report, recorded.log(), categories, limits);
        std::set<std::size_t> peaks;
        for (const History::Event& event : history.events) {
            if (event.what == History::What::peak) {
                peaks.insert(event.moment.value());
            }
        }
        for (const History::Map& map : history.maps) {
            if (peaks.contains(map.moment)) {
                continue;  // of a state within one time
            }
            Aggregator state;
            for (const AnyRecord& record : recorded.records()) {
                if (std::max(time_of(record), state.duration_ns()) <= history.moments[map.moment]) {
                    feed(record, state);
                }
            }
            std::size_t at = 0;
            for (const History::Curves& curves : history.curves) {
                const auto device = static_cast<std::uint32_t>(curves.device->index);
                for (const SegmentLayout& segment : snapshot_segments(state, device)) {
                    REQUIRE(at < map.segments.size());
                    const History::Segment& got = map.segments[at++];
                    ++segments;
                    CHECK(got.device == device);
                    CHECK(got.address == segment.address);
                    CHECK(got.size == segment.size);
                    REQUIRE(got.parts.size() == segment.blocks.size());
                    for (std::size_t i = 0; i < got.parts.size(); ++i) {
                        CHECK(got.parts[i].offset == segment.blocks[i].address - segment.address);
                        CHECK(got.parts[i].length == segment.blocks[i].size);
                        CHECK(got.parts[i].site == segment.blocks[i].site);
                        CHECK(got.parts[i].nn_modules == segment.blocks[i].nn_modules);
                        CHECK(got.parts[i].label == segment.blocks[i].label);
                        CHECK(got.parts[i].label_detail == segment.blocks[i].label_detail);
                        in_nn_modules += segment.blocks[i].nn_modules != 0 ? 1 : 0;
                    }
                }
            }
            CHECK(at == map.segments.size());
        }
    }
    CHECK(segments > 20);
    CHECK(in_nn_modules > 20);
}

TEST_CASE("a report alone has its holders at the peak and at the end") {
    std::size_t divided = 0;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        CAPTURE(seed);
        const Recorded recorded(PlausibleRecords::make(seed, 500));
        const Report& report = recorded.report;
        const SiteCategories categories(report.sites.size());
        const History history = history_of_report(report, categories);
        for (const History::Event& event : history.events) {
            if (!event.moment) {
                CHECK(event.what != History::What::peak);
                continue;
            }
            State held;
            for (std::size_t i = 0; i < history.sites.size(); ++i) {
                held[history.sites[i]] = held_at(history.holders[i], *event.moment);
            }
            const bool end = event.what == History::What::end;
            State expected;
            for (std::size_t i = 0; i < report.sites.size(); ++i) {
                const memlab::model::Site& site = report.sites[i];
                expected[{i, std::nullopt}] = end ? Held{site.live_bytes, site.live_count}
                                                  : Held{site.at_peak_bytes, site.at_peak_count};
            }
            for (std::size_t stack = 0; stack < report.nn_modules.size(); ++stack) {
                for (const auto& each : report.nn_modules[stack].sites) {
                    const Held part = end ? Held{each.live_bytes, each.live_count}
                                          : Held{each.at_peak_bytes, each.at_peak_count};
                    Held& of = expected[{each.site, history.nn_modules.of_stack[stack]}];
                    Held& whole = expected[{each.site, std::nullopt}];
                    of = {of.first + part.first, of.second + part.second};
                    whole = {whole.first - part.first, whole.second - part.second};
                    divided += part.second != 0 ? 1 : 0;
                }
            }
            for (const auto& [of, each] : expected) {
                if (end || report.sites[of.site].device == event.device) {
                    CHECK(held[of] == each);
                }
            }
        }
        for (const History::Curves& curves : history.curves) {
            for (std::size_t i = 0; i + 1 < memlab::model::curve_count; ++i) {
                std::uint64_t highest = 0;
                for (const History::Bucket& bucket : curves.buckets) {
                    highest = std::max(highest, bucket.max[i]);
                }
                CHECK(highest == curves.device->curves[i]->peak_bytes);
            }
        }
    }
    CHECK(divided > 0);
}
