// The records of a recording: stored in the event log, consumed by the Aggregator and by readers.
// Each kind but the event (event.hpp) is defined here, in definition_records.hpp or in
// ledger_entry.hpp only: its data, its fields() and its line in MEMLAB_RECORD_KINDS. Encoder,
// decoder, the reference check and the table in docs/event-log.md are visitors of fields(); sinks,
// the log's reader and its writer are generated from the lines. A record that nobody consumes
// passes through all of them.
//
// Times are nanoseconds of CLOCK_MONOTONIC since ProcessInfo::start_monotonic_ns. Sizes are bytes.
// Identifiers (strings, modules, Python frames, stacks, contexts, ...) are assigned in order from
// 1; 0 always means "none". A definition comes before its first use.
//
// Every member has an initializer, so that designated initializers may omit it without a warning.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trace/definition_records.hpp"
#include "trace/event.hpp"
#include "trace/ledger_entry.hpp"

namespace memlab::trace {

/// An allocation that failed for lack of memory, and the memory state at that time.
struct OomEvent {
    std::uint64_t time_ns = 0;
    std::uint32_t device = 0;
    std::uint32_t context = 0;
    std::uint32_t thread = 0;
    std::uint32_t api = 0;
    std::uint32_t stack = 0;
    MemoryKind kind = MemoryKind::device;
    std::uint64_t requested = 0;
    std::uint64_t device_free = 0;  ///< per the driver, after cached segments were released
    std::uint64_t device_total = 0;
    std::uint64_t limit = 0;  ///< MEMLAB_LIMIT of this device; 0: none, or not below the total
    std::uint64_t largest_free_block = 0;  ///< in the pool, before cached segments were released
    std::int32_t error = 0;                ///< the CUresult that the program got
    /// The limit of a cgroup of this process with least room; without a source there is none.
    GroupLimit group_limit = {};
    LimitSource limit_source = LimitSource::none;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.subject("device", Definition::device, self.device);
        visit.reference("context", Definition::context, self.context);
        visit.number("thread", self.thread);
        visit.reference("API", Definition::string, self.api);
        visit.reference("stack", Definition::stack, self.stack);
        visit.choice("kind", self.kind, last_memory_kind);
        visit.number("requested", self.requested);
        visit.number("device free", self.device_free);
        visit.number("device total", self.device_total);
        visit.number("largest free block", self.largest_free_block);
        visit.number("error", self.error);
        visit.number("limit", self.limit);
        if (!has_since(visit, 4)) {
            return;
        }
        visit.choice("source of the cgroup's limit", self.limit_source, LimitSource::nvml);
        visit.reference("cgroup", Definition::string, self.group_limit.group);
        visit.number("cgroup's limit", self.group_limit.limit);
        visit.number("used by the cgroup", self.group_limit.used);
    }
    bool operator==(const OomEvent&) const = default;
};

/// What is left of the figures where memlab could not see or serve something.
enum class Figures : std::uint8_t {
    unknown,   ///< recorded by a memlab that did not say
    complete,  ///< all memory is in them; it was served in another way than wished
    at_least,  ///< memory may be missing from them: they are lower bounds
};

/// Something that memlab could not record or serve, and why. Records of the same reason accumulate.
struct Missed {
    std::uint64_t time_ns = 0;
    std::uint32_t reason = 0;  ///< StringDef::id, a full sentence for the report
    std::uint64_t count = 1;
    std::uint64_t bytes = 0;
    Figures figures = Figures::unknown;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.reference("reason", Definition::string, self.reason);
        visit.number("count", self.count);
        visit.number("bytes", self.bytes);
        visit.choice("figures", self.figures, Figures::at_least);
    }
    bool operator==(const Missed&) const = default;
};

/// The kinds of GPU work.
enum class WorkKind : std::uint8_t { kernel, copy, fill };
inline constexpr int work_kind_count = 3;
/// "kernel", "copy", "fill"
const char* name_of(WorkKind kind);

