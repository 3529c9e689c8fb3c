// A parsed report: schema version 1 (docs/report-format.md) as plain data, every index checked.
// Sizes are bytes, times nanoseconds since the process started.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/source_frame.hpp"
#include "trace/json/memory_label.hpp"
#include "trace/json/report_entries.hpp"
#include "trace/record.hpp"

namespace memlab::report {

/// The curves of the timeline, in the order of its columns.
enum class Curve : std::size_t { requested, allocated, active, reserved, device_used };
inline constexpr std::size_t curve_count = 5;

struct Process {
    std::uint64_t pid = 0;
    std::uint64_t parent_pid = 0;
    std::string executable;
    std::vector<std::string> arguments;
    std::string host;
    std::uint64_t start_wall_ns = 0;
    std::uint64_t duration_ns = 0;  ///< up to the latest time known
    /// Time of the last event, if memlab-run saw that the process ran longer; else 0.
    std::uint64_t recorded_ns = 0;
    bool recording = false;  ///< it runs and is still writing the log that this was read from
    std::string ended;       ///< "exit", "quick_exit", "cut off", or "running" in a snapshot
    std::string signal;      ///< "SIGKILL", if memlab-run saw how it died; else empty
    std::optional<std::uint64_t> exit_code;  ///< if memlab-run saw it
    bool started_late = false;
    std::map<std::string, std::string> ranks;
};

struct CurveSummary {
    std::uint64_t peak_bytes = 0;
    std::uint64_t peak_time_ns = 0;
    std::uint64_t at_end_bytes = 0;
};

struct KindTotals {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;
};

/// Who held memory at one moment, largest first; `other_*` sum the sites that are not listed.
struct Holders {
    struct Share {
        std::size_t site = 0;  ///< index into Report::sites
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
        std::vector<MemoryLabel> labels = {};  ///< of an OOM: the program's names for it
    };
    std::uint64_t time_ns = 0;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::vector<Share> sites;
    std::uint64_t other_sites = 0;
    std::uint64_t other_count = 0;
    std::uint64_t other_bytes = 0;
};

struct Fragmentation {
    std::optional<double> at_peak;
    std::optional<double> external;
    std::optional<double> internal;
    std::uint64_t largest_free_bytes = 0;
    std::uint64_t total_free_bytes = 0;
};

/// A bucket with at least one event; the next row may begin many buckets later.
struct TimelineRow {
    struct Values {
        std::uint64_t min = 0;
        std::uint64_t max = 0;
        std::uint64_t last = 0;
    };
    std::uint64_t begin_ns = 0;
    std::array<std::optional<Values>, curve_count> curves;  ///< only device_used may be missing
};

struct Timeline {
    std::uint64_t bucket_ns = 0;
    std::vector<TimelineRow> rows;  ///< in order of time
};

/// What the GPU did, if that was recorded (MEMLAB_KERNELS).
struct Work {
    struct Totals {
        std::uint64_t count = 0;
        std::uint64_t busy_ns = 0;
        std::uint64_t bytes = 0;
    };
    std::map<std::string, Totals> kinds;  ///< "kernel", "copy", "fill"
};

/// The kernels that ran while the memory was at its peak, longest first.
struct KernelsAtPeak {
    struct Kernel {
        std::string name;  ///< mangled
        std::uint64_t count = 0;
        std::uint64_t busy_ns = 0;  ///< between from_ns and to_ns
    };
    std::uint64_t from_ns = 0;
    std::uint64_t to_ns = 0;
    std::vector<Kernel> kernels;
    std::uint64_t other_names = 0;
    std::uint64_t other_count = 0;
    std::uint64_t other_ns = 0;
};

/// A GPU, or what an allocator of the program's holds on one: its segments are allocations of the
/// GPU's, its allocations are cut from them.
struct Device {
    std::uint64_t index = 0;
    std::string name;
    std::string uuid;
    std::uint64_t total_bytes = 0;
    std::optional<std::uint64_t> limit_bytes;  ///< the part that MEMLAB_LIMIT allows
    std::uint64_t driver_version = 0;
    std::string allocator;  ///< "PyTorch"; empty: a GPU
    std::uint64_t gpu = 0;  ///< index of the GPU itself, or of the allocator's
    std::array<std::optional<CurveSummary>, curve_count>
        curves;  ///< only device_used may be missing
    std::map<std::string, KindTotals> kinds;
    std::map<std::string, std::uint64_t> memory_stats;
    Fragmentation fragmentation;
    Timeline timeline;
    Holders at_peak;
    Holders live;
    std::optional<Work> work;
    std::optional<KernelsAtPeak> kernels_at_peak;

