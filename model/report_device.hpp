// A report's figures of one GPU: its curves, its pool, and who held its memory at a moment.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/memory_label.hpp"
#include "model/report_ledger.hpp"
#include "model/report_shape.hpp"
#include "trace/record.hpp"

namespace memlab::model {

/// The curves of a device, in the order of the timeline's columns.
enum class Curve : std::size_t { requested, allocated, active, reserved, device_used };
inline constexpr std::size_t curve_count = 5;
inline constexpr std::array<const char*, curve_count> curve_names = {
    "requested", "allocated", "active", "reserved", "device_used"};
/// The figures of a curve in a row of the timeline: "allocated_min", ...
inline constexpr std::array<const char*, 3> row_figures = {"_min", "_max", "_last"};

/// Only the driver's figure for the whole device may be missing: nobody asked for it.
inline constexpr bool may_be_unknown(std::size_t curve) {
    return curve == static_cast<std::size_t>(Curve::device_used);
}

struct CurveSummary {
    std::uint64_t peak_bytes = 0;
    std::uint64_t peak_time_ns = 0;
    std::uint64_t at_end_bytes = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("peak_bytes", self.peak_bytes);
        visit.number("peak_time_ns", self.peak_time_ns);
        visit.number("at_end_bytes", self.at_end_bytes);
    }
    bool operator==(const CurveSummary&) const = default;
};

/// The current values of four curves.
struct CurveValues {
    std::uint64_t requested = 0;
    std::uint64_t allocated = 0;
    std::uint64_t active = 0;
    std::uint64_t reserved = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("requested_bytes", self.requested);
        visit.number("allocated_bytes", self.allocated);
        visit.number("active_bytes", self.active);
        visit.number("reserved_bytes", self.reserved);
    }
    bool operator==(const CurveValues&) const = default;
};

struct KindTotals {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("count", self.count);
        visit.number("bytes", self.bytes);
        visit.number("peak_bytes", self.peak_bytes);
        visit.number("live_count", self.live_count);
        visit.number("live_bytes", self.live_bytes);
    }
    bool operator==(const KindTotals&) const = default;
};

/// Who held memory at one moment, largest first; `other_*` sum the sites that are not listed.
struct Holders {
    struct Share {
        std::size_t site = 0;  ///< index into Report::sites
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
        std::vector<MemoryLabel> labels = {};  ///< of an OOM: the program's names for it
        std::uint64_t allocations = 0;         ///< of an OOM: all so far, freed ones included

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.index("site", self.site, Table::sites);
            visit.number("count", self.count);
            visit.number("bytes", self.bytes);
        }
        bool operator==(const Share&) const = default;
    };
    std::uint64_t time_ns = 0;  ///< of the peak; else 0
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::vector<Share> sites = {};
    std::uint64_t other_sites = 0;
    std::uint64_t other_count = 0;
    std::uint64_t other_bytes = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        fields(self, visit, [](auto& share, auto& item) { Holders::Share::fields(share, item); });
    }
    /// `share_fields(share, visit)`: of each site.
    template <typename Self, typename Visitor, typename ShareFields>
    static void fields(Self& self, Visitor& visit, ShareFields share_fields) {
        visit.number("count", self.count);
        visit.number("bytes", self.bytes);
        visit.list("sites", self.sites, share_fields);
        visit.group("other", [&self](auto& other) {
            other.number("sites", self.other_sites);
            other.number("count", self.other_count);
            other.number("bytes", self.other_bytes);
        });
    }
    bool operator==(const Holders&) const = default;
};

struct Fragmentation {
    std::optional<double> at_peak = {};
    std::optional<double> external = {};
    std::optional<double> internal = {};
    std::uint64_t largest_free_bytes = 0;
    std::uint64_t total_free_bytes = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.ratio("at_peak", self.at_peak);
        visit.ratio("external", self.external);
        visit.ratio("internal", self.internal);
        visit.number("largest_free_bytes", self.largest_free_bytes);
        visit.number("total_free_bytes", self.total_free_bytes);
    }
    bool operator==(const Fragmentation&) const = default;
};

/// Bytes of the other curves at the moment of the allocated peak.
struct CurvesAtPeak {
    std::uint64_t reserved = 0;
    std::uint64_t active = 0;
    std::uint64_t requested = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("reserved_bytes", self.reserved);
        visit.number("active_bytes", self.active);
        visit.number("requested_bytes", self.requested);
    }
    bool operator==(const CurvesAtPeak&) const = default;
};

/// A bucket with at least one event; the next row may begin many buckets later.
struct TimelineRow {
    /// What stands for null. No curve gets there.
    static constexpr std::uint64_t unknown = ~std::uint64_t{0};
    struct Values {
        std::uint64_t min = 0;
        std::uint64_t max = 0;
        std::uint64_t last = 0;
        bool operator==(const Values&) const = default;
    };
    std::uint64_t begin_ns = 0;
    std::array<std::optional<Values>, curve_count> curves = {};  ///< see may_be_unknown()
    bool operator==(const TimelineRow&) const = default;
};

/// In the file a row is a list: the number of its bucket, then the figures of each curve.
struct Timeline {
    std::uint64_t start_ns = 0;
    std::uint64_t bucket_ns = 0;
    std::vector<TimelineRow> rows = {};  ///< in order of time

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("start_ns", self.start_ns);
        visit.number("bucket_ns", self.bucket_ns);
        visit.rows("columns", "rows", self);
    }
    bool operator==(const Timeline&) const = default;
};

