// A naive reference model of the aggregator: a list of live allocations, with all figures
// recomputed after every change.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/unit/trace/recording.hpp"
#include "tests/unit/trace/scopes_model.hpp"
#include "trace/aggregate/aggregator.hpp"

namespace memlab::test {

class AggregatorModel {
  public:
    using SiteKey = std::tuple<std::uint32_t, std::uint32_t, MemoryKind, std::uint32_t>;
    struct Allocation {
        Event event;
        std::uint64_t serial = 0;
        bool given_back = false;
        bool in_segment = false;  ///< when it was allocated; segments may come over it later
    };
    struct SiteFigures {
        std::uint64_t count = 0;
        std::uint64_t requested = 0;
        std::uint64_t bytes = 0;
        std::uint64_t peak = 0;
        std::uint64_t peak_time = 0;
        std::uint64_t temporaries = 0;
        std::uint64_t segments = 0;
        std::vector<std::uint64_t> lifetimes;
        std::pair<std::uint64_t, std::uint64_t> collected;          ///< count, bytes
        std::pair<std::uint64_t, std::uint64_t> collected_at_peak;  ///< count, bytes
        std::pair<std::uint64_t, std::uint64_t> live;               ///< count, bytes
        std::pair<std::uint64_t, std::uint64_t> at_peak;            ///< count, bytes
    };
    struct Segment {
        std::uint64_t size = 0;
        std::uint32_t context = 0;
    };
    struct Moment {
        std::uint64_t time = 0;
        Timeline::Values values{};
    };
    struct Kind {
        std::uint64_t peak = 0;
        std::uint64_t peak_time = 0;
        std::uint64_t now = 0;
        std::uint64_t lowest_since_peak = 0;
        std::map<SiteKey, std::pair<std::uint64_t, std::uint64_t>> at_peak;  ///< count, bytes
    };
    struct Device {
        std::map<std::uint64_t, Segment> segments;
        std::vector<Moment> history;
        std::optional<std::uint64_t> used;
        Timeline::Values peak{};
        Timeline::Values peak_time{};
        MemoryStats stats;
        std::map<MemoryKind, Kind> kinds;  ///< those that are in no curve of the device's
    };

    void on(const AnyRecord& record) {
        if (const auto* event = std::get_if<Event>(&record)) {
            now = std::max(now, event->time_ns);
            this->event(*event);
        } else if (const auto* lost = std::get_if<ContextLost>(&record)) {
            now = std::max(now, lost->time_ns);
            lose(lost->context);
        } else if (const auto* sample = std::get_if<DeviceSample>(&record)) {
            now = std::max(now, sample->time_ns);
            devices[sample->device].used = sample->used;
            look(sample->device);
        } else if (const auto* oom = std::get_if<OomEvent>(&record)) {
            now = std::max(now, oom->time_ns);
            devices[oom->device].stats.num_ooms += oom->kind == MemoryKind::device ? 1 : 0;
        } else if (const auto* device = std::get_if<DeviceInfo>(&record)) {
            devices[device->index];
        } else if (const auto* string = std::get_if<StringDef>(&record)) {
            strings.push_back(string->text);
        } else if (const auto* end = std::get_if<End>(&record)) {
            now = std::max(now, end->time_ns);
        }
    }

    std::map<SiteKey, SiteFigures> sites;
    std::map<std::uint32_t, Device> devices;
    std::uint64_t unmatched_frees = 0;
    std::uint64_t unmatched_segment_frees = 0;
    std::uint64_t overwritten = 0;
    std::uint64_t overwritten_segments = 0;
    std::uint64_t now = 0;
    ScopesModel scopes;

    /// requested, allocated, active, reserved, device_used: sums over the live allocations.
    Timeline::Values values(std::uint32_t device) const {
        Timeline::Values sum{};
        for (const Allocation& each : live) {
            if (each.event.device != device || !counts_as_device_memory(each.event.kind)) {
                continue;
            }
            sum[0] += each.given_back ? 0 : each.event.requested;
            sum[1] += each.given_back ? 0 : each.event.size;
            sum[2] += each.event.size;
            sum[3] += pooled(each.event) ? 0 : each.event.size;
        }
        const auto at = devices.find(device);
        if (at != devices.end()) {
            for (const auto& [address, segment] : at->second.segments) {
                sum[3] += segment.size;
            }
            sum[4] = at->second.used.value_or(Timeline::unknown);
        }
        return sum;
    }