    const CurveSummary& curve(Curve which) const {
        static const CurveSummary none;
        const auto& found = curves.at(static_cast<std::size_t>(which));
        return found ? *found : none;
    }

    bool is_gpu() const { return allocator.empty(); }

    /// False for a GPU on which the program allocated nothing.
    bool used() const {
        return curve(Curve::reserved).peak_bytes != 0 || curve(Curve::allocated).peak_bytes != 0 ||
               !kinds.empty();
    }
};

/// Whether the device of this index is the wanted one, or an allocator's on the wanted GPU.
inline bool is_on(std::uint64_t index, std::uint64_t wanted) {
    return index == wanted || index % trace::DeviceInfo::max_gpus == wanted;
}

/// "GPU 0"; "PyTorch on GPU 0"
inline std::string device_label(const Device& device) {
    return (device.is_gpu() ? "GPU " : device.allocator + " on GPU ") + std::to_string(device.gpu);
}

/// False for memory on the host, managed memory (it migrates), and memory of another process: the
/// curves do not include these.
inline bool is_in_curves(const std::string& kind) {
    return kind != "managed" && kind != "pinned" && kind != "ipc_import";
}

struct Frame {
    std::size_t module = 0;     ///< index into Report::modules; 0: unknown
    std::uint64_t address = 0;  ///< in the module; 0 without one
    std::size_t python = 0;     ///< index into Report::python_frames; 0: a native frame
    /// Found by memlab-report symbolize, innermost first; empty: nothing found, or not symbolized.
    std::vector<SourceFrame> source{};
};

/// A line of Python code on a call stack.
struct PythonFrame {
    std::string function;  ///< qualified name
    std::string file;
    int line = 0;        ///< 0: unknown
    int first_line = 0;  ///< of the function; 0: unknown
};

struct Module {
    std::string path;
    std::string build_id;
};

struct CurveValues {
    std::uint64_t requested = 0;
    std::uint64_t allocated = 0;
    std::uint64_t active = 0;
    std::uint64_t reserved = 0;
};

struct Oom {
    std::uint64_t time_ns = 0;
    std::uint64_t device = 0;
    std::uint64_t thread = 0;
    std::string api;
    std::string kind;
    std::size_t stack = 0;
    std::uint64_t requested_bytes = 0;
    std::uint64_t device_free_bytes = 0;
    std::uint64_t device_total_bytes = 0;
    std::uint64_t largest_free_block_bytes = 0;
    std::int64_t error = 0;
    CurveValues current;
    Holders holders;
    std::vector<std::string> explanation;  ///< empty in reports of earlier versions
};

struct Mark {
    struct OnDevice {
        std::uint64_t device = 0;
        CurveValues values;
        std::uint64_t allocated_peak_bytes = 0;  ///< since the previous mark
        std::uint64_t reserved_peak_bytes = 0;
    };
    std::string type;  ///< "mark", "scope_begin", "scope_end"
    std::string name;
    std::uint64_t time_ns = 0;
    std::vector<OnDevice> devices;
};

struct Scope {
    std::optional<std::size_t> parent;  ///< index into Report::scopes, less than its own
    std::string kind;                   ///< "scope" of a thread, "range" of the process
    std::string name;
    std::uint64_t entries = 0;
    std::uint64_t open = 0;
    std::uint64_t duration_ns = 0;
    std::uint64_t allocated_count = 0;
    std::uint64_t allocated_bytes = 0;
    std::uint64_t other_threads_count = 0;
    std::uint64_t other_threads_bytes = 0;
    std::uint64_t freed_count = 0;
    std::uint64_t freed_bytes = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t peak_growth_bytes = 0;
    std::uint64_t max_escaped_bytes = 0;
    Holders escaped;
};

struct UnbalancedScopes {
    std::uint64_t ends_without_begin = 0;
    std::uint64_t ended_with_thread = 0;
    std::uint64_t too_many_open = 0;
    std::uint64_t open_at_end = 0;
};

struct Trend {
    double bytes_per_step = 0;
    std::uint64_t first_bytes = 0;
    std::uint64_t last_bytes = 0;
    std::uint64_t min_bytes = 0;
    std::uint64_t max_bytes = 0;
};

struct Steps {
    struct Growing {
        std::size_t site = 0;  ///< index into Report::sites
        Trend trend;
    };
    std::string kind;  ///< "mark", "scope" or "range"
    std::string name;
    std::uint64_t steps = 0;
    std::uint64_t warm_up_steps = 0;
    std::string verdict;  ///< "too few steps", "steady", "growing", "sawtooth"
    Trend trend;
    std::uint64_t steps_per_block = 0;
    std::vector<std::uint64_t> block_min_bytes;
    std::vector<std::uint64_t> block_max_bytes;
    bool by_site = false;
    std::vector<Growing> growing;
    std::uint64_t growing_site_count = 0;
    std::uint64_t sites_left_out = 0;
};

struct Label {
    std::string name;
    std::uint64_t count = 0;
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;
    std::uint64_t peak_bytes = 0;
};

struct LiveAllocation {
    std::uint64_t address = 0;
    std::size_t site = 0;  ///< index into Report::sites
    std::uint64_t thread = 0;
    std::uint64_t time_ns = 0;
    std::uint64_t requested_bytes = 0;
    std::uint64_t bytes = 0;
    std::string label;  ///< empty: none
};

struct Missed {
    std::string reason;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t first_time_ns = 0;
};

/// Memory that bypassed memlab, as found by the audit, or why there was no audit.
struct Coverage {
    struct Bypassed {
        std::uint64_t device = 0;
        std::string kind;
        std::string api;        ///< empty: unknown
        std::size_t stack = 0;  ///< index into Report::stacks; 0: none
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
        std::uint64_t first_time_ns = 0;
    };
    bool audited = false;
    std::string because;  ///< why there was no audit, or only part of one
    std::string cupti;    ///< version and file; empty: none
    std::uint64_t driver_count = 0;
    std::uint64_t driver_bytes = 0;
    std::uint64_t lost_records = 0;
    std::uint64_t bypassed_count = 0;
    std::uint64_t bypassed_bytes = 0;
    std::vector<Bypassed> bypassed;
};

struct Integrity {
    std::uint64_t unmatched_frees = 0;
    std::uint64_t unmatched_segment_frees = 0;
    std::uint64_t overwritten_allocations = 0;
    std::uint64_t overwritten_segments = 0;
    bool incomplete = false;
};

struct LogInfo {
    std::uint64_t events = 0;
    std::uint64_t dropped = 0;
    std::string stopped_because;
};

struct Report {
    std::string memlab_version;
    Process process;
    std::map<std::string, std::string> options;
    std::map<std::uint64_t, std::string> thread_names;  ///< by the kernel's thread id
    std::vector<Device> devices;
    std::vector<Site> sites;
    std::vector<Stack> stacks;
    std::vector<Frame> frames;
    std::vector<PythonFrame> python_frames;
    std::vector<Module> modules;
    std::vector<Oom> ooms;
    std::uint64_t oom_count = 0;
    std::vector<Mark> marks;
    std::uint64_t mark_count = 0;
    std::vector<Scope> scopes;
    UnbalancedScopes unbalanced_scopes;
    std::vector<Steps> steps;
    std::vector<Label> labels;
    std::vector<LiveAllocation> largest_live;
    std::vector<Missed> missed;
    Coverage coverage;
    Integrity integrity;
    LogInfo log;
    bool from_log = false;  ///< derived from an event log; the process may have written no report
};

/// device_label() of the device of this index.
inline std::string label_of(const Report& report, std::uint64_t index) {
    for (const Device& device : report.devices) {
        if (device.index == index) {
            return device_label(device);
        }
    }
    return "GPU " + std::to_string(index);
}

}  // namespace memlab::report
