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
#include <utility>

#include "interpose/driver/hooked_names.hpp"
#include "interpose/driver/loader.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/hooks/other_library.hpp"

namespace mi = memlab::interpose;

namespace {

using NcclFunctions = std::array<std::atomic<void*>, mi::nccl_names.size()>;

constinit NcclFunctions opened_nccl{};  ///< what dlsym found
constinit NcclFunctions linked_nccl{};  ///< what a global lookup finds

/// What the code of one library sees, which a global lookup does not. Never freed.
struct SeenBy {
    const void* library;
    void* function;
    SeenBy* next;
};
constinit std::array<std::atomic<SeenBy*>, mi::nccl_names.size()> seen_nccl{};

constexpr int nccl_internal_error = 3;

constexpr std::size_t nccl_position(std::string_view name) {
    return static_cast<std::size_t>(std::find(mi::nccl_names.begin(), mi::nccl_names.end(), name) -
                                    mi::nccl_names.begin());
}

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
    mi::in_session([&](mi::Session& session) {
        session.ledger().nccl().used(communicator, result, function);
        return true;
    });
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

void after_group_start(int result) {
    nccl_group.depth += result == 0 ? 1 : 0;
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

/// Calls the real function if there is one.
template <class... Arguments>
int call_nccl(void* real, Arguments... arguments) {
    return real == nullptr ? nccl_internal_error
                           : reinterpret_cast<int (*)(Arguments...)>(real)(arguments...);
}

template <std::size_t name>
struct OpenedNccl;

}  // namespace

// Each function twice: as dlsym returns it, and as linked programs call it. `before` and `after`
// are statements; they may use `result` and `real`.
#define MEMLAB_NCCL(symbol, parameters, before, after, ...)                                       \
    namespace {                                                                                   \
    template <>                                                                                   \
    struct OpenedNccl<nccl_position(#symbol)> {                                                   \
        static int call parameters {                                                              \
            void* const real =                                                                    \
                opened_nccl[nccl_position(#symbol)].load(std::memory_order_acquire);              \
            before;                                                                               \
            const int result = call_nccl(real __VA_OPT__(, ) __VA_ARGS__);                        \
            after;                                                                                \
            return result;                                                                        \
        }                                                                                         \
    };                                                                                            \
    }                                                                                             \
    MEMLAB_EXPORT int symbol parameters {                                                         \
        void* const real = find_linked_nccl(nccl_position(#symbol), __builtin_return_address(0)); \
        before;                                                                                   \
        const int result = call_nccl(real __VA_OPT__(, ) __VA_ARGS__);                            \
        after;                                                                                    \
        return result;                                                                            \
    }

#define MEMLAB_NCCL_WORK(symbol, parameters, ...) \
    MEMLAB_NCCL(symbol, parameters, , after_use(comm, result, real), __VA_ARGS__)

MEMLAB_NCCL_WORK(ncclAllReduce,
                 (const void* from, void* to, std::size_t count, int type, int operation,
                  void* comm, void* stream),
                 from, to, count, type, operation, comm, stream)
MEMLAB_NCCL_WORK(ncclReduce,
                 (const void* from, void* to, std::size_t count, int type, int operation, int root,
                  void* comm, void* stream),
                 from, to, count, type, operation, root, comm, stream)
MEMLAB_NCCL_WORK(ncclBcast,
                 (void* buffer, std::size_t count, int type, int root, void* comm, void* stream),
                 buffer, count, type, root, comm, stream)
MEMLAB_NCCL_WORK(ncclBroadcast,
                 (const void* from, void* to, std::size_t count, int type, int root, void* comm,
                  void* stream),
                 from, to, count, type, root, comm, stream)
MEMLAB_NCCL_WORK(ncclReduceScatter,
                 (const void* from, void* to, std::size_t count, int type, int operation,
                  void* comm, void* stream),
                 from, to, count, type, operation, comm, stream)
MEMLAB_NCCL_WORK(ncclAllGather,
                 (const void* from, void* to, std::size_t count, int type, void* comm,
                  void* stream),
                 from, to, count, type, comm, stream)
MEMLAB_NCCL_WORK(ncclSend,
                 (const void* from, std::size_t count, int type, int peer, void* comm,
                  void* stream),
                 from, count, type, peer, comm, stream)
MEMLAB_NCCL_WORK(ncclRecv,
                 (void* to, std::size_t count, int type, int peer, void* comm, void* stream), to,
                 count, type, peer, comm, stream)
MEMLAB_NCCL(ncclGroupStart, (), , after_group_start(result))
MEMLAB_NCCL(ncclGroupEnd, (), , after_group_end(result, real))
MEMLAB_NCCL(ncclCommFinalize, (void* comm), before_end(comm, true), , comm)
MEMLAB_NCCL(ncclCommDestroy, (void* comm), before_end(comm, true), , comm)
MEMLAB_NCCL(ncclCommAbort, (void* comm), before_end(comm, false), , comm)

// For lookups through dlsym (hooks/resolve.cpp): stores the real function and returns the hook.
void* memlab::interpose::nccl_hook(const char* symbol, void* found) {
    static constexpr auto hooks = []<std::size_t... names>(std::index_sequence<names...>) {
        return std::array{+[] { return reinterpret_cast<void*>(&OpenedNccl<names>::call); }...};
    }
    (std::make_index_sequence<nccl_names.size()>());
    const std::size_t name = nccl_position(symbol);
    const link_map* const object = object_named(found, "libnccl.so");
    if (object == nullptr) {
        return found;
    }
    void* known = nullptr;
    if (opened_nccl[name].compare_exchange_strong(known, found, std::memory_order_acq_rel)) {
        keep_loaded(*object);
    } else if (known != found) {
        return found;  // of a second copy of NCCL, whose communicators are others
    }
    return hooks[name]();
}
