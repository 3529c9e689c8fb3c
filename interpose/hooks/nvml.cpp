// NVML's answers in this process: what the pool holds unused counts as free, as in cuMemGetInfo.
// Plain CUDA's cudaFree has given memory back when it returns, and programs look by NVML at what is
// left. Other processes ask an NVML of their own, and see that memory as used until it goes back.
//
// The real function comes first, whatever its arguments; figures change only where it succeeds, for
// a GPU on which this process has pooled memory. Which one that is its UUID tells: instances of
// MIG, whose UUIDs are others in CUDA, are left alone.
//
// Programs that open NVML get the hooks from dlsym, in place of libnvidia-ml's own functions:
// another library's that have these names are left alone. Programs and libraries that are linked
// with it bind memlab's exports, which look the real function up at the first call.
#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <new>

#include "interpose/driver/hooked_names.hpp"
#include "interpose/driver/loader.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/hooks/other_library.hpp"
#include "interpose/ledger/nvml_abi.hpp"
#include "profiler/object_symbols.hpp"

namespace mi = memlab::interpose;
namespace nvml = memlab::interpose::nvml;

namespace {

constinit mi::RealFunctions<mi::nvml_names> opened_nvml{};  ///< what dlsym found
constinit mi::RealFunctions<mi::nvml_names> linked_nvml{};  ///< what a global lookup finds

constexpr std::string_view nvml_file = "libnvidia-ml.so";

const link_map* nvml_object_of(const void* function) {
    return mi::object_named(function, nvml_file);
}

/// What code that is linked with NVML would call without memlab. Null if there is none.
void* find_linked(std::size_t name) {
    void* const known = linked_nvml[name].load(std::memory_order_acquire);
    if (known != nullptr) {
        return known;
    }
    const char* const symbol = mi::nvml_names[name].data();
    void* found = mi::find_without_memlab(symbol);
    if (found == nullptr) {  // linked with a plugin, which was opened for its own use
        found = mi::definition_for(mi::loaded_library_of(symbol), symbol);
    }
    if (const link_map* const object = nvml_object_of(found)) {
        mi::keep_loaded(*object);
        linked_nvml[name].store(found, std::memory_order_release);
    }
    return found;
}

bool any_unused(mi::Session& session) {
    std::size_t index = 0;
    while (const mi::Context* const context = session.contexts().next(-1, &index)) {
        if (context->unused_bytes() != 0) {
            return true;
        }
    }
    return false;
}

/// What the pools of a device hold unused, in bytes. `real`: a function of the NVML that the device
/// is of. 0 inside memlab, whose own thread is told the real figures. May throw std::bad_alloc.
std::uint64_t unused_of(nvml::Device device, const void* real) {
    using GetUuid = int (*)(nvml::Device, char*, unsigned);
    constexpr std::size_t uuid_bytes = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE

    const mi::InsideMemlab inside;
    mi::Session* const session = inside.nested() ? nullptr : mi::Session::current();
    if (session == nullptr || nvml_object_of(real) == nullptr || !any_unused(*session)) {
        return 0;
    }
    const auto get_uuid = reinterpret_cast<GetUuid>(
        memlab::profiler::ObjectSymbols::at(reinterpret_cast<std::uintptr_t>(real))
            .find("nvmlDeviceGetUUID"));
    char uuid[uuid_bytes] = "";
    if (get_uuid == nullptr || get_uuid(device, uuid, uuid_bytes) != nvml::success) {
        return 0;
    }
    std::uint64_t bytes = 0;
    CUdevice asked = -1;
    bool same = false;
    std::size_t index = 0;
    while (mi::Context* const context = session->contexts().next(-1, &index)) {
        if (context->device() != asked) {
            asked = context->device();
            same = mi::device_uuid(asked) == uuid;
        }
        const mi::EndGate::Use use(context->end_gate());
        if (same && use.held()) {
            bytes += context->pool().reclaimable();
        }
    }
    return bytes;
}

std::uint64_t unused_or_none(nvml::Device device, const void* real) {
    try {
        return unused_of(device, real);
    } catch (const std::bad_alloc&) {
        return 0;
    }
}

template <class Figures>
void count_as_free(Figures& figures, std::uint64_t unused) {
    const auto moved = std::min<unsigned long long>(figures.used, unused);
    figures.free += moved;
    figures.used -= moved;
}

template <class Process>
void take_from_own(Process* list, unsigned count, bool compute, std::uint64_t unused) {
    // NVML's process ids are the host's. Where this one's is not known it is the only one that
    // computes.
    const std::uint32_t pid = mi::pid_of_the_host();
    for (unsigned i = 0; i < count; ++i) {
        const bool own = pid != 0 ? list[i].pid == pid : compute && count == 1;
        if (own && list[i].used_bytes != nvml::not_available) {
            list[i].used_bytes -= std::min<unsigned long long>(list[i].used_bytes, unused);
        }
    }
}

template <class Figures>
struct MemoryInfo {
    static int call(void* real, nvml::Device device, Figures* figures) {
        const int result = reinterpret_cast<int (*)(nvml::Device, Figures*)>(real)(device, figures);
        if (result == nvml::success && figures != nullptr) {
            if constexpr (requires { figures->version; }) {
                if (figures->version != nvml::memory_v2) {
                    return result;
                }
            }
            count_as_free(*figures, unused_or_none(device, real));
        }
        return result;
    }
};

template <class Process, bool compute>
struct RunningProcesses {
    static int call(void* real, nvml::Device device, unsigned* count, Process* list) {
        const unsigned room = count != nullptr ? *count : 0;
        const int result =
            reinterpret_cast<int (*)(nvml::Device, unsigned*, Process*)>(real)(device, count, list);
        if (result == nvml::success && count != nullptr && list != nullptr) {
            if (const std::uint64_t unused = unused_or_none(device, real)) {
                take_from_own(list, std::min(room, *count), compute, unused);
            }
        }
        return result;
    }
};

/// A function twice: as dlsym returns it, and as linked programs call it.
template <std::size_t name, auto call>
struct NvmlFunction;

template <std::size_t name, class... Arguments, int (*call)(void*, Arguments...)>
struct NvmlFunction<name, call> {
    static int opened(Arguments... arguments) {
        return if_found(opened_nvml[name].load(std::memory_order_acquire), arguments...);
    }
    static int linked(Arguments... arguments) { return if_found(find_linked(name), arguments...); }
    static int if_found(void* real, Arguments... arguments) {
        return real == nullptr ? nvml::function_not_found : call(real, arguments...);
    }
};

template <std::size_t name>
struct NvmlHook;

#define MEMLAB_NVML_FUNCTIONS(hook)                                                               \
    hook(nvmlDeviceGetMemoryInfo, MemoryInfo<nvml::Memory>) hook(nvmlDeviceGetMemoryInfo_v2,      \
                                                                 MemoryInfo<nvml::MemoryV2>)      \
        hook(nvmlDeviceGetComputeRunningProcesses, RunningProcesses<nvml::ProcessV1, true>) hook( \
            nvmlDeviceGetComputeRunningProcesses_v2, RunningProcesses<nvml::Process, true>)       \
            hook(nvmlDeviceGetComputeRunningProcesses_v3, RunningProcesses<nvml::Process, true>)  \
                hook(nvmlDeviceGetGraphicsRunningProcesses,                                       \
                     RunningProcesses<nvml::ProcessV1, false>)                                    \
                    hook(nvmlDeviceGetGraphicsRunningProcesses_v2,                                \
                         RunningProcesses<nvml::Process, false>)                                  \
                        hook(nvmlDeviceGetGraphicsRunningProcesses_v3,                            \
                             RunningProcesses<nvml::Process, false>)

#define MEMLAB_NVML(symbol, ...)                              \
    template <>                                               \
    struct NvmlHook<mi::position_in<mi::nvml_names>(#symbol)> \
        : NvmlFunction<mi::position_in<mi::nvml_names>(#symbol), &__VA_ARGS__::call> {};
MEMLAB_NVML_FUNCTIONS(MEMLAB_NVML)
#undef MEMLAB_NVML

[[gnu::used]] void export_nvml_functions() {
#define MEMLAB_NVML(symbol, ...) \
    MEMLAB_EXPORT_AS(symbol, (&NvmlHook<mi::position_in<mi::nvml_names>(#symbol)>::linked));
    MEMLAB_NVML_FUNCTIONS(MEMLAB_NVML)
#undef MEMLAB_NVML
}

}  // namespace

void* memlab::interpose::nvml_hook(const char* symbol, void* found) {
    return hook_opened<nvml_names, NvmlHook>(opened_nvml, symbol, found, nvml_file);
}
