#include "interpose/driver/driver.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "interpose/driver/loader.hpp"

namespace memlab::interpose {
namespace {

struct Substitution {
    void* real;
    void* wrapper;  // null: ambiguous, leave alone
    Api api;
};

// Twice the table: cuGetProcAddress may give an address that dlsym does not.
constexpr std::size_t max_substitutions = 2 * static_cast<std::size_t>(Api::count);

// Libraries that wrap the driver. What more there are is not called.
constexpr std::size_t max_wrappers = 8;

struct LoadedDriver {
    Driver functions;
    std::array<Substitution, max_substitutions> substitutions;
    std::size_t count = 0;
    int ambiguous = 0;
    std::array<const void*, max_wrappers> wrappers{};  // their objects; null behind the last
};

std::atomic<const LoadedDriver*> published{nullptr};

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

const HookEntry& entry_of(Api api) {
    return entries()[static_cast<std::size_t>(api) - 1];
}

void add_substitution(LoadedDriver& loaded, void* real, const HookEntry& entry) {
    for (std::size_t i = 0; i < loaded.count; ++i) {
        Substitution& known = loaded.substitutions[i];
        if (known.real != real) {
            continue;
        }
        if (known.wrapper != nullptr && entry_of(known.api).type != entry.type) {
            known.wrapper = nullptr;
            ++loaded.ambiguous;
        }
        return;
    }
    if (loaded.count < max_substitutions) {
        loaded.substitutions[loaded.count++] = {real, entry.wrapper, entry.api};
    }
}

// The first call of all may be made on a thread that a constructor waits for, under the loader's
// lock: then dlsym would wait for ever. It is asked only where another preloaded library answers
// it, or libcuda exports nothing itself.
class DriverLibrary {
  public:
    DriverLibrary() : symbols_(libcuda_symbols()) {
        if (symbols_.find("cuInit") == nullptr || dlsym_is_wrapped()) {
            handle_ = loaded_libcuda();
        }
    }
    bool found() const { return handle_ != nullptr || symbols_.find("cuInit") != nullptr; }
    void* find(const char* symbol) const {
        return handle_ != nullptr ? real_dlsym()(handle_, symbol) : symbols_.find(symbol);
    }

