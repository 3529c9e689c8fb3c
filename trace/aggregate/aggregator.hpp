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
// Without host memory the figures stop, and `incomplete` is set. Nothing here throws, unless it has
// an observer that needs all: then that, and what the observer throws, ends the reading.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/aggregate/labels.hpp"
#include "trace/aggregate/live_table.hpp"
#include "trace/aggregate/nn_modules.hpp"
#include "trace/aggregate/scopes.hpp"
#include "trace/aggregate/step_anchor.hpp"
#include "trace/aggregate/steps.hpp"
#include "trace/aggregate/timeline.hpp"
#include "trace/aggregate/totals.hpp"
#include "trace/definitions.hpp"
#include "trace/hash_index.hpp"
#include "trace/record_sink.hpp"

namespace memlab::trace {

class TextReplacer;

/// How an allocation ended.
struct LifeEnd {
    enum class Cause : std::uint8_t {
        freed,         ///< by the program
        context_lost,  ///< with its context
        /// Its address is used again, or its segment is gone: it had been freed, and no record says
        /// when.
        unseen,
    };
    Cause cause = Cause::freed;
    const Event* event = nullptr;  ///< of a free by the program, and of no other
};

/// Is told of the lifetimes of memory, which the aggregator alone decides on: whatever the records,
/// an allocation begins once, is freed once and ends once, in this order, or is live at the end;
/// live allocations of an address space have different addresses; a device's segments do not
/// overlap, nor do the blocks in them, which end before their segment does. Must not change the
/// aggregator.
class LiveObserver {
  public:
    LiveObserver() = default;
    LiveObserver(const LiveObserver&) = delete;
    LiveObserver& operator=(const LiveObserver&) = delete;
    virtual ~LiveObserver() = default;

    /// It is in this slot of the live table; all figures are those with it.
    virtual void allocated(std::uint32_t /*slot*/, const Live& /*live*/, const Event& /*by*/) {}

    // These come right before the change: the figures are those of before.
    /// The program freed it, or could have.
    virtual void freed(std::uint32_t /*slot*/, const Live& /*live*/, const LifeEnd& /*end*/) {}
    /// It is safe to reuse, and leaves the table.
    virtual void ended(std::uint32_t /*slot*/, const Live& /*live*/, const LifeEnd& /*end*/) {}
    /// Its label says that an nn.Module, or another one, or none holds it: Live::nn_modules becomes
    /// `to`.
    virtual void moved(std::uint32_t /*slot*/, const Live& /*live*/, std::uint32_t /*to*/) {}
    /// From now on it is a segment, and counts as what is handed out of it: Live::is_segment.
    virtual void split(std::uint32_t /*slot*/, const Live& /*live*/) {}
    /// A segment, or an address range that one grows by; `by` has its size.
    virtual void segment_added(const Event& /*by*/) {}
    /// One whole, or a part of one.
    virtual void segment_removed(std::uint32_t /*device*/, const PoolLayout::Range& /*range*/) {}
    /// A checkpoint replaces everything: what was live is not told of any more, nor what it brings.
    virtual void interrupted() {}
    /// Whether std::bad_alloc is passed on; else the figures stop, as without an observer.
    virtual bool needs_all() const { return true; }
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
    void on(const NnModuleStackDef& record) override;
    void on(const NnModuleName& record) override;
    void on(const Event& event) override;
    void on_freed(const Event& free_requested) override;
    void on(const OomEvent& record) override;
    void on(const DeviceSample& record) override;
    void on(const LedgerEntry& record) override;
    void on(const Witness& record) override;
    void on(const CommunicatorMemory& record) override;
    void on(const MemoryMoved& record) override;
    void on(const Missed& missed) override;
    void on(const Work& work) override;
    void on(const Bypass& bypass) override;
    void on(const Coverage& record) override;
    void on(const LogStopped& record) override;
    void on(const End& record) override;
    /// A checkpoint replaces everything so far.
    void on(const Checkpoint& record) override;
    void on(const AggregateState& record) override;

    /// Is told of each lifetime; null: nobody. It must outlive this.
    void set_observer(LiveObserver* observer) { observer_ = observer; }

    /// For readers of a log whose program marks no steps: one ends, of kind `found`, where the
    /// anchor says so. A checkpoint ends that: it has no such steps.
    void end_steps_at(const StepAnchor& anchor) { step_anchor_ = anchor; }

    /// Passes a checkpoint to `to`: a Checkpoint, all definitions, and AggregateState records. An
    /// aggregator that gets them, and the later records, is equal to this one, except for texts of
    /// AggregateState records that `texts` replaces (null: none). May throw std::bad_alloc.
    void checkpoint(RecordSink& to, TextReplacer* texts = nullptr) const;