/// What the GPU did of one kind.
struct WorkTotals {
    std::uint64_t count = 0;
    std::uint64_t busy_ns = 0;
    std::uint64_t bytes = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("count", self.count);
        visit.number("busy_ns", self.busy_ns);
        visit.number("bytes", self.bytes);
    }
    bool operator==(const WorkTotals&) const = default;
};

/// The kernels that ran while the memory was at its peak, longest first.
struct KernelsAtPeak {
    struct Kernel {
        std::string name = {};  ///< mangled
        std::uint64_t count = 0;
        std::uint64_t busy_ns = 0;  ///< between from_ns and to_ns

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.text("name", self.name);
            visit.number("count", self.count);
            visit.number("busy_ns", self.busy_ns);
        }
        bool operator==(const Kernel&) const = default;
    };
    std::uint64_t from_ns = 0;
    std::uint64_t to_ns = 0;
    std::vector<Kernel> kernels = {};
    std::uint64_t other_names = 0;
    std::uint64_t other_count = 0;
    std::uint64_t other_ns = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("from_ns", self.from_ns);
        visit.number("to_ns", self.to_ns);
        visit.list("kernels", self.kernels);
        visit.group("other", [&self](auto& other) {
            other.number("names", self.other_names);
            other.number("count", self.other_count);
            other.number("busy_ns", self.other_ns);
        });
    }
    bool operator==(const KernelsAtPeak&) const = default;
};

/// A GPU, or what an allocator of the program's holds on one: its segments are allocations of the
/// GPU's, its allocations are cut from them.
struct Device {
    std::uint64_t index = 0;
    std::string name = {};
    std::string uuid = {};
    std::uint64_t total_bytes = 0;
    std::optional<std::uint64_t> limit_bytes = {};  ///< the part that MEMLAB_LIMIT allows
    std::int64_t driver_version = 0;
    std::string allocator = {};               ///< "PyTorch"; empty: a GPU
    std::optional<std::int64_t> on_gpu = {};  ///< of an allocator: the index of its GPU
    std::array<std::optional<CurveSummary>, curve_count> curves = {};  ///< see may_be_unknown()
    Named<KindTotals> kinds = {};
    Named<std::uint64_t> memory_stats = {};
    /// Of memory_stats, if that is of memlab's pool; PyTorch's -1: no limit.
    std::optional<std::int64_t> max_split_size = {};
    Fragmentation fragmentation = {};
    Timeline timeline = {};
    Holders at_peak = {};
    Holders live = {};
    /// What the GPU did, if that was recorded (MEMLAB_KERNELS): "kernel", "copy", "fill".
    std::optional<Named<WorkTotals>> work = {};
    std::optional<CurvesAtPeak> curves_at_peak = {};
    std::optional<KernelsAtPeak> kernels_at_peak = {};
    std::optional<Ledger> ledger = {};  ///< of a GPU, where it was kept

    const CurveSummary& curve(Curve which) const {
        static constexpr CurveSummary none;
        const auto& found = curves[static_cast<std::size_t>(which)];
        return found ? *found : none;
    }

    bool is_gpu() const { return allocator.empty(); }
    /// Whether it is PyTorch's cache.
    bool is_pytorchs() const { return allocator == trace::DeviceInfo::pytorch; }
    /// The index of the GPU itself, or of the allocator's.
    std::uint64_t gpu() const { return on_gpu ? static_cast<std::uint64_t>(*on_gpu) : index; }

    /// False for a GPU on which the program allocated nothing.
    bool used() const {
        return curve(Curve::reserved).peak_bytes != 0 || curve(Curve::allocated).peak_bytes != 0 ||
               !kinds.empty();
    }

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("index", self.index);
        visit.text("name", self.name);
        visit.text("uuid", self.uuid);
        visit.number("total_bytes", self.total_bytes);
        visit.number_or_null("limit_bytes", self.limit_bytes);
        visit.natural("driver_version", self.driver_version);
        visit.text_if_any("allocator", self.allocator);
        visit.natural_if_any("gpu", self.on_gpu);
        visit.line();
        visit.group("curves", [&self](auto& curves) {
            for (std::size_t curve = 0; curve < curve_count; ++curve) {
                curves.curve(curve_names[curve], self.curves[curve], may_be_unknown(curve));
            }
        });
        visit.line();
        visit.named("kinds", self.kinds);
        visit.line();
        visit.named_numbers("memory_stats", self.memory_stats, "max_split_size",
                            self.max_split_size);
        visit.line();
        visit.object("fragmentation", self.fragmentation);
        visit.line();
        visit.object("timeline", self.timeline);
        visit.line();
        visit.group("at_peak", [&self](auto& at_peak) {
            at_peak.number("time_ns", self.at_peak.time_ns);
            Holders::fields(self.at_peak, at_peak);
        });
        visit.line();
        visit.object("live", self.live);
        visit.line();
        visit.named_if_any("work", self.work);
        visit.line();
        visit.object_if_any("curves_at_peak", self.curves_at_peak);
        visit.line();
        visit.object_if_any("kernels_at_peak", self.kernels_at_peak);
        visit.line();
        visit.object_if_any("ledger", self.ledger);
    }
    bool operator==(const Device&) const = default;
};

/// False for memory on the host, managed memory (it migrates), and memory of another process: the
/// curves do not include these.
inline bool is_in_curves(const std::string& kind) {
    return kind != "managed" && kind != "pinned" && kind != "ipc_import";
}

}  // namespace memlab::model