/// A completed piece of GPU work. Recorded after it has ended, often long after: its times may be
/// before those of earlier records, and are 0 where they are before the start of the recording.
struct Work {
    WorkKind kind = WorkKind::kernel;
    std::uint32_t name = 0;    ///< StringDef::id: the kernel, mangled as the compiler did; 0: none
    std::uint32_t device = 0;  ///< DeviceInfo::index
    std::uint32_t stream = 0;  ///< CUPTI's number of the stream
    std::uint32_t correlation = 0;  ///< CUPTI's number of the call that submitted it
    std::uint64_t start_ns = 0;
    std::uint64_t end_ns = 0;  ///< not before start_ns
    std::uint64_t bytes = 0;   ///< of copies and fills

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.choice("kind", self.kind, WorkKind::fill);
        visit.reference("name", Definition::string, self.name);
        visit.subject("device", Definition::device, self.device);
        visit.number("stream", self.stream);
        visit.correlation("correlation", self.correlation);
        visit.period("start", "duration", self.start_ns, self.end_ns);
        visit.number("bytes", self.bytes);
    }
    bool operator==(const Work&) const = default;
};

/// A driver allocation that memlab neither served nor recorded. Found by the audit, which compares
/// the driver's own records with the recording.
struct Bypass {
    std::uint64_t time_ns = 0;
    MemoryKind kind = MemoryKind::device;
    std::uint32_t device = 0;
    std::uint32_t api = 0;    ///< StringDef::id of the function that was called; 0: unknown
    std::uint32_t stack = 0;  ///< StackDef::id; 0: unknown
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.choice("kind", self.kind, last_memory_kind);
        visit.subject("device", Definition::device, self.device);
        visit.reference("API", Definition::string, self.api);
        visit.reference("stack", Definition::stack, self.stack);
        visit.number("address", self.address);
        visit.number("bytes", self.bytes);
    }
    bool operator==(const Bypass&) const = default;
};

/// The result of the audit and of recording GPU work. The last one of a log counts; a log without
/// one is of a process in which neither was enabled.
struct Coverage {
    /// `because` where GPU work alone was recorded.
    static constexpr const char* not_wanted = "Nobody asked for an audit; MEMLAB_AUDIT=on does.";
    std::uint64_t time_ns = 0;
    bool audited = false;       ///< every driver allocation was compared
    std::uint32_t cupti = 0;    ///< StringDef::id: version and file; 0: none was used
    std::uint32_t because = 0;  ///< StringDef::id: why there was no (whole) audit, a sentence
    std::uint64_t count = 0;    ///< allocations in the driver's records
    std::uint64_t bytes = 0;    ///< their bytes
    std::uint64_t lost = 0;     ///< records that CUPTI reported as lost, including those of work

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.flag("audited", self.audited);
        visit.reference("CUPTI", Definition::string, self.cupti);
        visit.reference("because", Definition::string, self.because);
        visit.number("count", self.count);
        visit.number("bytes", self.bytes);
        visit.number("records lost", self.lost);
    }
    bool operator==(const Coverage&) const = default;
};

/// The first record of a log.
struct ProcessInfo {
    std::uint32_t pid = 0;
    std::uint32_t parent_pid = 0;
    std::string executable = {};  ///< absolute path
    std::vector<std::string> arguments = {};
    std::string host = {};
    std::string memlab_version = {};
    std::uint64_t start_wall_ns = 0;       ///< CLOCK_REALTIME, Unix epoch
    std::uint64_t start_monotonic_ns = 0;  ///< CLOCK_MONOTONIC at the same time
    bool started_late =
        false;  ///< CUDA was in use before memlab started: earlier events are missing
    std::vector<std::pair<std::string, std::string>> ranks =
        {};  ///< RANK, OMPI_COMM_WORLD_RANK, ...

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("pid", self.pid);
        visit.number("parent pid", self.parent_pid);
        visit.text("executable", self.executable);
        visit.list("arguments", self.arguments,
                   [](auto& argument, auto& item) { item.text("argument", argument); });
        visit.text("host", self.host);
        visit.text("memlab version", self.memlab_version);
        visit.number("start of the wall clock", self.start_wall_ns);
        visit.number("start of the monotonic clock", self.start_monotonic_ns);
        visit.flag("started late", self.started_late);
        visit.list("rank variables", self.ranks, [](auto& rank, auto& item) {
            item.text("name", rank.first);
            item.text("value", rank.second);
        });
    }
    bool operator==(const ProcessInfo&) const = default;
};

