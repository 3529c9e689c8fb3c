#include "interpose/memory/oom_report.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <new>
#include <utility>

#include "interpose/control/oom_hold.hpp"
#include "interpose/driver/diagnostics.hpp"
#include "interpose/memory/caller_policy.hpp"
#include "model/oom_explanation.hpp"
#include "model/size_text.hpp"
#include "profiler/object_symbols.hpp"

namespace memlab::interpose {
namespace {

using model::OomHolder;
using model::size_text;
using trace::MemoryKind;

constexpr std::size_t max_shown_sites = 5;
constexpr std::size_t max_shown_frames = 6;  // a static CUDA runtime fills the first few

std::string hexadecimal(std::uint64_t number) {
    char digits[16];
    const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), number, 16);
    static_cast<void>(error);  // 64 bits always fit
    return "0x" + std::string(digits, end);
}

std::string_view file_name(std::string_view path) {
    return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

/// Frames between the application's call and memlab, the same in every stack.
bool is_cuda_library(std::string_view module) {
    constexpr std::string_view own[] = {"libcuda.so", "libcudart", "libcupti", "libmemlab"};
    return std::any_of(std::begin(own), std::end(own),
                       [module](std::string_view name) { return module.starts_with(name); });
}

/// Drops the parameter list of a demangled function name.
std::string without_parameters(std::string name) {
    constexpr std::string_view tail = " const";
    if (name.size() > tail.size() && name.ends_with(tail)) {
        name.resize(name.size() - tail.size());
    }
    if (name.empty() || name.back() != ')') {
        return name;
    }
    std::size_t depth = 0;
    for (std::size_t at = name.size(); at-- > 0;) {
        depth += name[at] == ')' ? 1 : 0;
        depth -= name[at] == '(' ? 1 : 0;
        if (depth == 0) {
            name.resize(at);
            break;
        }
    }
    return name;
}

/// "name+0x12": the dynamic symbol at an address of this process; empty if none.
std::string symbol_at(std::uint64_t address) {
    const profiler::ObjectSymbols::Symbol found =
        profiler::ObjectSymbols::at(address).containing(address);
    if (found.name == nullptr) {
        return {};
    }
    int status = 0;
    char* const demangled = abi::__cxa_demangle(found.name, nullptr, nullptr, &status);
    std::string name =
        demangled != nullptr ? without_parameters(demangled) : std::string(found.name);
    std::free(demangled);
    return name + "+" + hexadecimal(address - found.address);
}

/// A frame as text: the return address less one is inside the call instruction.
std::string frame_text(const OomHolder::Frame& frame) {
    const std::uint64_t call = frame.address - 1;
    if (frame.module.empty()) {
        return hexadecimal(call);
    }
    const std::string in_module = std::string(file_name(frame.module)) + "+" + hexadecimal(call);
    const std::string symbol = symbol_at(call + frame.bias);
    return symbol.empty() ? in_module : symbol + " (" + in_module + ")";
}

/// The frames with Python code, and backward's marker; those of the program itself, if any, without
/// packages.
std::vector<const OomHolder::Frame*> python_frames(const OomHolder& holder) {
    std::vector<const OomHolder::Frame*> own;
    std::vector<const OomHolder::Frame*> all;
    bool any_own = false;
    for (const OomHolder::Frame& frame : holder.frames) {
        if (!frame.python.empty()) {
            const bool marker = frame.python == trace::forward_marker;
            all.push_back(&frame);
            if (!frame.library || marker) {
                own.push_back(&frame);
            }
            any_own |= !frame.library && !marker;
        }
    }
    return any_own ? own : all;
}

/// The frames of native code, without CUDA's own.
std::vector<const OomHolder::Frame*> native_frames(const OomHolder& holder) {
    std::vector<const OomHolder::Frame*> shown;
    for (const OomHolder::Frame& frame : holder.frames) {
        const std::string_view module = file_name(frame.module);
        if (shown.size() == max_shown_frames || (!shown.empty() && module.starts_with("libc.so"))) {
            break;  // below main or the thread's start function
        }
        if (!is_cuda_library(module)) {
            shown.push_back(&frame);
        }
    }
    return shown;
}

/// Appends the API function with its callers, and an addr2line command for their source lines.
void add_call_stack(std::string line, const OomHolder& holder, std::vector<std::string>& lines) {
    std::vector<const OomHolder::Frame*> python = python_frames(holder);
    if (!python.empty()) {
        python.resize(std::min(python.size(), max_shown_frames));
        line += holder.api;
        for (const OomHolder::Frame* frame : python) {
            line += " < " + frame->python;
        }
        lines.push_back(std::move(line));
        return;
    }
    const std::vector<const OomHolder::Frame*> shown = native_frames(holder);
    line += holder.api;
    for (const OomHolder::Frame* frame : shown) {
        line += " < " + frame_text(*frame);
    }
    lines.push_back(std::move(line));
    if (!shown.empty() && !shown.front()->module.empty()) {
        line = "      addr2line -Cfipe " + shown.front()->module;
        for (const OomHolder::Frame* frame : shown) {
            if (frame->module == shown.front()->module) {
                line += " " + hexadecimal(frame->address - 1);
            }
        }
        lines.push_back(std::move(line));
    }
}

[[gnu::noinline]] std::string device_name(CUdevice device) {
    char name[256] = "";
    return call_real(&Driver::cuDeviceGetName, name, static_cast<int>(sizeof(name)), device) ==
                   CUDA_SUCCESS
               ? std::string(" (") + name + ")"
               : std::string();
}

/// Figures without a recording: the pools' statistics, and driver allocations.
[[gnu::noinline]] model::OomFigures pool_figures(Memory& memory, const trace::OomEvent& event) {
    model::OomFigures figures;
    trace::OomTotals& oom = figures.oom;
    oom.event = event;
    for (Context* context : memory.contexts().all(static_cast<CUdevice>(event.device))) {
        const allocator::PoolStats stats = context->pool().stats();
        const auto now = [](const allocator::StatByPool& stat) {
            return static_cast<std::uint64_t>(std::max<std::int64_t>(stat.all.current, 0));
        };
        oom.pool.reserved += now(stats.reserved_bytes);
        oom.pool.active += now(stats.active_bytes);
        oom.pool.allocated += now(stats.allocated_bytes);
        const std::int64_t large_free =
            stats.reserved_bytes.large_pool.current - stats.active_bytes.large_pool.current;
        oom.pool.large_free += static_cast<std::uint64_t>(std::max<std::int64_t>(large_free, 0));
        oom.current[0] += now(stats.requested_bytes);
    }
    oom.pool.largest_free = std::min(event.largest_free_block, oom.pool.reserved - oom.pool.active);
    oom.kinds = memory.live().bytes_by_kind(event.device);
    std::uint64_t served_by_driver = 0;
    for (std::size_t kind = 0; kind < oom.kinds.size(); ++kind) {
        const bool counts = trace::counts_as_device_memory(static_cast<MemoryKind>(kind));
        served_by_driver += counts ? oom.kinds[kind] : 0;
    }
    oom.kinds[static_cast<std::size_t>(MemoryKind::device)] += oom.pool.allocated;
    oom.current = {oom.current[0] + served_by_driver, oom.pool.allocated + served_by_driver,
                   oom.pool.active + served_by_driver, oom.pool.reserved + served_by_driver};
    return figures;
}

void explain(Memory& memory, const trace::OomEvent& event, const std::string& group,
             const char* function, CUdevice device) {
    model::OomFigures figures;
    OomHolder request;
    std::vector<OomHolder> holders;
    if (profiler::Recorder* recorder = memory.recorder()) {
        recorder->with_aggregate([&](const trace::Aggregator& aggregate) {
            if (!aggregate.ooms().empty()) {
                const trace::OomTotals& oom = aggregate.ooms().back();
                figures = model::oom_figures(aggregate, oom);
                request = model::oom_request(aggregate, oom);
                holders = model::oom_holders(aggregate, oom, max_shown_sites);
            }
        });
    } else {
        figures = pool_figures(memory, event);
        figures.group = group;
    }
    std::vector<std::string> lines;
    const bool host = event.kind == MemoryKind::pinned;
    lines.push_back(
        "out of memory: " + std::string(function) + " of " + size_text(event.requested) +
        (host ? std::string() : " on GPU " + std::to_string(device) + device_name(device)) +
        " failed with " + model::error_text(event.error) + ".");
    for (std::string& sentence : model::explain_oom(figures)) {
        lines.push_back("  " + sentence);
    }
    if (!request.frames.empty()) {
        add_call_stack("  Asked for by ", request, lines);
    }
    if (!holders.empty() && !host) {
        lines.emplace_back("  The largest holders of device memory:");
        for (const OomHolder& holder : holders) {
            const std::string names = model::format_labels(holder.labels, holder.bytes);
            add_call_stack("    " + size_text(holder.bytes) + " in " +
                               model::count_text(holder.count, "allocation") +
                               (names.empty() ? names : " (" + names + ")") + ": ",
                           holder, lines);
        }
    }
    const std::string path = memory.report_path();
    lines.push_back(
        "  The program got CUDA's error and goes on; later failures are " +
        (path.empty()
             ? std::string("not shown.")
             : "only in " + path + ", written at the end: memlab-report shows it, with lines."));
    warn(lines);
}

/// True once per process: a forked child has a Memory of its own.
bool is_first_oom(const Memory& memory) {
    static std::atomic<const Memory*> explained{nullptr};
    return explained.exchange(&memory, std::memory_order_relaxed) != &memory;
}

}  // namespace

