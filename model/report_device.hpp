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
#include "trace/aggregate/timeline.hpp"
#include "trace/record.hpp"

namespace memlab::model {

/// The curves of a device, in the order of the timeline's columns.
enum class Curve : std::size_t { requested, allocated, active, reserved, device_used };
inline constexpr std::size_t curve_count = 5;
inline constexpr std::array<const char*, curve_count> curve_names = {
    "requested", "allocated", "active", "reserved", "device_used"};
inline constexpr std::array<const char*, curve_count> curve_descriptions = {
    "what the program asked for", "the blocks that serve it",
    "allocated, and freed blocks that are not yet safe to reuse", "what is held from the driver",
    "the driver's figure for the whole device, other processes included; sampled, not followed, "
    "and "
    "all null when no sample was taken"};
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
        visit.number({"peak_bytes", "the highest value"}, self.peak_bytes);
        visit.number({"peak_time_ns", "the first moment at it"}, self.peak_time_ns);
        visit.number({"at_end_bytes", "the value at the end"}, self.at_end_bytes);
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
        visit.number({"requested_bytes", "what the program asked for"}, self.requested);
        visit.number({"allocated_bytes", "the blocks that serve it"}, self.allocated);
        visit.number({"active_bytes", "allocated, and freed blocks that are not yet safe to reuse"},
                     self.active);
        visit.number({"reserved_bytes", "what is held from the driver"}, self.reserved);
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
        visit.number({"count", "allocations over the whole run"}, self.count);
        visit.number({"bytes", "their sum"}, self.bytes);
        visit.number({"peak_bytes", "the most that was held at once"}, self.peak_bytes);
        visit.number({"live_count", "allocations held at the end"}, self.live_count);
        visit.number({"live_bytes", "bytes held at the end"}, self.live_bytes);
    }
    bool operator==(const KindTotals&) const = default;
};

/// Who held memory at one moment, largest first; `other_*` sum the sites that are not listed.
struct Holders {
    static constexpr std::size_t max_sites = 256;
    static constexpr std::size_t max_oom_sites = 32;
    struct Share {
        std::size_t site = 0;  ///< index into Report::sites
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
        std::vector<MemoryLabel> labels = {};  ///< of an OOM: the program's names for it
        std::uint64_t allocations = 0;         ///< of an OOM: all so far, freed ones included

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.index({"site", "the call site"}, self.site, Table::sites);
            visit.number({"count", "allocations that it held"}, self.count);
            visit.number({"bytes", "bytes that it held"}, self.bytes);
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
        fields(self, visit, max_sites,
               [](auto& share, auto& item) { Holders::Share::fields(share, item); });
    }
    /// `share_fields(share, visit)`: of each site, of which there are at most `most`.
    template <typename Self, typename Visitor, typename ShareFields>
    static void fields(Self& self, Visitor& visit, std::size_t most, ShareFields share_fields) {
        visit.number({"count", "allocations that were held"}, self.count);
        visit.number({"bytes", "their sum"}, self.bytes);
        visit.list({"sites", "who held them, most bytes first", AtMost{most}}, self.sites,
                   share_fields);
        visit.group({"other", "the sites that are not listed"}, [&self](auto& other) {
            other.number({"sites", "how many they are"}, self.other_sites);
            other.number({"count", "allocations that they held"}, self.other_count);
            other.number({"bytes", "bytes that they held"}, self.other_bytes);
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
        visit.ratio(
            {"at_peak",
             "1 - peak active / peak reserved, of the pool; the two peaks need not coincide"},
            self.at_peak);
        visit.ratio({"external",
                     "1 - largest free block / all free memory, when the pool last grew to a new "
                     "maximum, just before it grew: the share of the free memory that one large "
                     "request could not have used"},
                    self.external);
        visit.ratio(
            {"internal",
             "1 - requested / allocated, at the pool's allocated peak: what rounding costs"},
            self.internal);
        visit.number({"largest_free_bytes", "the largest free block of `external`"},
                     self.largest_free_bytes);
        visit.number({"total_free_bytes", "all free memory of `external`"}, self.total_free_bytes);
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
        visit.number({"reserved_bytes", "the reserved curve"}, self.reserved);
        visit.number({"active_bytes", "the active curve"}, self.active);
        visit.number({"requested_bytes", "the requested curve"}, self.requested);
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
        visit.number({"start_ns", "the start of bucket 0"}, self.start_ns);
        visit.number({"bucket_ns", "the length of a bucket"}, self.bucket_ns);
        visit.rows(
            {"columns", "the names of a row's values"},
            {"rows",
             "one for each bucket in which something happened: its number, then minimum, maximum "
             "and last value of each curve",
             AtMost{trace::Timeline::max_buckets}},
            self);
    }
    bool operator==(const Timeline&) const = default;
};

/// The curve of a kind of memory that is in no curve of its device (is_in_curves()).
struct KindCurve {
    /// A bucket with at least one event; the next row may begin many buckets later.
    struct Row {
        std::uint64_t begin_ns = 0;
        std::uint64_t min = 0;
        std::uint64_t max = 0;
        std::uint64_t last = 0;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number({"begin_ns", "the start of the bucket"}, self.begin_ns);
            visit.number({"min_bytes", "the lowest value in it"}, self.min);
            visit.number({"max_bytes", "the highest value in it"}, self.max);
            visit.number({"last_bytes", "the value at its end"}, self.last);
        }
        bool operator==(const Row&) const = default;
    };
    CurveSummary curve = {};
    std::uint64_t bucket_ns = 0;
    std::vector<Row> rows = {};  ///< in order of time
    Holders at_peak = {};
    Holders live = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        CurveSummary::fields(self.curve, visit);
        visit.number({"bucket_ns", "the length of a bucket of `rows`"}, self.bucket_ns);
        visit.list({"rows", "a bucket each in which something happened",
                    AtMost{trace::Timeline::max_buckets}},
                   self.rows);
        visit.line();
        visit.object({"at_peak", "who held it at `peak_time_ns`"}, self.at_peak);
        visit.line();
        visit.object({"live", "who held it at the end"}, self.live);
    }
    bool operator==(const KindCurve&) const = default;
};

