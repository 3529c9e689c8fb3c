// The figures of a recording, as the Aggregator keeps and shows them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/aggregate/kind_curve.hpp"
#include "trace/aggregate/labels.hpp"
#include "trace/aggregate/ledger.hpp"
#include "trace/aggregate/lifetimes.hpp"
#include "trace/aggregate/pool_layout.hpp"
#include "trace/aggregate/site_table.hpp"
#include "trace/aggregate/timeline.hpp"
#include "trace/record.hpp"

namespace memlab::trace {

/// The curves of a device; the first four cover all device memory of the process.
enum class CurveName : std::uint8_t { requested, allocated, active, reserved, device_used };
/// "requested", "allocated", ...
const char* name_of(CurveName curve);

/// How the recording ended.
enum class Ended : std::uint8_t { exit, quick_exit, cut_off };

/// All allocations of one kind on one device.
struct KindTotals {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.count, self.bytes, self.peak_bytes, self.live_count, self.live_bytes);
    }
};

/// The inputs of the three fragmentation figures, of the pool only; see docs/report-format.md.
struct Fragmentation {
    std::uint64_t peak_active = 0;
    std::uint64_t peak_reserved = 0;
    std::uint64_t largest_free = 0;  ///< just before the pool's latest growth to a new maximum
    std::uint64_t total_free = 0;
    std::uint64_t requested_at_peak = 0;  ///< at the pool's allocated peak
    std::uint64_t allocated_at_peak = 0;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.peak_active, self.peak_reserved, self.largest_free, self.total_free,
                self.requested_at_peak, self.allocated_at_peak);
    }
};

/// All allocations of one kind from one stack by one API function on one device.
struct Site {
    std::uint32_t stack = 0;  ///< index into stacks()
    std::uint32_t api = 0;    ///< index into strings
    std::uint32_t device = 0;
    MemoryKind kind = MemoryKind::device;
    std::uint64_t count = 0;
    std::uint64_t requested_bytes = 0;
    std::uint64_t bytes = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t peak_time_ns = 0;
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;
    std::uint64_t temporaries = 0;
    std::uint64_t freed_elsewhere = 0;  ///< by another thread than allocated it
    std::uint64_t segment_count = 0;
    std::uint64_t segment_bytes = 0;
    Lifetimes lifetimes;

    // What it held at the device's allocated peak number `peak_checked`. Outdated when there were
    // newer peaks, so read it through Aggregator::held_at_peak().
    std::uint64_t at_peak_count = 0;
    std::uint64_t at_peak_bytes = 0;
    std::uint64_t peak_checked = 0;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.stack, self.api, self.device, self.kind, self.count, self.requested_bytes,
                self.bytes, self.peak_bytes, self.peak_time_ns, self.live_count, self.live_bytes,
                self.temporaries, self.freed_elsewhere, self.segment_count, self.segment_bytes,
                self.lifetimes, self.at_peak_count, self.at_peak_bytes, self.peak_checked);
    }
};

/// Before the live bytes of `holder` change: keeps what it held at its device's allocated peak,
/// which is number `peak_number`. Of a Site, and of parts of one.
template <typename SiteOrPart>
void keep_peak(SiteOrPart& holder, std::uint64_t peak_number) {
    if (holder.peak_checked != peak_number) {
        holder.peak_checked = peak_number;
        holder.at_peak_count = holder.live_count;
        holder.at_peak_bytes = holder.live_bytes;
    }
}

/// What of a site was freed by a garbage collector of the program's language: it was held until the
/// collector ran, though the program could not reach it any more.
struct Collected {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    // The part that was live at the device's allocated peak number `peak_number`. Of an earlier
    // peak when there were newer ones, so read it through Aggregator::collected().
    std::uint64_t at_peak_count = 0;
    std::uint64_t at_peak_bytes = 0;
    std::uint64_t peak_number = 0;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.count, self.bytes, self.at_peak_count, self.at_peak_bytes, self.peak_number);
    }
};

