// Aggregates a recording into the contents of the report, online or from a log. The same records
// give the same JSON either way, to the byte.
//
// Cost per event: O(1), or O(log live blocks) for the pool's layout. Memory: O(sites + live
// allocations + definitions); timelines, marks and OOMs are bounded.
//
// The composition of the peak is kept without a snapshot at every new peak. Peaks are numbered, and
// a site has the number of the peak that it last saw. Before its live bytes change, a site that has
// missed a peak saves them: they have not changed since that peak.
//
// Nothing here throws: without host memory the figures stop, and `incomplete` is set.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/aggregate/labels.hpp"
#include "trace/aggregate/lifetimes.hpp"
#include "trace/aggregate/live_table.hpp"
#include "trace/aggregate/pool_layout.hpp"
#include "trace/aggregate/scopes.hpp"
#include "trace/aggregate/steps.hpp"
#include "trace/aggregate/timeline.hpp"
#include "trace/definitions.hpp"
#include "trace/hash_index.hpp"
#include "trace/record_sink.hpp"

namespace memlab::trace {

/// The curves of a device; the first four cover all device memory of the process.
enum class CurveName : std::uint8_t { requested, allocated, active, reserved, device_used };
/// "requested", "allocated", ...
const char* name_of(CurveName curve);

/// How the recording ended.
enum class Ended : std::uint8_t { exit, quick_exit, cut_off };

/// A curve of bytes over time: the current value, its maximum and the time when that was reached.
struct Curve {
    std::uint64_t current = 0;
    std::uint64_t peak = 0;
    std::uint64_t peak_time_ns = 0;
};

/// All allocations of one kind on one device.
struct KindTotals {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;
};

/// The inputs of the three fragmentation figures, of the pool only; see docs/report-format.md.
struct Fragmentation {
    std::uint64_t peak_active = 0;
    std::uint64_t peak_reserved = 0;
    std::uint64_t largest_free = 0;  ///< just before the pool's latest growth to a new maximum
    std::uint64_t total_free = 0;
    std::uint64_t requested_at_peak = 0;  ///< at the pool's allocated peak
    std::uint64_t allocated_at_peak = 0;
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
    std::uint64_t segment_count = 0;
    std::uint64_t segment_bytes = 0;
    Lifetimes lifetimes;

    // What it held at the device's allocated peak number `peak_checked`. Outdated when there were
    // newer peaks, so read it through Aggregator::held_at_peak().
    std::uint64_t at_peak_count = 0;
    std::uint64_t at_peak_bytes = 0;
    std::uint64_t peak_checked = 0;
};

struct Holder {
    std::uint32_t site = 0;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
};

/// A device's memory by site: the largest sites, and the sum of the rest. count and bytes are the
/// totals.
struct Composition {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::vector<Holder> sites;  ///< by bytes, largest first; ties by index
    std::uint64_t other_sites = 0;
    std::uint64_t other_count = 0;
    std::uint64_t other_bytes = 0;
};

/// All work of one kind on one device.
struct WorkTotals {
    std::uint64_t count = 0;
    std::uint64_t busy_ns = 0;  ///< sum of durations: concurrent work counts twice
    std::uint64_t bytes = 0;
};

/// A kernel's activity while the memory was at its peak.
struct KernelAtPeak {
    std::uint32_t name = 0;  ///< index into strings
    std::uint64_t count = 0;
    std::uint64_t busy_ns = 0;  ///< the part of its running time within that interval
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
    std::uint64_t peak_number = 0;  ///< number of new maxima of `allocated`
    std::uint64_t allocated_since_mark = 0;
    std::uint64_t reserved_since_mark = 0;