namespace {

/// Adds what the driver says to it, records it, and explains the first.
void record_and_explain(Memory& memory, trace::OomEvent oom, const char* function, CUdevice device,
                        bool explained_later) {
    std::size_t free = 0;
    std::size_t total = 0;
    if (device_memory_info(&free, &total) == CUDA_SUCCESS) {
        oom.device_free = free;
        oom.device_total = total;
    }
    oom.limit = memory.limits().limit_for(device);
    const Memory::GroupLimit group = memory.group_limit(device);
    oom.group_limit = group.figures;
    oom.limit_source = group.source;
    if (profiler::Recorder* recorder = memory.recorder()) {
        recorder->record(oom);
        memory.ask_for_others();
    }
    if (!explained_later && is_first_oom(memory)) {
        explain(memory, oom, group.group, function, device);
    }
}

}  // namespace

void report_oom(Memory& memory, Api api, std::uint32_t stack, Context* context, MemoryKind kind,
                std::uint64_t requested, std::uint64_t largest_free_block,
                CUresult error) noexcept {
    if (context == nullptr) {
        return;
    }
    try {
        trace::OomEvent oom;
        oom.device = static_cast<std::uint32_t>(context->device());
        oom.context = context->id();
        oom.api = memory.api_id(api);
        oom.stack = stack;
        oom.kind = kind;
        oom.requested = requested;
        oom.largest_free_block = largest_free_block;
        oom.error = error;
        // PyTorch gives its cache back and tries again; if that fails, it says so.
        const bool explained_later =
            memory.serves_recorded_cache() && !memory.leaves_out(PytorchFeature::out_of_memory);
        record_and_explain(memory, oom, function_name(api), context->device(), explained_later);
        if (explained_later) {
            return;
        }
    } catch (const std::bad_alloc&) {  // no host memory either: the program still gets its error
    }
    // PyTorch says when it has failed, whether or not its cache is recorded.
    if (memory.has_recorder() || !memory.settings().pytorch_caches ||
        calling_allocator() != Allocator::pytorch) {
        oom_hold().wait(context->device(), requested);
    }
}

void report_suballocator_oom(Memory& memory, trace::OomEvent oom, CUdevice gpu,
                             const char* allocator) noexcept {
    try {
        oom.error = CUDA_ERROR_OUT_OF_MEMORY;
        const std::string what = std::string(allocator) + "'s allocation";
        record_and_explain(memory, oom, what.c_str(), gpu, false);
    } catch (const std::bad_alloc&) {
    }
    oom_hold().wait(gpu, oom.requested);
}

std::string place_text(const OomHolder& holder) {
    for (const OomHolder::Frame* frame : python_frames(holder)) {
        if (frame->python != trace::forward_marker) {
            return frame->python;
        }
    }
    const std::vector<const OomHolder::Frame*> native = native_frames(holder);
    return native.empty() ? std::string() : frame_text(*native.front());
}

}  // namespace memlab::interpose