/// What a site holds.
using Holder = SiteTable::Item;

/// A device's memory by site: the largest sites, and the sum of the rest. count and bytes are the
/// totals.
struct Composition {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::vector<Holder> sites;  ///< by bytes, largest first; ties by index
    std::uint64_t other_sites = 0;
    std::uint64_t other_count = 0;
    std::uint64_t other_bytes = 0;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.count, self.bytes, self.sites, self.other_sites, self.other_count,
                self.other_bytes);
    }
};

/// Sorts the sites, and keeps the largest `limit` of them.
void limit_sites(Composition& composition, std::size_t limit);

/// All work of one kind on one device.
struct WorkTotals {
    std::uint64_t count = 0;
    std::uint64_t busy_ns = 0;  ///< sum of durations: concurrent work counts twice
    std::uint64_t bytes = 0;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.count, self.busy_ns, self.bytes);
    }
};

/// A kernel's activity while the memory was at its peak.
struct KernelAtPeak {
    std::uint32_t name = 0;  ///< index into strings
    std::uint64_t count = 0;
    std::uint64_t busy_ns = 0;  ///< the part of its running time within that interval

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.name, self.count, self.busy_ns);
    }
};

/// The interval of a device's allocated peak: from when it was reached until the curve first fell,
/// and at least a millisecond, since the work that uses an allocation follows a little later.
struct PeakMoment {
    static constexpr std::uint64_t min_ns = 1'000'000;

    bool holds = false;  ///< the curve has not fallen since
    std::uint64_t fell_ns = 0;
    std::unordered_map<std::uint32_t, KernelAtPeak> kernels;  ///< by name

    /// The end (exclusive) of the interval that began at `peak_ns`.
    std::uint64_t end_ns(std::uint64_t peak_ns) const;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.holds, self.fell_ns, self.kernels);
    }
};

/// A stretch in which memory of the pool's, or mapped by the program, was away from its device.
struct Absence {
    std::uint64_t begin_ns = 0;
    std::uint64_t end_ns = 0;  ///< 0: it is away
    std::uint64_t bytes = 0;   ///< at most

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.begin_ns, self.end_ns, self.bytes);
    }
};

struct DeviceTotals {
    DeviceInfo info;
    std::array<Curve, curve_count> curves{};
    bool sampled = false;  ///< device_used has a value
    std::array<KindTotals, static_cast<std::size_t>(memory_kind_count)> kinds{};
    PoolLayout pool;
    Fragmentation fragmentation;
    Timeline timeline;

    std::array<WorkTotals, static_cast<std::size_t>(work_kind_count)> work{};
    PeakMoment peak_moment;
    /// The other curves at the allocated peak, by CurveName; device_used: the latest sample then.
    std::array<std::uint64_t, curve_count> at_peak{};
    bool at_peak_known = false;     ///< false after a checkpoint that did not have them
    std::uint64_t peak_number = 0;  ///< number of new maxima of `allocated`
    std::uint64_t peak_serial = 0;  ///< Live::serial of the allocation that made the latest one
    std::uint64_t allocated_since_mark = 0;
    std::uint64_t reserved_since_mark = 0;
    /// The part of `allocated` that is segments of allocators seen from inside.
    std::uint64_t segment_bytes = 0;
    Ledger ledger;  ///< of a GPU
    /// Of the pool's segments, and of what the program maps itself: not in `reserved` meanwhile,
    /// while all else stays as it is.
    std::uint64_t away_bytes = 0;
    static constexpr std::size_t max_absences = 1024;
    std::vector<Absence> absences;
    std::uint64_t absence_count = 0;
    /// Of the kinds that `curves` do not include, once one occurred; none: not known, since the
    /// recording continues from a checkpoint that had no such curves.
    std::map<MemoryKind, std::optional<KindCurve>> kind_curves;