    const Curve& curve(CurveName name) const { return curves[static_cast<std::size_t>(name)]; }
    Curve& curve(CurveName name) { return curves[static_cast<std::size_t>(name)]; }
};

struct ContextTotals {
    ContextInfo info;
    bool lost = false;
    std::uint64_t lost_time_ns = 0;
};

/// Bytes of memlab's pools on a device.
struct PoolBytes {
    std::uint64_t reserved = 0;
    std::uint64_t active = 0;
    std::uint64_t allocated = 0;
    std::uint64_t largest_free = 0;  ///< the largest contiguous part of reserved - active
    std::uint64_t large_free = 0;    ///< the part of reserved - active in segments of large blocks
};

/// A failed allocation and the memory state right after it.
struct OomTotals {
    OomEvent event;
    std::array<std::uint64_t, 4> current{};  ///< requested, allocated, active, reserved
    PoolBytes pool;
    std::array<std::uint64_t, static_cast<std::size_t>(memory_kind_count)> kinds{};  ///< live bytes
    Composition holders;
    /// For each of holders.sites: the number of its allocations so far, including freed ones.
    std::vector<std::uint64_t> allocations;
    /// The labels of the live memory of holders.sites, as in LabelStats::by_site().
    std::vector<SiteLabel> labels;
};

struct MarkedDevice {
    std::uint32_t device = 0;
    std::array<std::uint64_t, 4> current{};  ///< requested, allocated, active, reserved
    std::uint64_t allocated_peak = 0;        ///< since the previous mark
    std::uint64_t reserved_peak = 0;
};

struct MarkTotals {
    EventType type = EventType::mark;
    std::uint32_t name = 0;
    std::uint32_t thread = 0;
    std::uint64_t time_ns = 0;
    std::vector<MarkedDevice> devices;
};

struct MissedTotals {
    std::uint32_t reason = 0;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t first_time_ns = 0;
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
};

/// Indications of missing records.
struct Integrity {
    std::uint64_t unmatched_frees = 0;
    std::uint64_t unmatched_segment_frees = 0;
    std::uint64_t overwritten_allocations = 0;
    std::uint64_t overwritten_segments = 0;
    bool incomplete = false;
};

/// One live allocation.
struct LiveTotals {
    std::uint64_t address = 0;  ///< or the handle
    std::uint32_t site = 0;
    std::uint32_t thread = 0;  ///< that allocated it
    std::uint32_t label = 0;   ///< string id; 0: none
    std::uint64_t time_ns = 0;
    std::uint64_t requested = 0;
    std::uint64_t size = 0;
};

/// A stack as indexes into frames().
struct StackFrames {
    std::vector<std::uint32_t> frames;
    bool truncated = false;
};

/// Thread-safety: none; the recorder's lock serializes, also for the accessors. Accessors may be
/// used at any time during a recording; references are valid until the next on(). Records after End
/// are ignored, as by a log.
class Aggregator final : public RecordSink {
  public:
    static constexpr std::size_t max_ooms = 32;
    static constexpr std::size_t max_oom_holders = 32;
    static constexpr std::size_t max_marks = 4096;
    static constexpr std::size_t max_bypasses = 4096;
    static constexpr std::size_t max_thread_names = 4096;

    Aggregator();
    ~Aggregator() override;

    using RecordSink::on;
    void on(const ProcessInfo& record) override;
    void on(const OptionValue& record) override;
    void on(const DeviceInfo& record) override;
    void on(const ContextInfo& record) override;
    void on(const ContextLost& record) override;
    void on(const ThreadInfo& record) override;
    void on(const StringDef& record) override;
    void on(const ModuleDef& record) override;
    void on(const PythonFrameDef& record) override;
    void on(const StackDef& record) override;
    void on(const Event& record) override;
    void on_freed(const Event& free_requested) override;
    void on(const OomEvent& record) override;
    void on(const DeviceSample& record) override;
    void on(const Missed& record) override;
    void on(const Work& record) override;
    void on(const Bypass& record) override;
    void on(const Coverage& record) override;
    void on(const LogStopped& record) override;
    void on(const End& record) override;

    const ProcessInfo& process() const { return process_; }
    /// In order of first appearance; a later value of the same option replaces the earlier.
    const std::vector<OptionValue>& options() const { return options_; }
    Ended ended() const { return ended_; }
    /// Until End, or until the latest record so far.
    std::uint64_t duration_ns() const { return now_; }

    /// By DeviceInfo::index; null where no device of that index was defined.
    const std::vector<std::unique_ptr<DeviceTotals>>& devices() const { return devices_; }
    /// By ContextInfo::id - 1.
    const std::vector<ContextTotals>& contexts() const { return contexts_; }
    const std::vector<Site>& sites() const { return sites_; }
    /// Index 0 is "no stack", "unknown module", "no string" (empty).
    const std::vector<StackFrames>& stacks() const { return stacks_; }
    const std::vector<ModuleDef>& modules() const { return modules_; }
    const std::vector<PythonFrameDef>& python_frames() const { return python_frames_; }
    const std::string& string(std::uint32_t id) const { return strings_[id]; }
    const std::vector<Frame>& frames() const { return frames_; }

    /// Thread names: kernel thread id to string id. The first max_thread_names of them.
    const std::map<std::uint32_t, std::uint32_t>& thread_names() const { return thread_names_; }