    const ProcessInfo& process() const { return process_; }
    /// The allocated curves at this moment, all devices together: what is cut into suballocations
    /// counts as these.
    std::uint64_t total_allocated() const;
    /// In order of first appearance; a later value of the same option replaces the earlier.
    const std::vector<OptionValue>& options() const { return options_; }
    Ended ended() const { return ended_; }
    /// Until End, or until the latest record so far.
    std::uint64_t duration_ns() const { return now_; }
    /// How many allocations there were; Live::serial of the latest.
    std::uint64_t latest_serial() const { return next_serial_; }

    /// By DeviceInfo::index; null where no device of that index was defined.
    const std::vector<std::unique_ptr<DeviceTotals>>& devices() const { return devices_; }
    /// The recent peaks of that device's pool begin again. It must be there.
    void restart_recent_peaks(std::uint32_t device) { devices_[device]->pool.stats.restart(); }
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
    /// The latest mark of this recording; no part of checkpoints.
    struct LatestMark {
        std::uint32_t name = 0;
        std::uint64_t serial = 0;  ///< latest_serial() then
    };
    const std::optional<LatestMark>& latest_mark() const { return latest_mark_; }
    const ScopeStats& scopes() const { return scopes_; }
    /// The outermost loops, in order of first appearance. May throw std::bad_alloc.
    std::vector<StepTotals> steps() const;
    const StepStats& step_stats() const { return steps_; }
    /// The scope whose end was the latest such record.
    const ScopeStats::Ended& ended_scope() const { return ended_scope_; }
    const LabelStats& labels() const { return labels_; }
    const NnModuleStats& nn_modules() const { return nn_modules_; }
    /// What a holding of nn_modules() held at its device's allocated peak: Holder of its site.
    Holder held_at_peak(const NnModuleHolding& holding) const;
    /// The live allocations, and those of the pool that were freed but are not yet safe to reuse.
    const LiveTable& live() const { return live_; }

    /// The live suballocation on that device, an allocator's, that holds the address; null: none.
    /// Valid until the next change.
    const Live* suballocation_at(std::uint32_t device, std::uint64_t address) const;
    /// What a label of that address names; null: nothing. Valid until the next change.
    const Live* labelled_at(std::uint64_t address) const {
        const std::uint32_t at = find_innermost(address);
        return at == LiveTable::none || live_[at].pending || live_[at].is_segment ? nullptr
                                                                                  : &live_[at];
    }
    /// visit(Live) for those that overlap a range. May throw std::bad_alloc.
    template <class Visit>
    void for_each_suballocation(std::uint32_t device, std::uint64_t address, std::uint64_t bytes,
                                const Visit& visit) const {
        if (device >= devices_.size() || devices_[device] == nullptr) {
            return;
        }
        for (const std::uint64_t block : devices_[device]->pool.blocks_in(address, bytes)) {
            const std::uint32_t at = live_.find(block, suballocation_space(device));
            if (at != LiveTable::none && !live_[at].pending) {
                visit(live_[at]);
            }
        }
    }
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
    /// LogStopped::time_ns; none: the log did not stop, or it was not read.
    std::optional<std::uint64_t> log_stopped_ns() const { return log_stopped_ns_; }

    /// What `site` held when its device's allocated curve was at its peak: count and bytes.
    Holder held_at_peak(std::uint32_t site) const;
    /// What a garbage collector freed of `site`.
    Collected collected(std::uint32_t site) const;

    /// The device memory of `device` by site at its allocated peak: bytes equals that peak.
    Composition composition_at_peak(std::uint32_t device, std::size_t limit) const;
    /// The same now: bytes equals the allocated curve's current value.
    Composition composition_now(std::uint32_t device, std::size_t limit) const;
    /// The memory of a kind that has a curve of its own there, at that curve's peak and now.
    Composition kind_at_peak(std::uint32_t device, MemoryKind kind, std::size_t limit) const;
    Composition kind_now(std::uint32_t device, MemoryKind kind, std::size_t limit) const;

  private:
    /// The latest allocation of a thread, while it is live: for heaptrack's temporaries (freed
    /// before the thread's next allocation).
    struct Latest {
        std::uint32_t thread = 0;
        std::uint64_t serial = 0;  ///< 0: none, or it has ended

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive(self.thread, self.serial);
        }
    };
    /// A checkpoint that is being received.
    struct Restoring {
        std::uint32_t version = 0;
        std::string bytes;
    };
    struct FrameHash {
        std::size_t operator()(const Frame& frame) const;
    };

