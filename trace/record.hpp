// The records of a recording: what the event log stores, what the Aggregator adds up and what every
// reader gets back. Each kind is written down here and nowhere else: its data, its fields() and its
// line in MEMLAB_RECORD_KINDS. Encoder, decoder, the check of references and the table in
// docs/event-log.md are visitors of fields(); sinks, the log's reader and writer are made of the
// lines. A record without a consumer of its own passes through all of them.
//
// Times are nanoseconds of CLOCK_MONOTONIC since ProcessInfo::start_monotonic_ns. Sizes are bytes.
// Identifiers (strings, modules, Python frames, stacks, contexts) are small numbers given out in
// order from 1; 0 always means "none". A definition comes before its first use.
//
// Every member has an initializer (also where it changes nothing), so that a record may be written
// with designated initializers without a warning about the rest.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace memlab::trace {

/// What records define and refer to by number.
enum class Definition : std::uint8_t { string, module, python_frame, stack, context, device };

/// What was allocated; the distinctions are CUPTI's (CUpti_ActivityMemoryKind and the pools).
enum class MemoryKind : std::uint8_t {
    device,      ///< cuMemAlloc, cuMemAllocPitch
    managed,     ///< cuMemAllocManaged
    pinned,      ///< cuMemAllocHost, cuMemHostAlloc, cuMemHostRegister: host memory
    array,       ///< cuArrayCreate, cuArray3DCreate, cuMipmappedArrayCreate
    async_pool,  ///< cuMemAllocAsync, cuMemAllocFromPoolAsync: the driver's own pools
    vmm,         ///< cuMemCreate: physical memory; its address is the allocation handle
    ipc_import,  ///< memory of another process or API mapped here; owned elsewhere
    graph,       ///< memory nodes of a CUDA graph
};
inline constexpr int memory_kind_count = 8;

/// "device", "managed", ...: the names used in every output.
const char* name_of(MemoryKind kind);

/// True for kinds whose bytes are device memory that this process holds: they make up the curves.
/// False for pinned (host), managed (migrates) and ipc_import (another process holds it).
bool counts_as_device_memory(MemoryKind kind);

/// Who served an allocation.
enum class Origin : std::uint8_t {
    pool,    ///< memlab's pool
    driver,  ///< the real driver call; recorded only
};

/// Names follow PyTorch's snapshot actions.
enum class EventType : std::uint8_t {
    alloc,
    free_requested,  ///< the application gave it back
    free_completed,  ///< pool only: the memory is safe to reuse
    segment_alloc,   ///< the pool got a range from the driver
    segment_free,    ///< the pool gave a range back
    segment_map,
    segment_unmap,
    alloc_retry,  ///< out of memory: the pool releases its cache and tries once more
    sync,         ///< the pool waited on the host for pending frees to become reusable
    mark,
    scope_begin,
    scope_end,
    // What the pool was told to do, where its other events do not tell: a replay needs it.
    empty_cache,  ///< the pool gives unused memory back on request; precedes its segment_free
    tick,       ///< the pool's clock moved to `requested` nanoseconds; precedes what it gives back
    make_room,  ///< before growing for `requested` bytes the pool gives unused memory back
    label,      ///< the program names the live allocation at `address`
};
const char* name_of(EventType type);

/// One thing that happened to memory. Fields that do not apply are 0.
/// For origin driver a free_requested is also the completion: no free_completed follows.
///
/// Scopes: `requested` and `size` are the domain: a scope_end ends the innermost scope of its
/// domain and thread. With an `address` it is a range of the process: scope_end names the same one,
/// from any thread. A scope_end with the stream ended_with_thread ends all scopes of its thread.
struct Event {
    EventType type = EventType::alloc;
    MemoryKind kind = MemoryKind::device;
    Origin origin = Origin::driver;
    std::uint32_t device = 0;       ///< DeviceInfo::index
    std::uint32_t context = 0;      ///< ContextInfo::id
    std::uint32_t thread = 0;       ///< kernel thread id
    std::uint32_t api = 0;          ///< StringDef::id of the function that the program called
    std::uint32_t stack = 0;        ///< StackDef::id
    std::uint32_t name = 0;         ///< StringDef::id: mark and scope names
    std::uint32_t correlation = 0;  ///< CUPTI's number of that call; 0: unknown
    std::uint64_t time_ns = 0;      ///< never decreases from one event of a log to the next
    std::uint64_t stream = 0;       ///< the CUstream's value where the call names one
    std::uint64_t address = 0;    ///< device address, or the handle for kinds that have no address
    std::uint64_t requested = 0;  ///< what the application asked for
    std::uint64_t size = 0;       ///< what serves it: the block, or the segment for segment events

    bool operator==(const Event&) const = default;
};

/// The free_completed of a free_requested that was complete at once.
inline Event completed_at_once(const Event& free_requested) {
    Event completed = free_requested;
    completed.type = EventType::free_completed;
    completed.api = 0;
    completed.stack = 0;
    completed.correlation = 0;
    return completed;
}

/// Event::stream of a scope_end: the thread ended.
inline constexpr std::uint64_t ended_with_thread = 1;