/// An option in effect and its value, as text.
struct OptionValue {
    std::string name = {};
    std::string value = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text("name", self.name);
        visit.text("value", self.value);
    }
    bool operator==(const OptionValue&) const = default;
};

/// A GPU, or what one of the program's allocators holds on a GPU: its segments are the driver's
/// allocations there, and its allocations are parts of them (suballocations). Each has figures of
/// its own, so that both are whole: the GPU's are what the driver handed out, the allocator's what
/// it made of it.
struct DeviceInfo {
    /// A GPU's is the driver's ordinal in this process; an allocator's: suballocator_index().
    std::uint32_t index = 0;
    std::string name = {};
    std::string uuid = {};  ///< "GPU-xxxxxxxx-xxxx-..." as nvidia-smi prints it
    std::uint64_t total_bytes = 0;
    std::int32_t driver_version = 0;  ///< cuDriverGetVersion: 13000 is 13.0
    std::uint64_t limit_bytes = 0;    ///< MEMLAB_LIMIT; 0: none, or not below the total
    std::string allocator = {};       ///< "PyTorch"; empty: a GPU
    std::uint32_t gpu = 0;            ///< of an allocator: the index of its GPU

    /// Indexes of GPUs are below it.
    static constexpr std::uint32_t max_gpus = 64;
    /// The allocator of PyTorch's cache.
    static constexpr const char* pytorch = "PyTorch";
    /// Allocators are numbered from 0.
    static constexpr std::uint32_t suballocator_index(std::uint32_t allocator, std::uint32_t gpu) {
        return (allocator + 1) * max_gpus + gpu;
    }
    bool is_gpu() const { return allocator.empty(); }
    /// "GPU 0"; "PyTorch on GPU 0"
    std::string label() const {
        return is_gpu() ? "GPU " + std::to_string(index)
                        : allocator + " on GPU " + std::to_string(gpu);
    }

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.definition("index", Definition::device, self.index);
        visit.text("name", self.name);
        visit.text("uuid", self.uuid);
        visit.number("total bytes", self.total_bytes);
        visit.number("driver version", self.driver_version);
        visit.number("limit", self.limit_bytes);
        visit.text("allocator", self.allocator);
        visit.number("GPU", self.gpu);
    }
    bool operator==(const DeviceInfo&) const = default;
};

struct ContextInfo {
    std::uint32_t id = 0;
    std::uint32_t device = 0;
    bool primary = false;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.definition("id", Definition::context, self.id);
        visit.subject("device", Definition::device, self.device);
        visit.flag("primary", self.primary);
    }
    bool operator==(const ContextInfo&) const = default;
};

/// The context was destroyed or reset, with all its memory. The aggregator ends its allocations and
/// segments; no individual events follow for them.
struct ContextLost {
    std::uint64_t time_ns = 0;
    std::uint32_t context = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.subject("context", Definition::context, self.context);
    }
    bool operator==(const ContextLost&) const = default;
};

/// A thread's name. The latest one counts, since the kernel reuses thread ids.
struct ThreadInfo {
    std::uint32_t thread = 0;  ///< kernel thread id
    std::uint32_t name = 0;    ///< StringDef::id; 0: unnamed

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("thread", self.thread);
        visit.reference("name", Definition::string, self.name);
    }
    bool operator==(const ThreadInfo&) const = default;
};

/// Memory of the pool, or that the program maps itself, has left a device for elsewhere, or is back
/// (MEMLAB_YIELD). It is not freed: blocks and addresses are as before.
struct MemoryMoved {
    std::uint64_t time_ns = 0;
    std::uint32_t device = 0;
    std::uint64_t away = 0;  ///< bytes that are elsewhere from now on, in all

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.subject("device", Definition::device, self.device);
        visit.number("bytes that are away", self.away);
    }
    bool operator==(const MemoryMoved&) const = default;
};

/// How the process ended. A log without End was cut off: killed, _exit, exec.
enum class EndKind : std::uint8_t {
    exit,        ///< exit() or return from main
    quick_exit,  ///< quick_exit()
};