    const std::vector<OomTotals>& ooms() const { return ooms_; }
    std::uint64_t oom_count() const { return oom_count_; }
    const std::vector<MarkTotals>& marks() const { return marks_; }
    std::uint64_t mark_count() const { return mark_count_; }
    const ScopeStats& scopes() const { return scopes_; }
    /// In order of first appearance. May throw std::bad_alloc.
    std::vector<StepTotals> steps() const;
    /// The number of ended steps of a kind, by index in steps(). O(1).
    std::uint64_t steps_ended(std::size_t kind) const { return steps_.ended(kind); }
    const LabelStats& labels() const { return labels_; }
    /// The live allocations, and those of the pool that were freed but are not yet safe to reuse.
    const LiveTable& live() const { return live_; }
    /// The largest live allocations, largest first. O(live allocations). May throw std::bad_alloc.
    std::vector<LiveTotals> largest_live(std::size_t limit) const;
    const std::vector<MissedTotals>& missed() const { return missed_; }
    const Integrity& integrity() const { return integrity_; }
    /// The last one recorded; none where neither the audit nor recording kernels was enabled.
    const std::optional<Coverage>& coverage() const { return coverage_; }
    /// In order of first appearance, at most max_bypasses; the totals are of all.
    const std::vector<BypassTotals>& bypasses() const { return bypasses_; }
    std::uint64_t bypassed_count() const { return bypassed_count_; }
    std::uint64_t bypassed_bytes() const { return bypassed_bytes_; }
    /// What ran at the device's allocated peak, longest first.
    std::vector<KernelAtPeak> kernels_at_peak(std::uint32_t device) const;
    std::uint64_t event_count() const { return event_count_; }
    /// End as recorded; before it, default values and those of LogStopped.
    const End& end() const { return end_; }

    /// What `site` held when its device's allocated curve was at its peak: count and bytes.
    Holder held_at_peak(std::uint32_t site) const;

    /// The device memory of `device` by site at its allocated peak: bytes equals that peak.
    Composition composition_at_peak(std::uint32_t device, std::size_t limit) const;
    /// The same now: bytes equals the allocated curve's current value.
    Composition composition_now(std::uint32_t device, std::size_t limit) const;

  private:
    /// The latest allocation of a thread, while it is live: for heaptrack's temporaries (freed
    /// before the thread's next allocation).
    struct Latest {
        std::uint32_t thread = 0;
        std::uint64_t serial = 0;  ///< 0: none, or it has ended
    };
    struct FrameHash {
        std::size_t operator()(const Frame& frame) const;
    };

    template <typename Work>
    void guarded(Work work) noexcept;
    void apply_option(const OptionValue& option);
    void advance(std::uint64_t time_ns);
    std::uint32_t site_index(const Event& event);

    void allocate(const Event& event);
    void free(const Event& event);
    void complete(const Event& event);
    void free_immediately(const Event& event);
    void segment(const Event& event);
    void mark(const Event& event);
    void scope(const Event& event);
    void label(const Event& event);
    std::vector<SiteLabel> holder_labels(const Composition& holders) const;

    /// `freeing`: the thread that freed it; none: it ended for another reason.
    void apply_free_requested(Live& live, std::optional<std::uint32_t> freeing);
    void apply_free_completed(std::uint32_t at);
    void overwrite(std::uint32_t at);
    Latest& latest_allocation(std::uint32_t thread);
    void end_blocks_in(DeviceTotals& device, std::uint64_t address, std::uint64_t size);
    void before_live_change(std::uint32_t index);
    std::uint64_t total_allocated() const;
    template <Timeline::Change change = Timeline::Change::any>
    void commit(DeviceTotals& device);
    template <typename Held>
    Composition compose(std::uint32_t device, std::size_t limit, Held held) const;

    Definitions definitions_;
    ProcessInfo process_;
    bool has_process_ = false;
    std::vector<OptionValue> options_;
    std::optional<std::uint64_t> max_split_size_;  ///< of the pools; none: not set
    std::vector<std::unique_ptr<DeviceTotals>> devices_;
    std::vector<ContextTotals> contexts_;
    std::vector<std::string> strings_;
    std::vector<ModuleDef> modules_;
    std::vector<PythonFrameDef> python_frames_;
    std::vector<StackFrames> stacks_;
    std::vector<Frame> frames_;
    std::unordered_map<Frame, std::uint32_t, FrameHash> frame_index_;
    std::map<std::uint32_t, std::uint32_t> thread_names_;

    std::vector<Site> sites_;
    HashIndex site_index_;
    LiveTable live_;
    std::vector<Latest> latest_;
    HashIndex latest_index_;
    std::uint32_t latest_used_ = 0;  ///< the most recently used entry of latest_
    std::uint64_t next_serial_ = 0;

    std::vector<OomTotals> ooms_;
    std::uint64_t oom_count_ = 0;
    std::vector<MarkTotals> marks_;
    std::uint64_t mark_count_ = 0;
    ScopeStats scopes_;
    StepStats steps_;
    LabelStats labels_;
    std::vector<MissedTotals> missed_;
    std::unordered_map<std::uint32_t, std::size_t> missed_index_;
    std::optional<Coverage> coverage_;
    std::vector<BypassTotals> bypasses_;
    std::uint64_t bypassed_count_ = 0;
    std::uint64_t bypassed_bytes_ = 0;
    Integrity integrity_;
    std::uint64_t event_count_ = 0;
    std::uint64_t now_ = 0;
    Ended ended_ = Ended::cut_off;
    bool has_end_ = false;
    End end_;
};

}  // namespace memlab::trace