/// An allocation that failed for lack of memory, with the state of things at that moment.
struct OomEvent {
    std::uint64_t time_ns = 0;
    std::uint32_t device = 0;
    std::uint32_t context = 0;
    std::uint32_t thread = 0;
    std::uint32_t api = 0;
    std::uint32_t stack = 0;
    MemoryKind kind = MemoryKind::device;
    std::uint64_t requested = 0;
    std::uint64_t device_free = 0;  ///< as the driver says, after cached segments were released
    std::uint64_t device_total = 0;
    std::uint64_t limit = 0;  ///< MEMLAB_LIMIT's of this device; 0: none, or not below the total
    std::uint64_t largest_free_block = 0;  ///< in the pool, before cached segments were released
    std::int32_t error = 0;                ///< the CUresult that the program got

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.subject("device", Definition::device, self.device);
        visit.reference("context", Definition::context, self.context);
        visit.number("thread", self.thread);
        visit.reference("API", Definition::string, self.api);
        visit.reference("stack", Definition::stack, self.stack);
        visit.choice("kind", self.kind, MemoryKind::graph);
        visit.number("requested", self.requested);
        visit.number("device free", self.device_free);
        visit.number("device total", self.device_total);
        visit.number("largest free block", self.largest_free_block);
        visit.number("error", self.error);
        visit.number("limit", self.limit);
    }
    bool operator==(const OomEvent&) const = default;
};

/// The driver's own view: used = total - free, of the whole device, other processes included.
struct DeviceSample {
    std::uint64_t time_ns = 0;
    std::uint32_t device = 0;
    std::uint64_t used = 0;
    std::uint64_t total = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.subject("device", Definition::device, self.device);
        visit.number("used", self.used);
        visit.number("total", self.total);
    }
    bool operator==(const DeviceSample&) const = default;
};

/// Something that memlab could not see or serve, and why. Repeated records of one reason add up.
struct Missed {
    std::uint64_t time_ns = 0;
    std::uint32_t reason = 0;  ///< StringDef::id, a full sentence for the report
    std::uint64_t count = 1;
    std::uint64_t bytes = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.time("time", self.time_ns);
        visit.reference("reason", Definition::string, self.reason);
        visit.number("count", self.count);
        visit.number("bytes", self.bytes);
    }
    bool operator==(const Missed&) const = default;
};

/// What the GPU did.
enum class WorkKind : std::uint8_t { kernel, copy, fill };
inline constexpr int work_kind_count = 3;
/// "kernel", "copy", "fill"
const char* name_of(WorkKind kind);

/// A piece of work that has run. Told when it is over, often long after: its times may lie before
/// those of earlier records, and reach before the start of the recording (then they are 0).
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

/// An allocation that the driver made and that memlab neither served nor recorded: found by the
/// audit, which compares the driver's own records with the recording.
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
        visit.choice("kind", self.kind, MemoryKind::graph);
        visit.subject("device", Definition::device, self.device);
        visit.reference("API", Definition::string, self.api);
        visit.reference("stack", Definition::stack, self.stack);
        visit.number("address", self.address);
        visit.number("bytes", self.bytes);
    }
    bool operator==(const Bypass&) const = default;
};

/// What became of the audit and of the records of work: the last one of a log counts. A log without
/// one is of a process in which nobody asked for either.
struct Coverage {
    std::uint64_t time_ns = 0;
    bool audited = false;       ///< every allocation of the driver was compared
    std::uint32_t cupti = 0;    ///< StringDef::id: version and file; 0: none was used
    std::uint32_t because = 0;  ///< StringDef::id: why there was no (whole) audit, a sentence
    std::uint64_t count = 0;    ///< allocations that the driver's records tell of
    std::uint64_t bytes = 0;    ///< their bytes
    std::uint64_t lost = 0;     ///< records that CUPTI says it lost, of work too

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
    std::uint64_t start_monotonic_ns = 0;  ///< CLOCK_MONOTONIC at the same moment
    bool started_late =
        false;  ///< CUDA was in use before memlab saw it: earlier events are missing
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

/// An option in force and its value, as text.
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

struct DeviceInfo {
    std::uint32_t index = 0;  ///< the driver's ordinal in this process
    std::string name = {};
    std::string uuid = {};  ///< "GPU-xxxxxxxx-xxxx-..." as nvidia-smi prints it
    std::uint64_t total_bytes = 0;
    std::int32_t driver_version = 0;  ///< cuDriverGetVersion: 13000 is 13.0
    std::uint64_t limit_bytes = 0;    ///< MEMLAB_LIMIT's; 0: none, or not below the total

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.definition("index", Definition::device, self.index);
        visit.text("name", self.name);
        visit.text("uuid", self.uuid);
        visit.number("total bytes", self.total_bytes);
        visit.number("driver version", self.driver_version);
        visit.number("limit", self.limit_bytes);
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

/// The context was destroyed or reset: all that lived in it is gone. The aggregator ends its
/// allocations and segments; no single events follow for them.
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

/// What a thread is called. The latest one counts: the kernel gives a thread's id out again.
struct ThreadInfo {
    std::uint32_t thread = 0;  ///< kernel thread id
    std::uint32_t name = 0;    ///< StringDef::id; 0: it has no name of its own

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("thread", self.thread);
        visit.reference("name", Definition::string, self.name);
    }
    bool operator==(const ThreadInfo&) const = default;
};

struct StringDef {
    std::uint32_t id = 0;
    std::string text = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.definition("id", Definition::string, self.id);
        visit.text("text", self.text);
    }
    bool operator==(const StringDef&) const = default;
};

