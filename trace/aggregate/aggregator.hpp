// Adds a recording up into everything that the report says: online, event by event, or from a log.
// The same records give the same figures either way, to the last byte of the JSON.
//
// Cost: O(1), or O(log live blocks) for the pool's layout, per event. Memory: O(sites + live
// allocations + definitions); timelines, marks and OOMs are bounded.
//
// Who held the memory at the peak is known without a snapshot at every new peak: a peak has a
// number, and a site remembers the number at which it last looked. Before its live bytes change, a
// site that is behind notes what it held: that is what it held at the peak, since it has not
// changed from then to now.
//
// Nothing here throws: when the host has no memory left, the figures stop there and `incomplete`
// says so.
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
#include "trace/aggregate/pool_figures.hpp"
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

/// Bytes over time: where it is, and the first moment at which it was highest.
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

/// The inputs of the three fragmentation figures, of the pool alone; docs/report-format.md.
struct Fragmentation {
    std::uint64_t peak_active = 0;
    std::uint64_t peak_reserved = 0;
    std::uint64_t largest_free = 0;  ///< just before the pool last grew to a new maximum
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

    // What it held at the device's allocated peak, as of peak number `peak_seen`; outdated when the
    // device has had newer peaks: read it through Aggregator::held_at_peak().
    std::uint64_t noted_count = 0;
    std::uint64_t noted_bytes = 0;
    std::uint64_t peak_seen = 0;
};

struct Holder {
    std::uint32_t site = 0;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
};

/// Who holds a device's memory: the largest sites, the rest summed up. count and bytes are of all.
struct Composition {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::vector<Holder> sites;  ///< by bytes, largest first; equal ones by index
    std::uint64_t other_sites = 0;
    std::uint64_t other_count = 0;
    std::uint64_t other_bytes = 0;
};

/// All work of one kind on one device.
struct WorkTotals {
    std::uint64_t count = 0;
    std::uint64_t busy_ns = 0;  ///< the sum: work that ran side by side counts twice
    std::uint64_t bytes = 0;
};

/// What a kernel did while the memory was at its peak.
struct KernelAtPeak {
    std::uint32_t name = 0;  ///< index into strings
    std::uint64_t count = 0;
    std::uint64_t busy_ns = 0;  ///< the part of its running time that lies in that moment
};

/// The moment of a device's allocated peak: from when it was reached until it first fell, and a
/// millisecond at least, since the work that a program allocates for follows a little later.
struct PeakMoment {
    static constexpr std::uint64_t min_ns = 1'000'000;

    bool holds = false;  ///< it has not fallen since
    std::uint64_t fell_ns = 0;
    std::unordered_map<std::uint32_t, KernelAtPeak> kernels;  ///< by name

    /// The end of the moment that began at `peak_ns`: the first instant that is not in it.
    std::uint64_t end_ns(std::uint64_t peak_ns) const;
};

struct DeviceTotals {
    DeviceInfo info;
    std::array<Curve, curve_count> curves{};
    bool sampled = false;  ///< device_used has a value
    std::array<KindTotals, static_cast<std::size_t>(memory_kind_count)> kinds{};
    PoolFigures pool;
    Fragmentation fragmentation;
    Timeline timeline;

    std::array<WorkTotals, static_cast<std::size_t>(work_kind_count)> work{};
    PeakMoment peak_moment;
    std::uint64_t peak_number = 0;  ///< how many times `allocated` reached a new maximum
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
    std::uint64_t largest_free = 0;  ///< the largest piece of reserved - active
    std::uint64_t large_free = 0;    ///< the part of reserved - active in segments of large blocks
};

/// A failed allocation and the state of things right after it.
struct OomTotals {
    OomEvent event;
    std::array<std::uint64_t, 4> current{};  ///< requested, allocated, active, reserved
    PoolBytes pool;
    std::array<std::uint64_t, static_cast<std::size_t>(memory_kind_count)> kinds{};  ///< live bytes
    Composition holders;
    /// For each of holders.sites: how many allocations it had made so far, freed ones included.
    std::vector<std::uint64_t> allocations;
    /// The program's names for what holders.sites held, as LabelFigures::by_site(); none that was
    /// not live.
    std::vector<SiteLabel> labels;
};

