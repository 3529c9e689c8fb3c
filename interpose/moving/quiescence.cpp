#include "interpose/moving/quiescence.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/loaded_objects.hpp"
#include "interpose/driver/relaxed_capture.hpp"
#include "interpose/driver/work_clock.hpp"
#include "interpose/ledger/cgroup.hpp"
#include "interpose/moving/gate.hpp"
#include "interpose/options/small_file.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t first_pause_ns = 20'000;
constexpr std::uint64_t longest_pause_ns = 1'000'000;
constexpr std::size_t max_text_bytes = 4096;

/// Devices by which hardware reaches GPU memory on its own, and what to call them.
struct Door {
    std::string_view prefix;
    const char* what;
};
constexpr Door doors[] = {
    {"/dev/infiniband/uverbs", "RDMA"},
    {"/dev/gdrdrv", "GDRCopy"},
    {"/dev/nvidia-fs", "GPUDirect Storage"},
};

/// Libraries beside NCCL that use RDMA.
constexpr std::string_view rdma_users[] = {
    "libfabric.so", "libucp.so", "libuct.so", "libmooncake", "libtransfer_engine.so",
};

bool only_nccl_uses_rdma() {
    bool nccl = false;
    bool other = false;
    unsigned long long loads = 0;
    find_loaded_object(&loads, [&](const char* file) {
        const std::string_view name(file);
        nccl = nccl || name.starts_with("libnccl.so");
        other =
            other || std::any_of(std::begin(rdma_users), std::end(rdma_users),
                                 [name](std::string_view one) { return name.starts_with(one); });
        return other;
    });
    return nccl && !other;
}

/// What of these the process has open; null: nothing.
const char* open_door() {
    DIR* const folder = ::opendir("/proc/self/fd");
    if (folder == nullptr) {
        return nullptr;
    }
    const char* found = nullptr;
    while (const dirent* const entry = ::readdir(folder)) {
        std::array<char, 64> target{};
        const ssize_t length =
            ::readlinkat(::dirfd(folder), entry->d_name, target.data(), target.size());
        const std::string_view path(target.data(),
                                    static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
        for (const Door& door : doors) {
            if (path.starts_with(door.prefix) && (&door != &doors[0] || !only_nccl_uses_rdma())) {
                found = door.what;
            }
        }
    }
    ::closedir(folder);
    return found;
}

/// Whether NVSHMEM has made its heap, by its own word: it is loaded with every PyTorch.
bool nvshmem_is_used() {
    void* function = nullptr;
    find_loaded_symbols("libnvshmem_host.so", [&](const profiler::ObjectSymbols& in) {
        function = in.find("nvshmemx_init_status");
        return function != nullptr;
    });
    constexpr int is_initialized = 2;  // and what is above: with how many processes on a GPU
    return function != nullptr && reinterpret_cast<int (*)()>(function)() >= is_initialized;
}

bool behind_mps() {
    const char* const folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
    const std::string pipe =
        std::string(folder != nullptr ? folder : "/tmp/nvidia-mps") + "/control";
    return ::access(pipe.c_str(), F_OK) == 0;
}

std::optional<std::uint64_t> number_at(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    std::uint64_t number = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    return problem == std::errc() ? std::optional(number) : std::nullopt;
}

/// An event behind all work of a context.
class ContextEvent {
  public:
    ContextEvent() = default;
    ~ContextEvent() {
        if (event_ != nullptr) {
            call_real(&Driver::cuEventDestroy_v2, event_);
        }
    }
    ContextEvent(const ContextEvent&) = delete;
    ContextEvent& operator=(const ContextEvent&) = delete;

    CUresult record(CUcontext context) {
        const RelaxedCapture relaxed(true);
        const CUresult made =
            call_real(&Driver::cuEventCreate, &event_, unsigned{CU_EVENT_DISABLE_TIMING});
        if (made != CUDA_SUCCESS) {
            event_ = nullptr;
            return made;
        }
        return call_real(&Driver::cuCtxRecordEvent, context, event_);
    }
    CUresult query() const { return call_real(&Driver::cuEventQuery, event_); }

  private:
    CUevent event_ = nullptr;
};

std::string failed(CUresult error) {
    return "the driver refused with error " + std::to_string(error);
}

std::string drain_context(Memory& memory, Context& context, std::uint64_t deadline_ns) {
    const EndGate::Use use(context.end_gate(), EndGate::max_wait_ns, EndGate::Kind::lasting);
    if (!use.held()) {
        return "a context is being destroyed";
    }
    const CurrentContext current(context.handle());
    ContextEvent event;
    {
        const CaptureGate::Shared shared(memory.captures());
        if (shared.capturing()) {
            return "a stream is being captured";
        }
        if (const CUresult error = event.record(context.handle()); error != CUDA_SUCCESS) {
            return failed(error);
        }
    }
    for (std::uint64_t pause = first_pause_ns;; pause = std::min(2 * pause, longest_pause_ns)) {
        const CUresult state = event.query();
        if (state == CUDA_SUCCESS) {
            return {};
        }
        if (state != CUDA_ERROR_NOT_READY) {
            return failed(state);
        }
        if (gate.wanted_back()) {
            return "it was called back";
        }
        if (gate.phase() != Phase::draining || profiler::monotonic_ns() >= deadline_ns) {
            return "the GPU's work did not end in time: a kernel that never ends, or work that "
                   "waits for the host or another process";
        }
        profiler::sleep_ns(pause);
    }
}

}  // namespace

std::string why_not_to_move(Memory& memory) {
    if (driver() == nullptr || driver()->cuCtxRecordEvent == nullptr) {
        return "the driver is too old: events of a whole context came with CUDA 12.5";
    }
    if (!work_clock.trusted()) {
        return "the program calls the driver in ways that memlab does not follow, so it may submit "
               "work unseen";
    }
    if (profiler_attached.load(std::memory_order_relaxed)) {
        return "a profiler is attached, which may call the driver at any time";
    }
    if (const char* const why = gate.why_it_stays()) {
        return why;
    }
    if (memory.captures().capturing()) {
        return "a stream is being captured";
    }
    if (behind_mps()) {
        return "the GPU is shared by MPS";
    }
    if (nvshmem_is_used()) {
        return "NVSHMEM is in use, by which other processes reach its heap and wait for this one";
    }
    if (const char* const door = open_door()) {
        return std::string(door) + " is in use, which reaches GPU memory on its own";
    }
    return {};
}

std::string drain(Memory& memory, std::uint64_t deadline_ns) {
    for (Context* const context : memory.contexts().all()) {
        if (std::string problem = drain_context(memory, *context, deadline_ns); !problem.empty()) {
            return problem;
        }
    }
    return {};
}

std::uint64_t host_memory_available() {
    std::uint64_t available = std::numeric_limits<std::uint64_t>::max();
    constexpr std::string_view name = "MemAvailable:";
    const std::string machine = read_small_file("/proc/meminfo", max_text_bytes);
    if (const std::size_t found = machine.find(name); found != std::string::npos) {
        if (const auto kilobytes =
                number_at(std::string_view(machine).substr(found + name.size()))) {
            available = *kilobytes << 10;
        }
    }
    const CgroupPlace place = own_cgroup();
    return place.directory.empty() ? available : std::min(available, memory_room(place));
}

}  // namespace memlab::interpose