  private:
    profiler::ObjectSymbols symbols_;
    void* handle_ = nullptr;
};

// True when the function is another library's than libcuda, which is then known as a wrapper.
bool is_wrapper(LoadedDriver& loaded, const void* library, const void* function) {
    const void* const object = object_of(function);
    if (object == nullptr || object == library) {
        return false;
    }
    const auto place =
        std::find_if(loaded.wrappers.begin(), loaded.wrappers.end(),
                     [object](const void* known) { return known == nullptr || known == object; });
    if (place == loaded.wrappers.end()) {
        return false;
    }
    *place = object;
    return true;
}

// A program that is linked with libcuda calls what a global look-up finds first. Without us that is
// the wrapper behind us, where there is one.
template <class Function>
void call_wrapper(LoadedDriver& loaded, const void* library, bool linked, const char* name,
                  Function& function) {
    if (function == nullptr) {
        return;
    }
    if (linked) {
        void* const next = found_without_us(name);
        if (is_wrapper(loaded, library, next)) {
            function = reinterpret_cast<Function>(next);
            return;
        }
    }
    // Another preloaded library's dlsym may have given a wrapper of its own.
    is_wrapper(loaded, library, reinterpret_cast<void*>(function));
}

const LoadedDriver* load() {
    const DriverLibrary library;
    if (!library.found()) {
        return nullptr;
    }
    auto* loaded = new LoadedDriver;
#define MEMLAB_HOOK(symbol, base, version, per_thread) \
    loaded->functions.symbol = reinterpret_cast<decltype(&::symbol)>(library.find(#symbol));
#include "interpose/driver/hooked_functions.inc"
#undef MEMLAB_HOOK
#define MEMLAB_USE(symbol) \
    loaded->functions.symbol = reinterpret_cast<decltype(&::symbol)>(library.find(#symbol));
#include "interpose/driver/used_functions.inc"
#undef MEMLAB_USE

    for (std::size_t i = 0; i < entry_count; ++i) {
        const HookEntry& entry = entries()[i];
        if (void* real = library.find(entry.symbol)) {
            add_substitution(*loaded, real, entry);
        }
    }
    // The same functions as cuGetProcAddress hands them out. Measured to be the same addresses; a
    // driver where they are not is covered all the same.
    for (std::size_t i = 0; i < entry_count; ++i) {
        const HookEntry& entry = entries()[i];
        void* real = nullptr;
        CUresult result = CUDA_ERROR_NOT_FOUND;
        const cuuint64_t flags = entry.per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                                  : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
        if (loaded->functions.cuGetProcAddress_v2 != nullptr) {
            CUdriverProcAddressQueryResult status{};
            result = loaded->functions.cuGetProcAddress_v2(entry.base, &real, entry.version, flags,
                                                           &status);
        } else if (loaded->functions.cuGetProcAddress != nullptr) {
            result = loaded->functions.cuGetProcAddress(entry.base, &real, entry.version, flags);
        }
        if (result != CUDA_SUCCESS || real == nullptr) {
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
    const void* const object = object_of(library.find("cuInit"));
    const bool linked = driver_is_wrapped();
#define MEMLAB_HOOK(symbol, base, version, per_thread) \
    call_wrapper(*loaded, object, linked, #symbol, loaded->functions.symbol);
#include "interpose/driver/hooked_functions.inc"
#undef MEMLAB_HOOK
    std::sort(loaded->substitutions.begin(),
              loaded->substitutions.begin() + static_cast<std::ptrdiff_t>(loaded->count),
              [](const Substitution& a, const Substitution& b) { return a.real < b.real; });
    dlerror();  // the program asked for none of what was not found
    return loaded;
}

// Several threads may build it at once, each for itself, and the first to finish publishes: a lock
// here could deadlock with the loader's, which a thread inside dlopen holds.
const LoadedDriver* loaded_driver() {
    const LoadedDriver* current = published.load(std::memory_order_acquire);
    if (current != nullptr) {
        return current;
    }
    const LoadedDriver* mine = load();
    if (mine == nullptr) {
        return nullptr;
    }
    if (published.compare_exchange_strong(current, mine, std::memory_order_acq_rel)) {
        return mine;
    }
    delete mine;
    return current;
}

}  // namespace

const char* name_of(Api api) {
    return api == Api::none ? "" : entry_of(api).symbol;
}

[[gnu::hot]] const Driver* driver() {
    const LoadedDriver* loaded = loaded_driver();
    return loaded != nullptr ? &loaded->functions : nullptr;
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

bool stands_behind_us(const void* address) {
    const LoadedDriver* loaded = loaded_driver();
    if (loaded == nullptr || loaded->wrappers[0] == nullptr) {
        return false;
    }
    const void* const object = object_of(address);
    return object != nullptr && std::find(loaded->wrappers.begin(), loaded->wrappers.end(),
                                          object) != loaded->wrappers.end();
}

void keep_driver_loaded() {
    static std::atomic_flag kept = ATOMIC_FLAG_INIT;
    if (published.load(std::memory_order_acquire) == nullptr || kept.test_and_set()) {
        return;
    }
    if (loaded_libcuda() == nullptr) {
        dlerror();  // the program asked for nothing
    }
}

int ambiguous_addresses() {
    const LoadedDriver* loaded = published.load(std::memory_order_acquire);
    return loaded != nullptr ? loaded->ambiguous : 0;
}

// A free of nothing does nothing but tell the state of things.
[[gnu::hot]] CUresult broken_context() {
    if (!sticky_error_seen.load(std::memory_order_relaxed)) {
        return CUDA_SUCCESS;
    }
    const CUresult answer = call_real(&Driver::cuMemFree_v2, CUdeviceptr{0});
    return is_sticky(answer) || answer == CUDA_ERROR_CONTEXT_IS_DESTROYED ? answer : CUDA_SUCCESS;
}

}  // namespace memlab::interpose