/// What the GPU did of one kind.
struct WorkTotals {
    std::uint64_t count = 0;
    std::uint64_t busy_ns = 0;
    std::uint64_t bytes = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"count", "how many there were"}, self.count);
        visit.number({"busy_ns", "the sum of their running times; work that overlaps counts twice"},
                     self.busy_ns);
        visit.number({"bytes", "bytes that were copied or filled"}, self.bytes);
    }
    bool operator==(const WorkTotals&) const = default;
};

/// The kernels that ran while the memory was at its peak, longest first.
struct KernelsAtPeak {
    static constexpr std::size_t max_kernels = 64;
    struct Kernel {
        std::string name = {};
        std::uint64_t count = 0;
        std::uint64_t busy_ns = 0;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.text({"name", "mangled"}, self.name);
            visit.number({"count", "launches of it"}, self.count);
            visit.number({"busy_ns", "the part of its running times within that moment"},
                         self.busy_ns);
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
        visit.number({"from_ns", "when the peak was reached"}, self.from_ns);
        visit.number({"to_ns",
                      "when it first fell, a millisecond after `from_ns` at least: the work that "
                      "memory is allocated for follows a little later"},
                     self.to_ns);
        visit.list({"kernels", "longest first", AtMost{max_kernels}}, self.kernels);
        visit.group({"other", "the kernels that are not listed"}, [&self](auto& other) {
            other.number({"names", "how many they are"}, self.other_names);
            other.number({"count", "launches of them"}, self.other_count);
            other.number({"busy_ns", "the sum of their running times"}, self.other_ns);
        });
    }
    bool operator==(const KernelsAtPeak&) const = default;
};

/// A stretch in which memory of the pool was away (MEMLAB_YIELD).
struct Absence {
    std::uint64_t begin_ns = 0;
    std::optional<std::uint64_t> end_ns = {};
    std::uint64_t bytes = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"begin_ns", "when it left the GPU"}, self.begin_ns);
        visit.number_or_null({"end_ns", "when it was back; null: it was away at the end"},
                             self.end_ns);
        visit.number({"bytes", "that were away at most"}, self.bytes);
    }
    bool operator==(const Absence&) const = default;
};