/// The log has stopped; the recording continues without it. Only End may follow.
struct LogStopped {
    std::uint64_t time_ns = 0;  ///< of the first record that is missing
    std::string reason = {};    ///< one sentence, without a full stop
    /// Events dropped since. Updated in place, so that it survives a kill: exact where the log is
    /// mapped, else at least half of the true count.
    std::uint64_t events_dropped = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.text("reason", self.reason);
        visit.overwritten("events dropped", self.events_dropped);
    }
    bool operator==(const LogStopped&) const = default;
};

/// The last record of a log.
struct End {
    std::uint64_t time_ns = 0;
    EndKind kind = EndKind::exit;
    std::uint64_t events_dropped = 0;  ///< missing from the log (limit reached, disk full)
    /// LogWriter::stopped_because(). Both are set from the writer before End is passed to the
    /// sinks, so that the report and the log agree.
    std::string log_stopped_because = {};
    static constexpr std::int32_t unknown_code = -1;
    /// As the parent sees it, 0 to 255; unknown for quick_exit().
    std::int32_t exit_code = unknown_code;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.choice("kind", self.kind, EndKind::quick_exit);
        visit.number("events dropped", self.events_dropped);
        visit.text("why the log stopped", self.log_stopped_because);
        visit.number("exit code", self.exit_code);
    }
    bool operator==(const End&) const = default;
};

/// The start of a checkpoint in the log: what follows up to the last AggregateState, definitions
/// from number 1 on and the state, is all that was recorded before. The log's writer makes it, and
/// its reader delivers it where records before it are missing.
struct Checkpoint {
    /// Of the state's format; see StateReader.
    static constexpr std::uint32_t state_version = 9;

    std::uint64_t time_ns = 0;  ///< of the latest record before
    std::uint32_t version = state_version;
    std::uint64_t events = 0;  ///< recorded before

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.number("version of the state", self.version);
        visit.number("events before", self.events);
    }
    bool operator==(const Checkpoint&) const = default;
};

/// A part of the aggregator's state, of a checkpoint.
struct AggregateState {
    bool last = false;
    std::string bytes = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.flag("last", self.last);
        visit.text("bytes", self.bytes);
    }
    bool operator==(const AggregateState&) const = default;
};

/// All kinds of records except Event, which has its own tags (log_format.hpp): KIND(type, name,
/// tag). Tags are never reused.
#define MEMLAB_RECORD_KINDS(KIND)                     \
    KIND(ProcessInfo, process_info, 1)                \
    KIND(OptionValue, option_value, 2)                \
    KIND(DeviceInfo, device_info, 3)                  \
    KIND(ContextInfo, context_info, 4)                \
    KIND(ContextLost, context_lost, 5)                \
    KIND(ThreadInfo, thread_info, 6)                  \
    KIND(StringDef, string_def, 7)                    \
    KIND(ModuleDef, module_def, 8)                    \
    KIND(PythonFrameDef, python_frame_def, 9)         \
    KIND(StackDef, stack_def, 10)                     \
    KIND(OomEvent, oom_event, 11)                     \
    KIND(DeviceSample, device_sample, 12)             \
    KIND(Missed, missed, 13)                          \
    KIND(Work, work, 14)                              \
    KIND(Bypass, bypass, 15)                          \
    KIND(Coverage, coverage, 16)                      \
    KIND(LogStopped, log_stopped, 17)                 \
    KIND(End, end, 18)                                \
    KIND(Checkpoint, checkpoint, 19)                  \
    KIND(AggregateState, aggregate_state, 20)         \
    KIND(LedgerEntry, ledger_entry, 21)               \
    KIND(Witness, witness, 22)                        \
    KIND(CommunicatorMemory, communicator_memory, 23) \
    KIND(NnModuleStackDef, nn_module_stack_def, 24)   \
    KIND(NnModuleName, nn_module_name, 25)            \
    KIND(MemoryMoved, memory_moved, 26)

#define MEMLAB_ALTERNATIVE(Record, name, tag) , Record
/// A record of any kind.
using AnyRecord = std::variant<Event MEMLAB_RECORD_KINDS(MEMLAB_ALTERNATIVE)>;
#undef MEMLAB_ALTERNATIVE

}  // namespace memlab::trace