/// A loaded object: addresses in [start, end) belong to it, and address - bias is the address that
/// its symbol table and debug information use.
struct ModuleDef {
    std::uint32_t id = 0;
    std::string path = {};
    std::string build_id = {};  ///< lower-case hexadecimal; empty where the object has none
    std::uint64_t bias = 0;
    std::uint64_t start = 0;
    std::uint64_t end = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.definition("id", Definition::module, self.id);
        visit.text("path", self.path);
        visit.text("build id", self.build_id);
        visit.number("bias", self.bias);
        visit.number("start", self.start);
        visit.number("end", self.end);
    }
    bool operator==(const ModuleDef&) const = default;
};

/// A place in Python code: the line that a function was at.
struct PythonFrameDef {
    std::uint32_t id = 0;
    std::uint32_t function = 0;    ///< StringDef::id of its qualified name ("Model.forward")
    std::uint32_t file = 0;        ///< StringDef::id, as the code object has it
    std::uint32_t line = 0;        ///< 0: the code has none there
    std::uint32_t first_line = 0;  ///< where the function begins; 0: unknown

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.definition("id", Definition::python_frame, self.id);
        visit.reference("function", Definition::string, self.function);
        visit.reference("file", Definition::string, self.file);
        visit.number("line", self.line);
        visit.number("first line", self.first_line);
    }
    bool operator==(const PythonFrameDef&) const = default;
};

/// One frame: the *return* address (leaf frames included: the call into CUDA), relative to the
/// module's bias, or absolute where the module is unknown (module 0). A Python frame has neither.
struct Frame {
    std::uint32_t module = 0;
    std::uint64_t address = 0;
    std::uint32_t python = 0;  ///< PythonFrameDef::id

    bool operator==(const Frame&) const = default;
};

/// A call stack, leaf (nearest to the CUDA call) first.
struct StackDef {
    std::uint32_t id = 0;
    bool truncated = false;  ///< deeper than the limit in force
    std::vector<Frame> frames = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.definition("id", Definition::stack, self.id);
        visit.flag("truncated", self.truncated);
        visit.list("frames", self.frames, [](auto& frame, auto& item) { item.frame(frame); });
    }
    bool operator==(const StackDef&) const = default;
};

/// How the process ended, where memlab saw it. A log without it was cut off: killed, _exit, exec.
enum class EndKind : std::uint8_t {
    exit,        ///< exit() or return from main
    quick_exit,  ///< quick_exit()
};

/// The log takes no more: the recording goes on without it. Nothing but End follows.
struct LogStopped {
    std::uint64_t time_ns = 0;  ///< of the first record that is missing
    std::string reason = {};    ///< one sentence, without a full stop
    /// Events that are missing since. Kept up to date while the process lives, so that a process
    /// that is killed leaves it: exactly where the log is mapped, else at least half of them.
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
    std::uint64_t events_dropped = 0;  ///< events that the log lost (limit reached, disk full)
    /// LogWriter::stopped_because(); both come from the writer before End goes to the sinks, so
    /// that the report and the log say the same.
    std::string log_stopped_because = {};
    static constexpr std::int32_t unknown_code = -1;
    /// As the parent sees it, 0 to 255; of quick_exit() it is not known.
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

/// Every kind of record but Event, which has tags of its own (log_format.hpp): KIND(type, name,
/// tag). A tag is never used again for something else.
#define MEMLAB_RECORD_KINDS(KIND)             \
    KIND(ProcessInfo, process_info, 1)        \
    KIND(OptionValue, option_value, 2)        \
    KIND(DeviceInfo, device_info, 3)          \
    KIND(ContextInfo, context_info, 4)        \
    KIND(ContextLost, context_lost, 5)        \
    KIND(ThreadInfo, thread_info, 6)          \
    KIND(StringDef, string_def, 7)            \
    KIND(ModuleDef, module_def, 8)            \
    KIND(PythonFrameDef, python_frame_def, 9) \
    KIND(StackDef, stack_def, 10)             \
    KIND(OomEvent, oom_event, 11)             \
    KIND(DeviceSample, device_sample, 12)     \
    KIND(Missed, missed, 13)                  \
    KIND(Work, work, 14)                      \
    KIND(Bypass, bypass, 15)                  \
    KIND(Coverage, coverage, 16)              \
    KIND(LogStopped, log_stopped, 17)         \
    KIND(End, end, 18)

#define MEMLAB_ALTERNATIVE(Record, name, tag) , Record
/// A record of any kind.
using AnyRecord = std::variant<Event MEMLAB_RECORD_KINDS(MEMLAB_ALTERNATIVE)>;
#undef MEMLAB_ALTERNATIVE

}  // namespace memlab::trace
