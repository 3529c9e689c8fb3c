// NCCL's calls for a communicator: behind each, and before a communicator ends, the ledger may ask
// NCCL what memory the communicator has (ledger/nccl_witness.hpp). The calls themselves are the
// program's, with its arguments and NCCL's answers.
//
// Programs that open NCCL get the hooks from dlsym, in place of libnccl's own functions.
// Programs and libraries that are linked with it bind memlab's exports, which look the real
// function up as the loader would have: what is globally visible first, then what the caller's own
// library sees, which may be an NCCL inside of it.
#include <array>
#include <atomic>
#include <cstddef>
#include <new>
#include <tuple>

#include "interpose/driver/hooked_names.hpp"
#include "interpose/driver/loader.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/hooks/other_library.hpp"

namespace mi = memlab::interpose;

namespace {

constinit mi::RealFunctions<mi::nccl_names> opened_nccl{};  ///< what dlsym found
constinit mi::RealFunctions<mi::nccl_names> linked_nccl{};  ///< what a global lookup finds

/// What the code of one library sees, which a global lookup does not. Never freed.
struct SeenBy {
    const void* library;
    void* function;
    SeenBy* next;
};
constinit std::array<std::atomic<SeenBy*>, mi::nccl_names.size()> seen_nccl{};

constexpr int nccl_internal_error = 3;

void* find_in_library_of(const void* caller, std::size_t name) {
    const auto* const library = static_cast<const link_map*>(mi::containing_object(caller));
    if (library == nullptr) {
        return nullptr;
    }
    for (SeenBy* each = seen_nccl[name].load(std::memory_order_acquire); each != nullptr;
         each = each->next) {
        if (each->library == library) {
            return each->function;
        }
    }
    const char* const symbol = mi::nccl_names[name].data();
    void* function = mi::definition_for(library, symbol);
    if (function == nullptr) {
        // A call at the end of a function has the return address of that function's caller, which
        // may know nothing of NCCL.
        function = mi::definition_for(mi::loaded_library_of(symbol), symbol);
    }
    const auto* const object = static_cast<const link_map*>(mi::containing_object(function));
    const mi::InsideMemlab inside;
    auto* const seen =
        object == nullptr ? nullptr : new (std::nothrow) SeenBy{library, function, nullptr};
    if (seen != nullptr) {
        mi::keep_loaded(*library);
        mi::keep_loaded(*object);
        seen->next = seen_nccl[name].load(std::memory_order_relaxed);
        while (
            !seen_nccl[name].compare_exchange_weak(seen->next, seen, std::memory_order_acq_rel)) {
        }
    }
    return function;
}

/// What code that is linked with NCCL would call without memlab. Null if there is none.
void* find_linked_nccl(std::size_t name, const void* caller) {
    if (void* const known = linked_nccl[name].load(std::memory_order_acquire)) {
        return known;
    }
    void* const found = mi::find_without_memlab(mi::nccl_names[name].data());
    if (found == nullptr) {
        return find_in_library_of(caller, name);
    }
    if (const auto* const object = static_cast<const link_map*>(mi::containing_object(found))) {
        mi::keep_loaded(*object);
        linked_nccl[name].store(found, std::memory_order_release);
    }
    return found;
}

/// The calling thread's open groups, and the communicators that were used in them. Beyond these
/// many they are asked behind their next use.
struct NcclGroup {
    unsigned depth = 0;
    unsigned count = 0;
    std::array<void*, 8> communicators{};
};
__attribute__((tls_model("initial-exec"))) constinit thread_local NcclGroup nccl_group{};

void tell_used(void* communicator, int result, const void* function) {
    mi::in_session(
        [&](mi::Session& session) {
            session.ledger().nccl().used(communicator, result, function);
            return true;
        },
        true);
}

void after_use(void* communicator, int result, const void* function) {
    if (nccl_group.depth == 0) {
        tell_used(communicator, result, function);
        return;
    }
    const auto end = nccl_group.communicators.begin() + nccl_group.count;
    if (std::find(nccl_group.communicators.begin(), end, communicator) == end &&
        nccl_group.count < nccl_group.communicators.size()) {
        nccl_group.communicators[nccl_group.count++] = communicator;
    }
}

void before_end(void* communicator, bool ask) {
    const auto end = nccl_group.communicators.begin() + nccl_group.count;
    const auto found = std::find(nccl_group.communicators.begin(), end, communicator);
    if (found != end) {
        *found = nullptr;
    }
    mi::in_session([&](mi::Session& session) {
        session.ledger().nccl().ends(communicator, ask && nccl_group.depth == 0);
        return true;
    });
}

void after_group_end(int result, const void* function) {
    if (nccl_group.depth == 0 || --nccl_group.depth != 0) {
        return;
    }
    for (unsigned i = 0; i < nccl_group.count; ++i) {
        if (nccl_group.communicators[i] != nullptr) {
            tell_used(nccl_group.communicators[i], result, function);
        }
    }
    nccl_group.count = 0;
}

struct NcclWork {
    template <class... Arguments>
    static void before(Arguments...) {}
    /// The communicator is the last argument but one.
    template <class... Arguments>
    static void after(int result, void* real, Arguments... arguments) {
        after_use(std::get<sizeof...(Arguments) - 2>(std::tuple(arguments...)), result, real);
    }
};
struct NcclGroupStart {
    static void before() {}
    static void after(int result, void* /*real*/) { nccl_group.depth += result == 0 ? 1 : 0; }
};
struct NcclGroupEnd {
    static void before() {}
    static void after(int result, void* real) { after_group_end(result, real); }
};
template <bool ask>
struct NcclEnd {
    static void before(void* communicator) { before_end(communicator, ask); }
    static void after(int /*result*/, void* /*real*/, void* /*communicator*/) {}
};

/// A function twice: as dlsym returns it, and as linked programs call it.
template <std::size_t name, class Around, class... Arguments>
struct NcclFunction {
    static int opened(Arguments... arguments) {
        return call(opened_nccl[name].load(std::memory_order_acquire), arguments...);
    }
    static int linked(Arguments... arguments) {
        return call(find_linked_nccl(name, __builtin_return_address(0)), arguments...);
    }
    static int call(void* real, Arguments... arguments) {
        Around::before(arguments...);
        const int result = real == nullptr
                               ? nccl_internal_error
                               : reinterpret_cast<int (*)(Arguments...)>(real)(arguments...);
        Around::after(result, real, arguments...);
        return result;
    }
};

template <std::size_t name>
struct NcclHook;

// Counts are size_t, types, operations, roots and peers enumerations or int, streams the last.
#define MEMLAB_NCCL_FUNCTIONS(hook)                                                               \
    hook(ncclAllReduce, NcclWork, const void*, void*, std::size_t, int, int, void*, void*)        \
        hook(ncclReduce, NcclWork, const void*, void*, std::size_t, int, int, int, void*, void*)  \
            hook(ncclBcast, NcclWork, void*, std::size_t, int, int, void*, void*) hook(           \
                ncclBroadcast, NcclWork, const void*, void*, std::size_t, int, int, void*, void*) \
                hook(ncclReduceScatter, NcclWork, const void*, void*, std::size_t, int, int,      \
                     void*, void*) hook(ncclAllGather, NcclWork, const void*, void*, std::size_t, \
                                        int, void*, void*)                                        \
                    hook(ncclSend, NcclWork, const void*, std::size_t, int, int, void*, void*)    \
                        hook(ncclRecv, NcclWork, void*, std::size_t, int, int, void*, void*)      \
                            hook(ncclGroupStart, NcclGroupStart) hook(ncclGroupEnd, NcclGroupEnd) \
                                hook(ncclCommFinalize, NcclEnd<true>, void*)                      \
                                    hook(ncclCommDestroy, NcclEnd<true>, void*)                   \
                                        hook(ncclCommAbort, NcclEnd<false>, void*)

#define MEMLAB_NCCL(symbol, ...)                              \
    template <>                                               \
    struct NcclHook<mi::position_in<mi::nccl_names>(#symbol)> \
        : NcclFunction<mi::position_in<mi::nccl_names>(#symbol), __VA_ARGS__> {};
MEMLAB_NCCL_FUNCTIONS(MEMLAB_NCCL)
#undef MEMLAB_NCCL

[[gnu::used]] void export_nccl_functions() {
#define MEMLAB_NCCL(symbol, ...) \
    MEMLAB_EXPORT_AS(symbol, (&NcclHook<mi::position_in<mi::nccl_names>(#symbol)>::linked));
    MEMLAB_NCCL_FUNCTIONS(MEMLAB_NCCL)
#undef MEMLAB_NCCL
}

}  // namespace

void* memlab::interpose::nccl_hook(const char* symbol, void* found) {
    return hook_opened<nccl_names, NcclHook>(opened_nccl, symbol, found, "libnccl.so");
}
