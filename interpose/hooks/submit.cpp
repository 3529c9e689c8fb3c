// Hooks of all driver functions that submit work: check the stream (one_stream.hpp) and the memory
// that the call names, then make the real call as a submission of the work clock.
//
// A copy needs no peer access to reach memory of another context, or mapped memory of another
// device. So in processes with more than one context the call's device addresses are looked up
// first, and the fences of that memory then cover the context in which the call runs.
//
// The wrappers are instantiated from the types in <cuda.h>. Every launch of a kernel runs one,
// mostly after the program's own code has evicted it and what it reads: so its usual way is short
// and does not lead through other functions.
#include <algorithm>
#include <array>
#include <span>
#include <type_traits>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/driver/one_stream.hpp"
#include "interpose/driver/work_clock.hpp"
#include "interpose/hooks/measured_call.hpp"
#include "interpose/memory/bounds.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/memory/graph_memory.hpp"
#include "interpose/moving/gate.hpp"

namespace mi = memlab::interpose;
using memlab::trace::LedgerKind;
using mi::Api;
using mi::Driver;

namespace {

void find_stream(CUstream* stream, CUstream argument) {
    *stream = argument;
}
template <class Other>
void find_stream(CUstream* /*stream*/, const Other& /*other*/) {}

template <class... Arguments>
constexpr bool is_fill = ((std::is_same_v<Arguments, unsigned char> ||
                           std::is_same_v<Arguments, unsigned short> ||
                           std::is_same_v<Arguments, unsigned int>) ||
                          ...);

// Work takes memory as well: for code that is loaded at its first launch, for the local memory of a
// larger kernel. True when the pools gave some back, so that the call can be made once more.
bool memory_came_back() noexcept {
    mi::Session* session = mi::Session::current();
    const mi::InsideMemlab inside;
    return session != nullptr && !inside.nested() && mi::release_for_driver(*session);
}

// The error of plain CUDA for a copy or fill past the end of an allocation; CUDA_SUCCESS if it is
// in bounds. A capture accepts such a fill, but the graph cannot be instantiated.
template <bool per_thread, class... Arguments>
CUresult out_of_bounds_refusal(Arguments... arguments) noexcept {
    mi::Session* session = mi::Session::current();
    if (session == nullptr) {
        return CUDA_SUCCESS;
    }
    const mi::InsideMemlab inside;
    if (inside.nested() || !mi::any_out_of_bounds(*session, arguments...)) {
        return CUDA_SUCCESS;
    }
    CUstream stream = nullptr;
    (find_stream(&stream, arguments), ...);
    if (is_fill<Arguments...> && session->captures().capturing()) {
        if (mi::capturing_graph(*session, stream, per_thread) != nullptr) {
            mi::note_captured_overrun();
            return CUDA_SUCCESS;
        }
    }
    return mi::out_of_bounds_result(stream);
}

template <class... Arguments>
void track_memory_use(Arguments... arguments) noexcept {
    mi::Session* session = mi::Session::current();
    if (session == nullptr || !session->contexts().has_multiple()) {
        return;
    }
    const mi::InsideMemlab inside;
    if (inside.nested()) {
        return;
    }
    CUstream stream = nullptr;
    (find_stream(&stream, arguments), ...);
    const bool capturing = session->captures().capturing();
    CUcontext context = nullptr;  // looked up lazily: most calls name no memory
    CUdevice device = -1;
    const auto used = [&](CUdeviceptr address, std::size_t /*bytes*/) {
        if (context == nullptr) {
            context = mi::stream_context(stream);
            device = is_fill<Arguments...> ? -1 : mi::current_device();  // a fill needs peer access
        }
        session->contexts().used_by_copy(address, context, device);
        if (capturing) {  // the graph may be launched in any context
            session->contexts().used_by_graph(address, context);
        }
    };
    try {
        mi::ranges::for_each(used, arguments...);
    } catch (const std::bad_alloc&) {
        session->disable_pooling("the host is out of memory");
    }
}

constexpr unsigned max_attributes = 24;  // there are 17 kinds; copied to the program's stack

// Enforces stream order for a launch. Programmatic stream serialization permits a kernel to begin
// before its predecessor in the stream has ended. It could then write a reused block that the
// predecessor still uses; so while frees rely on the stream's order the permission is removed. The
// kernel's own wait for its predecessor then returns at once.
class OrderedLaunch {
  public:
    static bool is_needed(const CUlaunchConfig* config) {
        if (!mi::one_stream.tracking() || config == nullptr || config->attrs == nullptr ||
            config->numAttrs > max_attributes) {
            return false;
        }
        for (unsigned i = 0; i < config->numAttrs; ++i) {
            if (permits_overlap(config->attrs[i])) {
                return true;
            }
        }
        return false;
    }

    explicit OrderedLaunch(const CUlaunchConfig& config) : config_(config) {
        std::copy_n(config.attrs, config.numAttrs, attributes_.begin());
        for (CUlaunchAttribute& attribute : std::span(attributes_).first(config.numAttrs)) {
            if (permits_overlap(attribute)) {
                attribute.value.programmaticStreamSerializationAllowed = 0;
            }
        }
        config_.attrs = attributes_.data();
    }
    OrderedLaunch(const OrderedLaunch&) = delete;
    OrderedLaunch& operator=(const OrderedLaunch&) = delete;

    const CUlaunchConfig* config() const { return &config_; }

  private:
    static bool permits_overlap(const CUlaunchAttribute& attribute) {
        return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
               attribute.value.programmaticStreamSerializationAllowed != 0;
    }

