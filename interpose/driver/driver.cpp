#include "interpose/driver/driver.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#include "interpose/driver/loader.hpp"
#include "interpose/driver/reentrancy.hpp"

namespace memlab::interpose {
namespace {

struct Substitution {
    void* real;
    void* wrapper;  // null: two hooks of different types share `real`, which is left alone
    Api api;
};

// Twice the table: cuGetProcAddress may return addresses that dlsym does not.
constexpr std::size_t max_substitutions = 2 * static_cast<std::size_t>(Api::count);

// Limit for libraries that wrap the driver; further ones are bypassed.
constexpr std::size_t max_wrappers = 8;

struct LoadedDriver : Driver {
    std::array<Substitution, max_substitutions> substitutions;
    std::size_t count = 0;
    std::array<const void*, max_wrappers> wrappers{};  // their link maps, then nulls
};

struct HookEntry {
    const char* symbol;
    const char* base;
    int version;
    bool per_thread;
    Api api;
    void* wrapper;
    // Two hooks of one type may share an address: either wrapper serves both.
    const void* type;
};

template <class T>
constexpr char type_tag = 0;

#define MEMLAB_HOOK(symbol, base, version, per_thread) \
    HookEntry{#symbol,                                 \
              #base,                                   \
              version,                                 \
              per_thread != 0,                         \
              Api::symbol,                             \
              reinterpret_cast<void*>(&::symbol),      \
              &type_tag<decltype(&::symbol)>},
const HookEntry* entries() {
    static const HookEntry table[] = {
#include "interpose/driver/hooked_functions.inc"
    };
    return table;
}
#undef MEMLAB_HOOK

constexpr std::size_t entry_count = static_cast<std::size_t>(Api::count) - 1;

const HookEntry& hook_entry(Api api) {
    return entries()[static_cast<std::size_t>(api) - 1];
}

void add_substitution(LoadedDriver& loaded, void* real, const HookEntry& entry) {
    for (std::size_t i = 0; i < loaded.count; ++i) {
        Substitution& known = loaded.substitutions[i];
        if (known.real != real) {
            continue;
        }
        if (known.wrapper != nullptr && hook_entry(known.api).type != entry.type) {
            known.wrapper = nullptr;
        }
        return;
    }
    if (loaded.count < max_substitutions) {
        loaded.substitutions[loaded.count++] = {real, entry.wrapper, entry.api};
    }
}

bool stands_before_wrappers(const void* function) {
    return function != nullptr && (is_own_export(function) || stands_before_memlab(function));
}

// Finds the driver's symbols. The first call may come from a thread that a constructor waits for
// while the loader's lock is held, where dlsym would deadlock. So dlsym is used only if another
// preloaded library wraps it, or if libcuda itself exports nothing.
class DriverLibrary {
  public:
    DriverLibrary() : symbols_(libcuda_symbols()) {
        if (symbols_.find("cuInit") == nullptr || dlsym_is_wrapped()) {
            handle_ = loaded_libcuda();
        }
    }
    bool found() const { return handle_ != nullptr || symbols_.find("cuInit") != nullptr; }
    void* find(const char* symbol) const {
        if (handle_ == nullptr) {
            return symbols_.find(symbol);
        }
        void* const found = next_dlsym()(handle_, symbol);
        if (!stands_before_wrappers(found)) {
            return found;
        }
        // A library's references to its own functions, which its dlsym returns, are bound to those
        // of the same name that come first.
        void* const meant = find_without_memlab(symbol);
        return meant != nullptr ? meant : symbols_.find(symbol);
    }
    /// libcuda's link map: another library's dlsym may have returned its own functions.
    const void* object() const {
        void* const own = symbols_.find("cuInit");
        return containing_object(own != nullptr ? own : find("cuInit"));
    }