    const Curve& curve(CurveName name) const { return curves[static_cast<std::size_t>(name)]; }
    Curve& curve(CurveName name) { return curves[static_cast<std::size_t>(name)]; }
    /// From now on so much is away; 0: all is back.
    void moved(std::uint64_t away, std::uint64_t now_ns) {
        Curve& reserved = curve(CurveName::reserved);
        const std::uint64_t all = reserved.current + away_bytes;
        const bool was_away = away_bytes != 0;
        away_bytes = std::min(away, all);
        reserved.current = all - away_bytes;
        if (!was_away && away_bytes != 0) {
            ++absence_count;
            if (absences.size() < max_absences) {
                absences.push_back({now_ns, 0, away_bytes});
            }
        } else if (was_away && !absences.empty() && absence_count == absences.size()) {
            absences.back().bytes = std::max(absences.back().bytes, away_bytes);
            absences.back().end_ns = away_bytes == 0 ? now_ns : 0;
        }
    }
    /// Of what may be away, which counts as leaving first.
    void no_longer_reserved(std::uint64_t bytes) {
        const std::uint64_t gone = std::min(bytes, away_bytes);
        away_bytes -= gone;
        curve(CurveName::reserved).current -= bytes - gone;
    }
    /// What the allocations take at this moment.
    RecordedBytes recorded() const {
        const auto present = [this](std::uint64_t of_pool) {
            return of_pool - std::min(of_pool, away_bytes);
        };
        RecordedBytes bytes{.reserved = curve(CurveName::reserved).current,
                            .pool_reserved = present(pool.stats.reserved_bytes.all.current),
                            .pool_active = present(pool.stats.active_bytes.all.current),
                            .segments = segment_bytes,
                            .kinds = {}};
        for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
            bytes.kinds[kind] = kinds[kind].live_bytes;
        }
        // Of the pool first.
        std::uint64_t& mapped = bytes.kinds[static_cast<std::size_t>(MemoryKind::vmm)];
        mapped -= std::min(
            mapped, away_bytes - std::min(away_bytes, pool.stats.reserved_bytes.all.current));
        return bytes;
    }

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.curves, self.sampled, self.kinds, self.pool, self.fragmentation, self.timeline,
                self.work, self.peak_moment, self.peak_number, self.allocated_since_mark,
                self.reserved_since_mark, self.segment_bytes);
        if (archive.version() >= 2) {
            archive(self.ledger);
            archive(self.peak_serial);
        }
        if (archive.version() >= 3) {
            archive(self.at_peak, self.at_peak_known);
        }
        if (archive.version() >= 9) {
            archive(self.away_bytes, self.absences, self.absence_count);
        }
        if (archive.version() >= 5) {
            archive(self.kind_curves);
        } else if constexpr (Archive::reading) {
            for (std::size_t i = 0; i < self.kinds.size(); ++i) {
                const auto kind = static_cast<MemoryKind>(i);
                if (self.kinds[i].count != 0 && !counts_as_device_memory(kind)) {
                    self.kind_curves[kind].reset();
                }
            }
        }
    }
    /// Null: not known.
    KindCurve* kind_curve(MemoryKind kind) {
        const auto [at, is_new] = kind_curves.try_emplace(kind, std::in_place);
        return at->second ? &*at->second : nullptr;
    }
};

struct ContextTotals {
    ContextInfo info;
    bool lost = false;
    std::uint64_t lost_time_ns = 0;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.lost, self.lost_time_ns);
    }
};

/// Bytes of memlab's pools on a device.
struct PoolBytes {
    std::uint64_t reserved = 0;
    std::uint64_t active = 0;
    std::uint64_t allocated = 0;
    std::uint64_t largest_free = 0;  ///< the largest contiguous part of reserved - active
    std::uint64_t large_free = 0;    ///< the part of reserved - active in segments of large blocks

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.reserved, self.active, self.allocated, self.largest_free, self.large_free);
    }
};

/// What NVML said of the other processes on a GPU.
struct OtherProcesses {
    bool known = false;
    std::uint64_t time_ns = 0;
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.known, self.time_ns, self.bytes, self.count);
    }
};

