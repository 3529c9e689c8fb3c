// Every driver function that only has to be counted: a look at its stream (one_stream.hpp) and at
// the memory that it names, then the real call as a submission of the work clock.
//
// A copy needs no peer access to reach memory of another context. In processes with more than one,
// the device addresses of a call are looked at first, so that the fences of that memory cover the
// context in which the call runs.
//
// The wrappers are made from the types in <cuda.h>. A template has no exported name, so the
// exported symbols are jumps (submit_stubs.S) through the table below.
#include <algorithm>
#include <array>
#include <type_traits>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/driver/one_stream.hpp"
#include "interpose/driver/work_clock.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/memory/bounds.hpp"
#include "interpose/memory/graph_memory.hpp"

namespace mi = memlab::interpose;
using mi::Driver;

namespace {

void see_stream(CUstream* stream, CUstream argument) {
    *stream = argument;
}
template <class Other>
void see_stream(CUstream* /*stream*/, const Other& /*other*/) {}

template <class... Arguments>
constexpr bool is_fill = ((std::is_same_v<Arguments, unsigned char> ||
                           std::is_same_v<Arguments, unsigned short> ||
                           std::is_same_v<Arguments, unsigned int>) ||
                          ...);

// What plain CUDA answers to a copy or fill that leaves an allocation; CUDA_SUCCESS: it does not. A
// capture takes such a fill and does not become a graph that can be run.
template <bool per_thread, class... Arguments>
CUresult refusal(Arguments... arguments) noexcept {
    mi::Session* session = mi::Session::current();
    if (session == nullptr) {
        return CUDA_SUCCESS;
    }
    const mi::InsideMemlab inside;
    if (inside.nested() || !mi::names_outside(*session, arguments...)) {
        return CUDA_SUCCESS;
    }
    CUstream stream = nullptr;
    (see_stream(&stream, arguments), ...);
    if (is_fill<Arguments...> && session->captures().capturing()) {
        if (mi::capturing_graph(*session, stream, per_thread) != nullptr) {
            mi::captured_outside();
            return CUDA_SUCCESS;
        }
    }
    return mi::answer_to_outside(stream);
}

template <class... Arguments>
void note_uses(Arguments... arguments) noexcept {
    mi::Session* session = mi::Session::current();
    if (session == nullptr || !session->contexts().several()) {
        return;
    }
    const mi::InsideMemlab inside;
    if (inside.nested()) {
        return;
    }
    CUstream stream = nullptr;
    (see_stream(&stream, arguments), ...);
    const bool capturing = session->captures().capturing();
    CUcontext context = nullptr;  // most calls name no memory
    const auto used = [&](CUdeviceptr address, std::size_t /*bytes*/) {
        if (context == nullptr) {
            context = mi::context_of(stream);
        }
        session->contexts().used_by_copy(address, context);
        if (capturing) {  // the graph may be launched in any context
            session->contexts().used_by_graph(address, context);
        }
    };
    try {
        mi::ranges::of_call(used, arguments...);
    } catch (const std::bad_alloc&) {
        session->disable_pooling("the host is out of memory");
    }
}

constexpr unsigned max_attributes = 24;  // there are 17 kinds; they lie on the program's stack

// A launch in the order of its stream. The driver may be allowed to begin a kernel before the one
// before it has ended (programmatic stream serialization). The kernel could then write memory that
// is new to it while that one still uses what was there before; so while the stream's order is
// counted on, the permission is not passed on. The kernel's own wait for the one before it then
// finds it over.
class LaunchInOrder {
  public:
    explicit LaunchInOrder(const CUlaunchConfig* config) : config_(config) {
        if (config == nullptr || config->attrs == nullptr || config->numAttrs > max_attributes ||
            !mi::one_stream.notices()) {
            return;
        }
        const CUlaunchAttribute* const begin = config->attrs;
        const CUlaunchAttribute* const end = begin + config->numAttrs;
        if (std::none_of(begin, end, permits_overlap)) {
            return;
        }
        const auto copied = std::copy(begin, end, attributes_.begin());
        for (auto attribute = attributes_.begin(); attribute != copied; ++attribute) {
            if (permits_overlap(*attribute)) {
                attribute->value.programmaticStreamSerializationAllowed = 0;
            }
        }
        ordered_ = *config;
        ordered_.attrs = attributes_.data();
        config_ = &ordered_;
    }
    LaunchInOrder(const LaunchInOrder&) = delete;
    LaunchInOrder& operator=(const LaunchInOrder&) = delete;