    /// Runs `work` unless the recording has ended. std::bad_alloc sets `incomplete`, and is passed
    /// on to who needs all.
    template <typename Work>
    void guarded(Work work) {
        if (has_end_ || integrity_.incomplete) {
            return;
        }
        try {
            work();
        } catch (const std::bad_alloc&) {
            integrity_.incomplete = true;
            if (observer_ != nullptr && observer_->needs_all()) {
                throw;
            }
        }
    }
    void apply_option(const OptionValue& option);
    void advance(std::uint64_t time_ns);
    void advance_to_event(std::uint64_t time_ns, std::uint64_t events);
    template <typename SiteOrPart>
    Holder held_at_peak_by(const SiteOrPart& holder, std::uint32_t site) const;
    void reset();
    bool restore(const Restoring& from);
    bool restore_indexes();
    bool is_valid() const;
    Definitions definitions() const;
    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive);
    template <typename SiteOrEvent>
    static std::uint64_t site_hash(const SiteOrEvent& of);
    std::uint32_t site_index(const Event& event);

    bool fits(const Event& event);
    void allocate(const Event& event);
    void free(const Event& event);
    void complete(const Event& event);
    void free_immediately(const Event& event);
    void segment(const Event& event);
    void mark(const Event& event);
    void scope(const Event& event);
    std::uint32_t find_innermost(std::uint64_t address) const;
    void label(const Event& event);
    void label_nn_module(std::uint32_t at, const std::string& label);
    std::vector<SiteLabel> holder_labels(const Composition& holders) const;

    void end_found_step(const Event& event) {
        if (step_anchor_ && step_anchor_->ends(event)) {
            steps_.end(StepKind::found, 0, total_allocated(), true);
        }
    }
    void apply_free_requested(std::uint32_t at, const LifeEnd& end);
    void apply_collected(const Live& live);
    void apply_free_completed(std::uint32_t at, const LifeEnd& end);
    /// Frees it, unless it is pending, and ends it. The caller commits.
    void end_life(std::uint32_t at, const LifeEnd& end);
    void overwrite(std::uint32_t at);
    Latest& latest_allocation(std::uint32_t thread);
    void end_blocks_in(DeviceTotals& device, std::uint64_t address, std::uint64_t size);
    std::uint64_t remove_segment(DeviceTotals& device, std::uint64_t base);
    void before_live_change(std::uint32_t index, bool is_segment);
    void take_as_segment(const Event& segment);
    std::uint64_t reserved_beside(const DeviceTotals& allocator) const;
    template <Timeline::Change change = Timeline::Change::any>
    void commit(DeviceTotals& device);
    Holder held_now(std::uint32_t site) const {
        return {site, sites_[site].live_count, sites_[site].live_bytes};
    }
    template <typename Taken, typename Held>
    Composition compose(std::uint32_t device, std::size_t limit, Taken taken, Held held) const;

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
    std::map<std::uint32_t, Collected> collected_;  ///< by site, where there is any
    LiveTable live_;
    std::vector<Latest> latest_;
    HashIndex latest_index_;
    std::uint32_t latest_used_ = 0;  ///< the most recently used entry of latest_
    std::uint64_t next_serial_ = 0;

    std::vector<OomTotals> ooms_;
    std::uint64_t oom_count_ = 0;
    std::vector<MarkTotals> marks_;
    std::uint64_t mark_count_ = 0;
    std::optional<LatestMark> latest_mark_;
    ScopeStats scopes_;
    StepStats steps_;
    std::optional<StepAnchor> step_anchor_;
    ScopeStats::Ended ended_scope_;
    LabelStats labels_;
    NnModuleStats nn_modules_;
    std::vector<MissedTotals> missed_;
    std::unordered_map<std::uint32_t, std::size_t> missed_index_;
    std::optional<Coverage> coverage_;
    std::vector<BypassTotals> bypasses_;
    std::uint64_t bypassed_count_ = 0;
    std::uint64_t bypassed_bytes_ = 0;
    Integrity integrity_;
    std::uint64_t bytes_so_far_ = 0;  ///< of all allocations and segments: no sum exceeds it
    std::uint64_t event_count_ = 0;
    std::uint64_t now_ = 0;
    Ended ended_ = Ended::cut_off;
    bool has_end_ = false;
    End end_;
    std::optional<std::uint64_t> log_stopped_ns_;
    std::uint64_t latest_event_ns_ = 0;
    std::unique_ptr<Restoring> restoring_;
    LiveObserver* observer_ = nullptr;
};

}  // namespace memlab::trace