    CUlaunchConfig config_;
    std::array<CUlaunchAttribute, max_attributes> attributes_;
};

template <class Function, class... Rest>
[[gnu::noinline]] CUresult launch_in_order(Function Driver::*function, const CUlaunchConfig& config,
                                           Rest... rest) {
    const OrderedLaunch launch(config);
    return mi::call_real(function, launch.config(), rest...);
}

template <class Function, class... Rest>
[[gnu::always_inline]] inline CUresult call_in_order(Function Driver::*function,
                                                     const CUlaunchConfig* config, Rest... rest) {
    if (OrderedLaunch::is_needed(config)) [[unlikely]] {
        return launch_in_order(function, *config, rest...);
    }
    return mi::call_real_inlined(function, config, rest...);
}
template <class Function, class... Arguments>
[[gnu::always_inline]] inline CUresult call_in_order(Function Driver::*function,
                                                     Arguments... arguments) {
    return mi::call_real_inlined(function, arguments...);
}

// The stream of a call's work, derived from the types of its arguments. A call without a stream is
// a synchronous copy or fill, or a launch of the oldest kind: they use the default stream.
class WorkStream {
  public:
    explicit WorkStream(bool per_thread) : per_thread_(per_thread) {}

    void visit(CUstream stream) { stream_ = stream; }
    void visit(const CUlaunchConfig* config) {
        if (config == nullptr) {
            return;
        }
        stream_ = config->hStream;
        single_ = single_ && config->numAttrs <= max_attributes;
        for (unsigned i = 0; config->attrs != nullptr && i < config->numAttrs; ++i) {
            // The end of such a kernel is known to its dependents only; attributes of later CUDA
            // versions may allow anything.
            const CUlaunchAttributeID id = config->attrs[i].id;
            single_ = single_ && id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT &&
                      id <= mi::newer_cuda::last_launch_attribute;
        }
    }
    // Several devices, several contexts.
    void visit(CUDA_LAUNCH_PARAMS*) { single_ = false; }
    void visit(const CUDA_MEMCPY3D_PEER*) { single_ = false; }
    void visit(CUcontext) { single_ = false; }
    template <class Other>
    void visit(const Other&) {}

    mi::StreamKey key() const {
        return single_ ? mi::stream_key(stream_, per_thread_) : mi::no_stream;
    }

  private:
    const bool per_thread_;
    bool single_ = true;
    CUstream stream_ = nullptr;
};

template <bool per_thread, class... Arguments>
mi::StreamKey work_stream(Arguments... arguments) {
    WorkStream stream(per_thread);
    (stream.visit(arguments), ...);
    return stream.key();
}

void find_function(const void** function, CUfunction argument) {
    *function = argument;
}
template <class Other>
void find_function(const void** /*function*/, const Other& /*other*/) {}

template <auto Function, Api api, bool per_thread>
struct Submit;

template <class... Arguments, CUresult (CUDAAPI* Driver::*Function)(Arguments...), Api api,
          bool per_thread>
struct Submit<Function, api, per_thread> {
    static constexpr bool may_name_memory = mi::ranges::may_name_memory<Arguments...>;
    static constexpr bool launches = (std::is_same_v<Arguments, CUfunction> || ...);

    [[gnu::always_inline]] static const void* function_of(Arguments... arguments) {
        const void* function = nullptr;
        (find_function(&function, arguments), ...);
        return function;
    }
    [[gnu::noinline, gnu::cold]] static CUresult submit_first(Arguments... arguments) {
        mi::FirstLaunch first(LedgerKind::launch, function_of(arguments...));
        const CUresult result = submit(arguments...);
        first.done(api, result);
        return result;
    }
    [[gnu::always_inline]] static CUresult submit(Arguments... arguments) {
        if (mi::one_stream.tracking()) {
            mi::one_stream.before_submit(work_stream<per_thread>(arguments...));
        }
        if constexpr (may_name_memory) {
            if (const CUresult refused = out_of_bounds_refusal<per_thread>(arguments...);
                refused != CUDA_SUCCESS) {
                return refused;
            }
            track_memory_use(arguments...);
        }
        const mi::WorkClock::Submission submission(mi::work_clock);
        const CUresult result = call_in_order(Function, arguments...);
        return result == CUDA_ERROR_OUT_OF_MEMORY ? submit_again(arguments...) : result;
    }
    [[gnu::noinline, gnu::cold]] static CUresult submit_again(Arguments... arguments) {
        return memory_came_back() ? call_in_order(Function, arguments...)
                                  : CUDA_ERROR_OUT_OF_MEMORY;
    }
    static CUresult CUDAAPI with_memory(Arguments... arguments) {
        const mi::Passage passage;
        return passage.refused() ? CUDA_ERROR_DEINITIALIZED : submit(arguments...);
    }
    [[gnu::hot]] static CUresult CUDAAPI without_memory(Arguments... arguments) {
        const mi::Passage passage;
        if (passage.refused()) [[unlikely]] {
            return CUDA_ERROR_DEINITIALIZED;
        }
        if constexpr (launches) {
            if (!mi::launched.knows_at_once(function_of(arguments...))) [[unlikely]] {
                return submit_first(arguments...);
            }
        }
        return submit(arguments...);
    }
    static constexpr auto* call = may_name_memory ? &with_memory : &without_memory;
};

[[gnu::used]] void export_submitting_functions() {
#define MEMLAB_HOOK(symbol, base, version, per_thread) \
    MEMLAB_EXPORT_AS(symbol, (Submit<&Driver::symbol, Api::symbol, per_thread != 0>::call));
#include "interpose/driver/submitting_functions.inc"
#undef MEMLAB_HOOK
}

}  // namespace
