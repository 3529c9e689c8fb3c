// Hooks of the driver functions that take device memory implicitly (implicit_functions.inc): the
// call, and once more after the pools have released what they do not use, measured for the ledger.
//
// The wrappers are instantiated from the types in <cuda.h>.
#include <string_view>

#include "interpose/driver/current_context.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/hooks/measured_call.hpp"
#include "interpose/moving/program_handles.hpp"

namespace mi = memlab::interpose;
using memlab::trace::LedgerKind;
using mi::Api;
using mi::Driver;

namespace {

constexpr LedgerKind kind_of(std::string_view symbol) {
    const auto begins = [symbol](std::string_view with) { return symbol.starts_with(with); };
    if (begins("cuModuleLoad") || begins("cuModuleUnload") || begins("cuLibraryLoad") ||
        begins("cuLibraryUnload")) {
        return LedgerKind::module;
    }
    if (begins("cuModule") || begins("cuLibrary") || begins("cuKernel") || begins("cuFunc")) {
        return LedgerKind::kernel;
    }
    if (begins("cuCtxSetLimit")) {
        return LedgerKind::limit;
    }
    if (begins("cuStream") || begins("cuGreenCtxStream")) {
        return LedgerKind::stream;
    }
    return begins("cuEvent") ? LedgerKind::event : LedgerKind::other;
}

// The file of the code that a call is about, from the types of its arguments.
class Code {
  public:
    void visit(CUmodule* made) { made_ = reinterpret_cast<void* const*>(made); }
    void visit(CUlibrary* made) { made_ = reinterpret_cast<void* const*>(made); }
    void visit(CUfunction* made) { made_function_ = made; }
    void visit(CUmodule of) { of_ = of; }
    void visit(CUlibrary of) { of_ = of; }
    void visit(CUkernel kernel) { kernel_ = kernel; }
    void visit(CUfunction function) { function_ = function; }
    void visit(const void* image) { image_ = image; }
    void visit(const char* name) { name_ = name; }
    template <class Other>
    void visit(const Other&) {}

    /// After the call; before it for one that unloads.
    std::uint32_t find(mi::CodeFiles& files) const {
        if (made_ != nullptr) {
            return of_ != nullptr      ? files.derived(*made_, of_)
                   : image_ != nullptr ? files.loaded_image(*made_, image_)
                                       : files.loaded(*made_, name_);
        }
        if (of_ != nullptr) {
            return made_function_ != nullptr
                       ? files.found_function(*made_function_,
                                              static_cast<CUmodule>(const_cast<void*>(of_)))
                       : files.find(of_);
        }
        if (kernel_ != nullptr) {
            return made_function_ != nullptr ? files.derived_function(*made_function_, kernel_)
                                             : files.find_kernel(kernel_);
        }
        return function_ != nullptr ? files.find_function(function_) : 0;
    }
    const void* unloaded() const { return of_; }

    /// The kernel or function that the call is about, and nothing else; null: other calls.
    const void* asked_for() const {
        return kernel_ != nullptr ? static_cast<const void*>(kernel_) : function_;
    }

  private:
    void* const* made_ = nullptr;
    const CUfunction* made_function_ = nullptr;
    const void* of_ = nullptr;
    CUkernel kernel_ = nullptr;
    CUfunction function_ = nullptr;
    const void* image_ = nullptr;
    const char* name_ = nullptr;
};

// A call that succeeded stays successful, whatever becomes of the file's name.
std::uint32_t find_file(mi::Session& session, const Code& code) noexcept {
    try {
        return session.ledger().enabled() ? code.find(session.ledger().code()) : 0;
    } catch (const std::bad_alloc&) {
        return 0;
    }
}

// Measures the call unless it was made before: runtimes ask for a kernel at each launch.
template <class Real, class Measure>
CUresult measure_first(mi::Session& session, const void* code, const Real& real,
                       const Measure& measure) {
    mi::LoadedCode& loaded = session.ledger().loaded_code();
    const std::uint64_t tag = loaded.tag(code, mi::current_context());
    if (loaded.contains(tag)) {
        return mi::retry_after_release(session, real);
    }
    const CUresult result = measure();
    if (result == CUDA_SUCCESS) {
        loaded.insert(tag);
    }
    return result;
}

// What the driver's checkpoint cannot take along; null: it can.
constexpr const char* not_checkpointed(std::string_view symbol) {
    return symbol == "cuLibraryGetManaged"
               ? "it has managed memory, which the driver does not checkpoint"
           : symbol == "cuImportExternalMemory" ? mi::shared_with_processes
           : symbol.starts_with("cuMulticast")
               ? "it has a multicast object, which the driver does not checkpoint"
               : nullptr;
}

template <auto Function, Api api, LedgerKind kind, bool unloads, bool waits, bool binds,
          bool is_checkpointed>
struct Implicit;

template <class... Arguments, CUresult (CUDAAPI* Driver::*Function)(Arguments...), Api api,
          LedgerKind kind, bool unloads, bool waits, bool binds, bool is_checkpointed>
struct Implicit<Function, api, kind, unloads, waits, binds, is_checkpointed> {
    static CUresult CUDAAPI call(Arguments... arguments) {
        if constexpr (waits) {
            const mi::Passage passage;
            return passage.refused() ? CUDA_ERROR_DEINITIALIZED : go_on(arguments...);
        } else {
            return go_on(arguments...);
        }
    }
    [[gnu::always_inline]] static CUresult go_on(Arguments... arguments) {
        if constexpr (binds) {
            mi::gate.stay_from_now_on("memory is bound to a multicast object");
        }
        if constexpr (!is_checkpointed) {
            mi::gate.no_checkpoint_from_now_on(not_checkpointed(mi::function_name(api)));
        }
        const auto real = mi::real_call(Function, mi::with_drivers_handle(arguments)...);
        return mi::hook(
            [&](mi::Session& session) {
                Code code;
                (code.visit(arguments), ...);
                std::uint32_t file = 0;
                if constexpr (unloads) {
                    file = find_file(session, code);
                    session.ledger().unloads(code.unloaded());
                }
                const auto measure = [&] {
                    return mi::measured(session, {.kind = kind, .returns = unloads}, api, real,
                                        [&] { return unloads ? file : find_file(session, code); });
                };
                return code.asked_for() == nullptr || !session.ledger().enabled()
                           ? measure()
                           : measure_first(session, code.asked_for(), real, measure);
            },
            real);
    }
};

[[gnu::used]] void export_implicit_functions() {
#define MEMLAB_HOOK(symbol, base, version, per_thread)                                         \
    MEMLAB_EXPORT_AS(                                                                          \
        symbol, (&Implicit<&Driver::symbol, Api::symbol, kind_of(#symbol),                     \
                           std::string_view(#symbol).find("Unload") != std::string_view::npos, \
                           mi::waits_at_gate(#symbol),                                         \
                           std::string_view(#symbol).starts_with("cuMulticastBind"),           \
                           not_checkpointed(#symbol) == nullptr>::call));
#include "interpose/driver/implicit_functions.inc"
#undef MEMLAB_HOOK
}

}  // namespace