/// A GPU, or what an allocator of the program's holds on one: its segments are allocations of the
/// GPU's, its allocations are cut from them.
struct Device {
    std::uint64_t index = 0;
    std::string name = {};
    std::string uuid = {};
    std::uint64_t total_bytes = 0;
    std::optional<std::uint64_t> limit_bytes = {};
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
    /// By kind; none: nothing of the kinds that the curves do not include, or an older report.
    std::optional<Named<KindCurve>> kind_curves = {};
    static constexpr std::size_t max_absences = 1024;
    std::vector<Absence> absences = {};

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
        visit.number({"index", "its number; 64 or more: an allocator of the program's"},
                     self.index);
        visit.text({"name", "of the GPU, or of the allocator"}, self.name);
        visit.text({"uuid", "the GPU's; empty for an allocator"}, self.uuid);
        visit.number({"total_bytes", "its memory"}, self.total_bytes);
        visit.number_or_null({"limit_bytes", "what `MEMLAB_LIMIT` allows; null: no limit"},
                             self.limit_bytes);
        visit.natural({"driver_version", "the CUDA version of the driver: 13000 is 13.0"},
                      self.driver_version);
        visit.text_if_any({"allocator",
                           "set: this is not a GPU but this allocator of the program on one, "
                           "with figures that it reported itself: `PyTorch`, its caching "
                           "allocator",
                           Along{"gpu"}},
                          self.allocator);
        visit.natural_if_any(
            {"gpu", "the index of the GPU on which the allocator holds it", Along{"allocator"}},
            self.on_gpu);
        visit.line();
        visit.group({"curves", "the curves of the device's memory"}, [&self](auto& curves) {
            for (std::size_t curve = 0; curve < curve_count; ++curve) {
                curves.curve({curve_names[curve], curve_descriptions[curve]}, self.curves[curve],
                             may_be_unknown(curve));
            }
        });
        visit.line();
        visit.named(
            {"kinds", "the kinds of memory that occurred, by name", NameOf<trace::MemoryKind>{}},
            self.kinds);
        visit.line();
        visit.named_numbers(
            {"memory_stats",
             "every key of `torch.cuda.memory_stats()`, with the same meaning except one: "
             "`requested_bytes` falls with the free, where PyTorch's falls when the block can be "
             "used again"},
            self.memory_stats,
            {"max_split_size", "the size above which blocks are not split; -1: all are"},
            self.max_split_size);
        visit.line();
        visit.object({"fragmentation", "three separate figures"}, self.fragmentation);
        visit.line();
        visit.object({"timeline", "the curves over time"}, self.timeline);
        visit.line();
        visit.group({"at_peak", "who held the memory at the allocated peak, which is `bytes`"},
                    [&self](auto& at_peak) {
                        at_peak.number({"time_ns", "when that was"}, self.at_peak.time_ns);
                        Holders::fields(self.at_peak, at_peak);
                    });
        visit.line();
        visit.object({"live",
                      "the same at the end: what was never freed. Both are of device memory only; "
                      "`kind_curves` has the other kinds"},
                     self.live);
        visit.line();
        visit.named_if_any({"work",
                            "what the GPU did, by `kernel`, `copy` and `fill`, where "
                            "`MEMLAB_KERNELS` recorded any",
                            EachOf<trace::WorkKind>{}},
                           self.work);
        visit.line();
        visit.object_if_any(
            {"curves_at_peak",
             "the other curves at the moment of the allocated peak; newer recordings have it",
             Newer{}},
            self.curves_at_peak);
        visit.line();
        visit.object_if_any(
            {"kernels_at_peak",
             "the kernels that ran at the moment of the allocated peak, where `work` is"},
            self.kernels_at_peak);
        visit.line();
        visit.object_if_any({"ledger",
                             "what took memory beyond allocations, where `MEMLAB_LEDGER` was not "
                             "off and a call was measured"},
                            self.ledger);
        visit.line();
        visit.named_if_any(
            {"kind_curves",
             "the kinds of memory that `curves` do not include, each with a curve of its own, "
             "where "
             "the program had any: `managed` memory migrates, `pinned` memory is the host's, "
             "allocated while this GPU's context was current, and of `ipc_import` another process "
             "is the owner",
             NameOf<trace::MemoryKind>{}, Newer{}},
            self.kind_curves);
        visit.line();
        visit.list_if_any({"absences",
                           "when memory of the pool, or that the program maps itself, was away "
                           "from the GPU (`memlab-ctl yield`): `reserved` is without it then, all "
                           "else as if it were there",
                           AtMost{max_absences}, Newer{}},
                          self.absences);
    }
    bool operator==(const Device&) const = default;
};

/// False for memory on the host, managed memory (it migrates), and memory of another process: the
/// curves do not include these.
inline bool is_in_curves(const std::string& kind) {
    return kind != "managed" && kind != "pinned" && kind != "ipc_import";
}

}  // namespace memlab::model