  private:
    static bool pooled(const Event& event) { return event.origin == Origin::pool; }
    static int space(MemoryKind kind) {
        return kind == MemoryKind::array ? 1 : kind == MemoryKind::vmm ? 2 : 0;
    }
    static SiteKey site_of(const Event& event) {
        return {event.stack, event.api, event.kind, event.device};
    }

    /// Sites are numbered in order of first appearance.
    std::uint32_t site_number(const Event& event) {
        return site_numbers
            .try_emplace(site_of(event), static_cast<std::uint32_t>(site_numbers.size()))
            .first->second;
    }
    std::uint64_t allocated_everywhere() const {
        std::uint64_t sum = 0;
        for (const auto& [index, device] : devices) {
            sum += values(index)[1];
        }
        return sum;
    }

    void event(const Event& event) {
        Event scope = event;
        scope.time_ns = now;
        if (event.type == EventType::scope_begin) {
            scopes.begin(scope, strings[event.name - 1], allocated_everywhere());
        } else if (event.type == EventType::scope_end) {
            scopes.end(scope);
        }
        Device& device = devices[event.device];
        switch (event.type) {
            case EventType::alloc:
                allocate(event);
                break;
            case EventType::free_requested: {
                Allocation* const found = find(event);
                if (found == nullptr || found->given_back) {
                    ++unmatched_frees;
                    break;
                }
                const Event alloc = found->event;
                collect(*found, event);
                give_back(*found, event.thread);
                if (!pooled(alloc)) {
                    finish(alloc);
                }
                if (counts_as_device_memory(alloc.kind)) {
                    look(alloc.device);
                }
                break;
            }
            case EventType::free_completed:
                if (Allocation* const found = find(event)) {
                    const Event alloc = found->event;
                    if (!found->given_back) {
                        collect(*found, event);
                        give_back(*found, event.thread);
                    }
                    finish(alloc);
                    look(alloc.device);
                }
                break;
            case EventType::segment_alloc:
                end_blocks(event.device, event.address, event.size);
                site_number(event);
                sites[site_of(event)].segments += event.size;
                ++device.stats.num_device_alloc;
                device.segments[event.address] = {event.size, event.context};
                increase(device.stats.segment, event.size <= 2U << 20, 1);
                increase(device.stats.reserved_bytes, event.size <= 2U << 20, event.size);
                look(event.device);
                break;
            case EventType::segment_free:
                if (device.segments.count(event.address) == 0) {
                    ++unmatched_segment_frees;
                    break;
                }
                remove_segment(event.device, event.address);
                look(event.device);
                break;
            case EventType::alloc_retry:
                ++device.stats.num_alloc_retries;
                break;
            case EventType::sync:
                ++device.stats.num_sync_all_streams;
                break;
            default:
                break;
        }
    }

    void allocate(const Event& event) {
        if (Allocation* const found = find(event)) {
            overwrite(found->event);
        }
        Device& device = devices[event.device];
        if (pooled(event)) {
            end_blocks(event.device, event.address, event.size);
            const auto before = splits(event.device);
            live.push_back({event, ++serials, false, inside_a_segment(event.device, event)});
            const bool small = small_pool(event.device, event);
            small_of[event.address] = small;
            increase(device.stats.allocation, small, 1);
            increase(device.stats.allocated_bytes, small, event.size);
            increase(device.stats.requested_bytes, small, event.requested);
            increase(device.stats.active, small, 1);
            increase(device.stats.active_bytes, small, event.size);
            account_splits(event.device, before);
        } else {
            live.push_back({event, ++serials, false, false});
        }
        SiteFigures& site = sites[site_of(event)];
        ++site.count;
        site.requested += event.requested;
        site.bytes += event.size;
        ++site.live.first;
        site.live.second += event.size;
        if (site.live.second > site.peak) {
            site.peak = site.live.second;
            site.peak_time = now;
        }
        latest[event.thread] = serials;
        const std::uint32_t number = site_number(event);
        if (counts_as_device_memory(event.kind)) {
            scopes.allocated(serials, event.thread, number, event.size, allocated_everywhere());
            look(event.device);
        } else {
            look_at_kind(event);
        }
    }