/// A failed allocation and the memory state right after it.
struct OomTotals {
    OomEvent event;
    std::array<std::uint64_t, 4> current{};  ///< requested, allocated, active, reserved
    PoolBytes pool;
    /// Of an allocator of the program's: what the process has reserved on its GPU beside it.
    std::uint64_t reserved_beside = 0;
    std::array<std::uint64_t, static_cast<std::size_t>(memory_kind_count)> kinds{};  ///< live bytes
    Composition holders;
    /// For each of holders.sites: the number of its allocations so far, including freed ones.
    std::vector<std::uint64_t> allocations;
    /// The labels of the live memory of holders.sites, as in LabelStats::by_site().
    std::vector<SiteLabel> labels;
    std::uint64_t allocations_on_gpu = 0;  ///< of any kind, so far: not those of allocators on it
    OtherProcesses others;                 ///< as NVML said next; where that was too late, last

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive.record(self.event);
        archive(self.current, self.pool, self.reserved_beside, self.kinds, self.holders,
                self.allocations, self.labels);
        if (archive.version() >= 6) {
            archive(self.allocations_on_gpu, self.others);
        }
    }
};

struct MarkedDevice {
    std::uint32_t device = 0;
    std::array<std::uint64_t, 4> current{};  ///< requested, allocated, active, reserved
    std::uint64_t allocated_peak = 0;        ///< since the previous mark
    std::uint64_t reserved_peak = 0;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.device, self.current, self.allocated_peak, self.reserved_peak);
    }
};

struct MarkTotals {
    EventType type = EventType::mark;
    std::uint32_t name = 0;
    std::uint32_t thread = 0;
    std::uint64_t time_ns = 0;
    std::vector<MarkedDevice> devices;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.type, self.name, self.thread, self.time_ns, self.devices);
    }
};

struct MissedTotals {
    std::uint32_t reason = 0;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t first_time_ns = 0;
    Figures figures = Figures::unknown;  ///< of all with this reason, the worst

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.reason, self.count, self.bytes, self.first_time_ns);
        if (archive.version() >= 5) {
            archive.choice(self.figures, Figures::at_least);
        }
    }
};

/// Allocations of one kind that bypassed memlab, by API function and stack.
struct BypassTotals {
    std::uint32_t device = 0;
    MemoryKind kind = MemoryKind::device;
    std::uint32_t api = 0;
    std::uint32_t stack = 0;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t first_time_ns = 0;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.device, self.kind, self.api, self.stack, self.count, self.bytes,
                self.first_time_ns);
    }
};

/// Indications of missing records.
struct Integrity {
    std::uint64_t unmatched_frees = 0;
    std::uint64_t unmatched_segment_frees = 0;
    std::uint64_t overwritten_allocations = 0;
    std::uint64_t overwritten_segments = 0;
    std::uint64_t earlier_times = 0;  ///< events before the one that is recorded in front of them
    bool incomplete = false;
    bool overflowed = false;  ///< the bytes of all allocations do not fit into 64 bits

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.unmatched_frees, self.unmatched_segment_frees, self.overwritten_allocations,
                self.overwritten_segments, self.incomplete);
        if (archive.version() >= 5) {
            archive(self.earlier_times, self.overflowed);
        }
    }
};

/// One live allocation.
struct LiveTotals {
    std::uint64_t address = 0;  ///< or the handle
    std::uint32_t site = 0;
    std::uint32_t thread = 0;        ///< that allocated it
    std::uint32_t label = 0;         ///< string id; 0: none
    std::uint32_t label_detail = 0;  ///< the same
    std::uint64_t time_ns = 0;
    std::uint64_t requested = 0;
    std::uint64_t size = 0;
};

/// A stack as indexes into frames().
struct StackFrames {
    std::vector<std::uint32_t> frames;
    bool truncated = false;
};

}  // namespace memlab::trace