struct MarkedDevice {
    std::uint32_t device = 0;
    std::array<std::uint64_t, 4> current{};  ///< requested, allocated, active, reserved
    std::uint64_t allocated_peak = 0;        ///< since the mark before
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

/// Allocations of one kind that bypassed memlab, by who made them.
struct BypassTotals {
    std::uint32_t device = 0;
    MemoryKind kind = MemoryKind::device;
    std::uint32_t api = 0;
    std::uint32_t stack = 0;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t first_time_ns = 0;
};

/// Signs that the recording has holes.
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

/// Thread-safety: none; the recorder's lock serializes, for the accessors too. Accessors may be
/// used at any moment of a recording; references hold until the next on(). What comes after End is
/// ignored: a log ends there as well.
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

    /// What threads are called: kernel thread id to string id. The first max_thread_names of them.
    const std::map<std::uint32_t, std::uint32_t>& thread_names() const { return thread_names_; }

    const std::vector<OomTotals>& ooms() const { return ooms_; }
    std::uint64_t oom_count() const { return oom_count_; }
    const std::vector<MarkTotals>& marks() const { return marks_; }
    std::uint64_t mark_count() const { return mark_count_; }
    const ScopeFigures& scopes() const { return scopes_; }
    /// In order of first appearance. May throw std::bad_alloc.
    std::vector<StepTotals> steps() const;
    /// Of the kind at that place in steps(): how many have ended so far. O(1).
    std::uint64_t steps_ended(std::size_t kind) const { return steps_.ended(kind); }
    const LabelFigures& labels() const { return labels_; }
    /// What lives now, and what of the pool was freed but is not safe to use again.
    const LiveTable& live() const { return live_; }
    /// The largest allocations that are live now, largest first. O(live allocations). May throw
    /// std::bad_alloc.
    std::vector<LiveTotals> largest_live(std::size_t limit) const;
    const std::vector<MissedTotals>& missed() const { return missed_; }
    const Integrity& integrity() const { return integrity_; }
    /// The last one recorded; none where nobody asked for an audit or for kernels.
    const std::optional<Coverage>& coverage() const { return coverage_; }
    /// In order of first appearance, at most max_bypasses; the totals are of all.
    const std::vector<BypassTotals>& bypasses() const { return bypasses_; }
    std::uint64_t bypassed_count() const { return bypassed_count_; }
    std::uint64_t bypassed_bytes() const { return bypassed_bytes_; }
    /// What ran at the device's allocated peak, longest first.
    std::vector<KernelAtPeak> kernels_at_peak(std::uint32_t device) const;
    std::uint64_t event_count() const { return event_count_; }
    /// End as it was recorded; default values before it was, but for what LogStopped said.
    const End& end() const { return end_; }

    /// What `site` held when its device's allocated curve was at its peak: count and bytes.
    Holder held_at_peak(std::uint32_t site) const;

    /// Who held the device memory of `device` at its allocated peak: bytes is that very peak.
    Composition composition_at_peak(std::uint32_t device, std::size_t limit) const;
    /// Who holds it now: bytes is the allocated curve's current value.
    Composition composition_now(std::uint32_t device, std::size_t limit) const;

  private:
    /// The latest allocation of a thread, while it lives: heaptrack's temporaries.
    struct Latest {
        std::uint32_t thread = 0;
        std::uint64_t serial = 0;  ///< 0: none, or it has ended
    };
    struct FrameHash {
        std::size_t operator()(const Frame& frame) const;
    };

    template <typename Work>
    void guarded(Work work) noexcept;
    void note_policy(const OptionValue& option);
    void advance(std::uint64_t time_ns);
    std::uint32_t site_index(const Event& event);

    void allocate(const Event& event);
    void free(const Event& event);
    void complete(const Event& event);
    void free_at_once(const Event& event);
    void segment(const Event& event);
    void mark(const Event& event);
    void scope(const Event& event);
    void label(const Event& event);
    std::vector<SiteLabel> labels_of(const Composition& holders) const;

    /// `freeing`: the thread that gives it back; none: it is gone for another reason.
    void end_requested(Live& live, std::optional<std::uint32_t> freeing);
    void end_completed(std::uint32_t at);
    void overwrite(std::uint32_t at);
    Latest& latest_of(std::uint32_t thread);
    void vacate(DeviceTotals& device, std::uint64_t address, std::uint64_t size);
    void note_change(std::uint32_t index);
    std::uint64_t allocated_everywhere() const;
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
    std::uint32_t latest_used_ = 0;  ///< the entry of latest_ that was used last
    std::uint64_t next_serial_ = 0;

    std::vector<OomTotals> ooms_;
    std::uint64_t oom_count_ = 0;
    std::vector<MarkTotals> marks_;
    std::uint64_t mark_count_ = 0;
    ScopeFigures scopes_;
    StepFigures steps_;
    LabelFigures labels_;
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