    /// After memory of a kind that has a curve of its own came or went.
    void look_at_kind(const Event& event) {
        Kind& kind = devices[event.device].kinds[event.kind];
        kind.now = 0;
        for (const Allocation& each : live) {
            const bool counts = each.event.device == event.device && each.event.kind == event.kind;
            kind.now += counts && !each.given_back ? each.event.size : 0;
        }
        kind.lowest_since_peak = std::min(kind.lowest_since_peak, kind.now);
        if (kind.now > kind.peak) {
            kind.peak = kind.lowest_since_peak = kind.now;
            kind.peak_time = now;
            kind.at_peak.clear();
            for (const auto& [key, site] : sites) {
                if (std::get<2>(key) == event.kind && std::get<3>(key) == event.device &&
                    site.live.first != 0) {
                    kind.at_peak[key] = site.live;
                }
            }
        }
    }

    Allocation* find(const Event& event) {
        for (Allocation& each : live) {
            if (each.event.address == event.address &&
                space(each.event.kind) == space(event.kind)) {
                return &each;
            }
        }
        return nullptr;
    }

    void collect(const Allocation& allocation, const Event& free) {
        if (free.name == 0) {
            return;
        }
        SiteFigures& site = sites[site_of(allocation.event)];
        ++site.collected.first;
        site.collected.second += allocation.event.size;
        if (live_at_peak[allocation.event.device].contains(allocation.serial)) {
            ++site.collected_at_peak.first;
            site.collected_at_peak.second += allocation.event.size;
        }
    }

    void give_back(Allocation& allocation, std::optional<std::uint32_t> freeing) {
        const Event& event = allocation.event;
        allocation.given_back = true;
        if (counts_as_device_memory(event.kind)) {
            scopes.freed(allocation.serial, freeing);
        }
        SiteFigures& site = sites[site_of(event)];
        site.lifetimes.push_back(now - event.time_ns);
        --site.live.first;
        site.live.second -= event.size;
        if (!counts_as_device_memory(event.kind)) {
            look_at_kind(event);
        }
        if (freeing && latest[event.thread] == allocation.serial) {
            ++site.temporaries;
        }
        if (pooled(event)) {
            MemoryStats& stats = devices[event.device].stats;
            const bool small = small_of[event.address];
            decrease(stats.allocation, small, 1);
            decrease(stats.allocated_bytes, small, event.size);
            decrease(stats.requested_bytes, small, event.requested);
        }
    }

    void finish(const Event event) {
        const auto before = splits(event.device);
        std::erase_if(live, [&](const Allocation& each) {
            return each.event.address == event.address &&
                   space(each.event.kind) == space(event.kind);
        });
        if (pooled(event)) {
            MemoryStats& stats = devices[event.device].stats;
            const bool small = small_of[event.address];
            decrease(stats.active, small, 1);
            decrease(stats.active_bytes, small, event.size);
            account_splits(event.device, before);
        }
    }

    void overwrite(const Event event) {
        ++overwritten;
        Allocation* const found = find(event);
        if (!found->given_back) {
            give_back(*found, std::nullopt);
        }
        finish(event);
        look(event.device);
    }

    bool inside_a_segment(std::uint32_t device, const Event& event) const {
        for (const auto& [address, segment] : devices.at(device).segments) {
            if (event.address >= address && event.address + event.size <= address + segment.size) {
                return true;
            }
        }
        return false;
    }

    bool small_pool(std::uint32_t device, const Event& event) const {
        for (const auto& [address, segment] : devices.at(device).segments) {
            if (event.address >= address && event.address + event.size <= address + segment.size) {
                return segment.size <= 2U << 20;
            }
        }
        return event.size <= 1U << 20;
    }

    /// Ends the blocks in a range, by address; blocks that are in no segment are left alone.
    void end_blocks(std::uint32_t device, std::uint64_t address, std::uint64_t size) {
        std::vector<Event> doomed;
        for (const Allocation& each : live) {
            if (each.event.device == device && pooled(each.event) &&
                each.event.address < address + size &&
                address < each.event.address + each.event.size && each.in_segment) {
                doomed.push_back(each.event);
            }
        }
        std::sort(doomed.begin(), doomed.end(),
                  [](const Event& a, const Event& b) { return a.address < b.address; });
        for (const Event& event : doomed) {
            overwrite(event);
        }
    }

    void remove_segment(std::uint32_t index, std::uint64_t address) {
        Device& device = devices[index];
        const Segment segment = device.segments[address];
        end_blocks(index, address, segment.size);
        ++device.stats.num_device_free;
        decrease(device.stats.segment, segment.size <= 2U << 20, 1);
        decrease(device.stats.reserved_bytes, segment.size <= 2U << 20, segment.size);
        device.segments.erase(address);
    }