  private:
    profiler::ObjectSymbols symbols_;
    void* handle_ = nullptr;
};

// True when `function` belongs to another library than libcuda; registers that library as a
// wrapper.
bool is_wrapper(LoadedDriver& loaded, const void* library, const void* function) {
    const void* const object = containing_object(function);
    if (object == nullptr || object == library) {
        return false;
    }
    const auto slot =
        std::find_if(loaded.wrappers.begin(), loaded.wrappers.end(),
                     [object](const void* known) { return known == nullptr || known == object; });
    if (slot == loaded.wrappers.end()) {
        return false;
    }
    *slot = object;
    return true;
}

// A program linked with libcuda calls what a global lookup finds first. Without memlab that is the
// next wrapper, if there is one.
template <class Function>
void route_to_wrapper(LoadedDriver& loaded, const void* library, bool linked, const char* name,
                      Function& function) {
    if (function == nullptr) {
        return;
    }
    if (linked) {
        void* const next = find_without_memlab(name);
        if (is_wrapper(loaded, library, next)) {
            function = reinterpret_cast<Function>(next);
            return;
        }
    }
    // Another preloaded library's dlsym may have returned its own wrapper.
    is_wrapper(loaded, library, reinterpret_cast<void*>(function));
}

const LoadedDriver* load() {
    const DriverLibrary library;
    if (!library.found()) {
        return nullptr;
    }
    auto* loaded = new LoadedDriver;
#define MEMLAB_HOOK(symbol, base, version, per_thread) \
    loaded->symbol = reinterpret_cast<decltype(&::symbol)>(library.find(#symbol));
#include "interpose/driver/hooked_functions.inc"
#undef MEMLAB_HOOK
#define MEMLAB_USE(symbol) \
    loaded->symbol = reinterpret_cast<decltype(&::symbol)>(library.find(#symbol));
#include "interpose/driver/used_functions.inc"
#undef MEMLAB_USE

    for (std::size_t i = 0; i < entry_count; ++i) {
        const HookEntry& entry = entries()[i];
        if (void* real = library.find(entry.symbol)) {
            add_substitution(*loaded, real, entry);
        }
    }
    // The same functions through cuGetProcAddress. Current drivers return the same addresses
    // (measured); others are covered too.
    for (std::size_t i = 0; i < entry_count; ++i) {
        const HookEntry& entry = entries()[i];
        void* real = nullptr;
        CUresult result = CUDA_ERROR_NOT_FOUND;
        const cuuint64_t flags = entry.per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                                  : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
        if (loaded->cuGetProcAddress_v2 != nullptr) {
            CUdriverProcAddressQueryResult status{};
            result = loaded->cuGetProcAddress_v2(entry.base, &real, entry.version, flags, &status);
        } else if (loaded->cuGetProcAddress != nullptr) {
            result = loaded->cuGetProcAddress(entry.base, &real, entry.version, flags);
        }
        if (result != CUDA_SUCCESS || real == nullptr || stands_before_wrappers(real)) {
            continue;
        }
        const bool known =
            std::any_of(loaded->substitutions.begin(),
                        loaded->substitutions.begin() + static_cast<std::ptrdiff_t>(loaded->count),
                        [real](const Substitution& s) { return s.real == real; });
        if (!known) {
            add_substitution(*loaded, real, entry);
        }
    }
    const void* const object = library.object();
    const bool linked = driver_is_wrapped();
#define MEMLAB_HOOK(symbol, base, version, per_thread) \
    route_to_wrapper(*loaded, object, linked, #symbol, loaded->symbol);
#include "interpose/driver/hooked_functions.inc"
#undef MEMLAB_HOOK
    std::sort(loaded->substitutions.begin(),
              loaded->substitutions.begin() + static_cast<std::ptrdiff_t>(loaded->count),
              [](const Substitution& a, const Substitution& b) { return a.real < b.real; });
    dlerror();  // discard errors of failed lookups
    return loaded;
}

constinit std::atomic<const Driver*> real_driver{nullptr};  // while calls are kept from it
__attribute__((tls_model("initial-exec"))) constinit thread_local bool kept_from_driver = false;

/// In place of each of the driver's functions: on x86-64 the caller removes its arguments.
CUresult CUDAAPI keep_from_driver() {
    kept_from_driver = true;
    return CUDA_ERROR_NOT_PERMITTED;
}

const LoadedDriver* loaded_driver() {
    return static_cast<const LoadedDriver*>(driver());
}

}  // namespace

const char* function_name(Api api) {
    return api == Api::none ? "" : hook_entry(api).symbol;
}

constinit std::atomic<const Driver*> found_driver{nullptr};

// Several threads may build the table concurrently; the first to finish publishes it. A lock here
// could deadlock with the loader's, which a thread inside dlopen holds. What another library's
// dlsym looks up meanwhile is not memlab's to replace.
const Driver* find_driver() {
    __attribute__((tls_model("initial-exec"))) static thread_local bool loading = false;
    if (loading) {
        return nullptr;
    }
    loading = true;
    const LoadedDriver* const mine = load();
    loading = false;
    if (mine == nullptr) {
        return nullptr;
    }
    const Driver* first = nullptr;
    if (found_driver.compare_exchange_strong(first, mine, std::memory_order_acq_rel)) {
        return mine;
    }
    delete mine;
    return first;
}

bool keep_calls_from_driver() noexcept {
    static const LoadedDriver* kept = nullptr;
    const Driver* const real = found_driver.load(std::memory_order_acquire);
    if (real == nullptr) {
        return false;
    }
    if (kept == nullptr) {
        auto* const copy = new (std::nothrow) LoadedDriver(*static_cast<const LoadedDriver*>(real));
        if (copy == nullptr) {
            return false;
        }
        // A Driver is nothing but pointers to functions.
        auto* const table = reinterpret_cast<std::byte*>(static_cast<Driver*>(copy));
        for (std::size_t at = 0; at < sizeof(Driver); at += sizeof(void*)) {
            decltype(&keep_from_driver) function = nullptr;
            std::memcpy(&function, table + at, sizeof function);
            function = function != nullptr ? &keep_from_driver : nullptr;
            std::memcpy(table + at, &function, sizeof function);
        }
        kept = copy;
    }
    real_driver.store(real);
    found_driver.store(kept, std::memory_order_seq_cst);
    return true;
}

bool was_kept_from_driver() noexcept {
    return std::exchange(kept_from_driver, false);
}

void let_calls_through() noexcept {
    if (const Driver* const real = real_driver.exchange(nullptr)) {
        found_driver.store(real, std::memory_order_seq_cst);
    }
}

void* substitute(void* address) {
    const LoadedDriver* loaded = loaded_driver();
    if (loaded == nullptr || address == nullptr) {
        return address;
    }
    const auto* begin = loaded->substitutions.data();
    const auto* end = begin + loaded->count;
    const auto* found = std::lower_bound(
        begin, end, address, [](const Substitution& s, const void* a) { return s.real < a; });
    return found != end && found->real == address && found->wrapper != nullptr ? found->wrapper
                                                                               : address;
}

bool is_downstream_wrapper(const void* address) {
    const LoadedDriver* loaded = loaded_driver();
    if (loaded == nullptr || loaded->wrappers[0] == nullptr) {
        return false;
    }
    const void* const object = containing_object(address);
    return object != nullptr && std::find(loaded->wrappers.begin(), loaded->wrappers.end(),
                                          object) != loaded->wrappers.end();
}

bool mapped_memory_passes_wrapper_by() {
    const Driver* const real = driver();
    if (real == nullptr) {
        return false;
    }
    const void* const allocates = reinterpret_cast<const void*>(real->cuMemAlloc_v2);
    const void* const maps = reinterpret_cast<const void*>(real->cuMemCreate);
    return is_downstream_wrapper(allocates) && !is_downstream_wrapper(maps);
}

void keep_driver_loaded() {
    static std::atomic_flag kept = ATOMIC_FLAG_INIT;
    if (found_driver.load(std::memory_order_acquire) == nullptr || kept.test_and_set()) {
        return;
    }
    if (loaded_libcuda() == nullptr) {
        dlerror();  // not an error of the program's
    }
}

bool device_has(CUdevice device, CUdevice_attribute attribute) {
    int value = 0;
    return call_real(&Driver::cuDeviceGetAttribute, &value, attribute, device) == CUDA_SUCCESS &&
           value != 0;
}

std::string uuid_text(const CUuuid& uuid) {
    std::string text = "GPU-";
    for (int i = 0; i < 16; ++i) {
        constexpr char digits[] = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            text += '-';
        }
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

std::string device_uuid(CUdevice device) {
    CUuuid uuid{};
    return call_real(&Driver::cuDeviceGetUuid_v2, &uuid, device) == CUDA_SUCCESS ? uuid_text(uuid)
                                                                                 : std::string();
}

std::string device_pci_address(CUdevice device) {
    char address[32] = "";
    return call_real(&Driver::cuDeviceGetPCIBusId, address, static_cast<int>(sizeof address),
                     device) == CUDA_SUCCESS
               ? std::string(address)
               : std::string();
}

void note_error(CUresult error) {
    if (is_sticky(error)) {
        broken_context_possible.store(true, std::memory_order_relaxed);
    }
}

// Freeing address 0 has no effect and returns the context's state.
[[gnu::hot]] CUresult broken_context() {
    if (!broken_context_possible.load(std::memory_order_relaxed)) {
        return CUDA_SUCCESS;
    }
    const CUresult answer = call_real(&Driver::cuMemFree_v2, CUdeviceptr{0});
    return is_sticky(answer) || answer == CUDA_ERROR_CONTEXT_IS_DESTROYED ? answer : CUDA_SUCCESS;
}

}  // namespace memlab::interpose