    const CUlaunchConfig* config() const { return config_; }

  private:
    static bool permits_overlap(const CUlaunchAttribute& attribute) {
        return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
               attribute.value.programmaticStreamSerializationAllowed != 0;
    }

    const CUlaunchConfig* config_;
    CUlaunchConfig ordered_;
    std::array<CUlaunchAttribute, max_attributes> attributes_;
};

template <class Function, class... Rest>
CUresult call_in_order(Function Driver::*function, const CUlaunchConfig* config, Rest... rest) {
    const LaunchInOrder launch(config);
    return mi::call_real(function, launch.config(), rest...);
}
template <class Function, class... Arguments>
CUresult call_in_order(Function Driver::*function, Arguments... arguments) {
    return mi::call_real(function, arguments...);
}

// The stream that a call's work goes to, by the types of its arguments. A call without a stream is
// a synchronous copy or fill, or a launch of the oldest kind: they use the default stream.
class WorkStream {
  public:
    explicit WorkStream(bool per_thread) : per_thread_(per_thread) {}

    void see(CUstream stream) { stream_ = stream; }
    void see(const CUlaunchConfig* config) {
        if (config == nullptr) {
            return;
        }
        stream_ = config->hStream;
        one_ = one_ && config->numAttrs <= max_attributes;
        for (unsigned i = 0; config->attrs != nullptr && i < config->numAttrs; ++i) {
            // Only its successors know when such a kernel is over for them, and who knows what the
            // attributes of later CUDAs allow.
            const CUlaunchAttributeID id = config->attrs[i].id;
            one_ = one_ && id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT &&
                   id <= CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING;
        }
    }
    // Several devices, several contexts.
    void see(CUDA_LAUNCH_PARAMS*) { one_ = false; }
    void see(const CUDA_MEMCPY3D_PEER*) { one_ = false; }
    void see(CUcontext) { one_ = false; }
    template <class Other>
    void see(const Other&) {}

    mi::StreamKey key() const {
        return one_ ? mi::stream_key(stream_, per_thread_) : mi::no_stream;
    }

  private:
    const bool per_thread_;
    bool one_ = true;
    CUstream stream_ = nullptr;
};

template <bool per_thread, class... Arguments>
mi::StreamKey stream_of(Arguments... arguments) {
    WorkStream stream(per_thread);
    (stream.see(arguments), ...);
    return stream.key();
}

template <auto Function, bool per_thread>
struct Submit;

template <class... Arguments, CUresult (CUDAAPI* Driver::*Function)(Arguments...), bool per_thread>
struct Submit<Function, per_thread> {
    static CUresult CUDAAPI call(Arguments... arguments) {
        if (mi::one_stream.notices()) {
            mi::one_stream.before_work(stream_of<per_thread>(arguments...));
        }
        if (const CUresult refused = refusal<per_thread>(arguments...); refused != CUDA_SUCCESS) {
            return refused;
        }
        note_uses(arguments...);
        const mi::WorkClock::Submission submission(mi::work_clock);
        return call_in_order(Function, arguments...);
    }
};

}  // namespace

extern "C" __attribute__((visibility("hidden"))) void* const memlab_submit_wrappers[] = {
#define MEMLAB_HOOK(symbol, base, version, per_thread) \
    reinterpret_cast<void*>(&Submit<&Driver::symbol, per_thread != 0>::call),
#include "interpose/driver/submitting_functions.inc"
#undef MEMLAB_HOOK
};