    void lose(std::uint32_t context) {
        std::vector<Event> doomed;
        for (const Allocation& each : live) {
            if (each.event.context == context) {
                doomed.push_back(each.event);
            }
        }
        std::sort(doomed.begin(), doomed.end(), [](const Event& a, const Event& b) {
            return std::pair(space(a.kind), a.address) < std::pair(space(b.kind), b.address);
        });
        for (const Event& event : doomed) {
            Allocation* const found = find(event);
            if (!found->given_back) {
                give_back(*found, std::nullopt);
            }
            finish(event);
        }
        for (auto& [index, device] : devices) {
            const auto segments = device.segments;
            for (const auto& [address, segment] : segments) {
                if (segment.context == context) {
                    remove_segment(index, address);
                }
            }
            look(index);
        }
    }

    struct Splits {
        std::uint64_t count[2] = {0, 0};  ///< large, small
        std::uint64_t bytes[2] = {0, 0};
    };

    /// The gaps of split segments, from the current layout.
    Splits splits(std::uint32_t index) const {
        Splits result;
        const auto at = devices.find(index);
        if (at == devices.end()) {
            return result;
        }
        for (const auto& [address, segment] : at->second.segments) {
            std::map<std::uint64_t, std::uint64_t> blocks;
            for (const Allocation& each : live) {
                if (each.in_segment && each.event.device == index && each.event.size != 0 &&
                    each.event.address >= address &&
                    each.event.address + each.event.size <= address + segment.size) {
                    blocks[each.event.address] = each.event.size;
                }
            }
            if (blocks.empty()) {
                continue;
            }
            const int small = segment.size <= 2U << 20 ? 1 : 0;
            std::uint64_t place = address;
            blocks[address + segment.size] = 0;
            for (const auto& [block, size] : blocks) {
                if (block > place) {
                    ++result.count[small];
                    result.bytes[small] += block - place;
                }
                place = block + size;
            }
        }
        return result;
    }

    void account_splits(std::uint32_t index, const Splits& before) {
        const Splits after = splits(index);
        MemoryStats& stats = devices[index].stats;
        for (const bool small : {false, true}) {
            change(stats.inactive_split, small, before.count[small], after.count[small]);
            change(stats.inactive_split_bytes, small, before.bytes[small], after.bytes[small]);
        }
    }

    static void change(StatByPool& stat, bool small, std::uint64_t from, std::uint64_t to) {
        if (to > from) {
            increase(stat, small, to - from);
        } else {
            decrease(stat, small, from - to);
        }
    }
    static void increase(StatByPool& stat, bool small, std::uint64_t by) {
        for (Stat* const each : {&stat.all, small ? &stat.small_pool : &stat.large_pool}) {
            each->current += by;
            each->allocated += by;
            each->peak = std::max(each->peak, each->current);
        }
    }
    static void decrease(StatByPool& stat, bool small, std::uint64_t by) {
        for (Stat* const each : {&stat.all, small ? &stat.small_pool : &stat.large_pool}) {
            each->current -= by;
            each->freed += by;
        }
    }

    /// Takes the device's state into its history.
    void look(std::uint32_t index) {
        Device& device = devices[index];
        const Timeline::Values current = values(index);
        device.history.push_back({now, current});
        for (std::size_t curve = 0; curve < curve_count; ++curve) {
            if (current[curve] == Timeline::unknown || current[curve] <= device.peak[curve]) {
                continue;
            }
            device.peak[curve] = current[curve];
            device.peak_time[curve] = now;
            if (curve == 1) {
                for (auto& [key, site] : sites) {
                    if (std::get<3>(key) == index) {
                        site.at_peak = site.live;
                        site.collected_at_peak = {};
                    }
                }
                std::set<std::uint64_t>& serials_at_peak = live_at_peak[index];
                serials_at_peak.clear();
                for (const Allocation& each : live) {
                    if (each.event.device == index && !each.given_back &&
                        counts_as_device_memory(each.event.kind)) {
                        serials_at_peak.insert(each.serial);
                    }
                }
            }
        }
    }

    std::vector<Allocation> live;
    std::map<std::uint32_t, std::set<std::uint64_t>> live_at_peak;  ///< by device: serials
    std::vector<std::string> strings;
    std::map<SiteKey, std::uint32_t> site_numbers;
    std::map<std::uint64_t, bool> small_of;
    std::map<std::uint32_t, std::uint64_t> latest;
    std::uint64_t serials = 0;
};

}  // namespace memlab::test
