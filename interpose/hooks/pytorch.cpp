// Interposes the functions by which PyTorch's caching allocator reports each block that it hands
// out or takes back, and each failure. libc10_cuda.so calls these functions of libc10.so whether or
// not a profiler runs (c10/core/Allocator.h), so a preloaded library's are called instead; they
// record the block and call the real ones.
//
// PyTorch calls them under its allocator's lock.
//
// Also torch::autograd::impl::set_gradient_edge() of libtorch_cpu.so, by which each operator of the
// forward ends: what backward allocates on its own thread is recorded with the Python frames of the
// forward (memory/autograd_nodes.hpp).
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "interpose/driver/loaded_objects.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/memory/autograd_nodes.hpp"
#include "interpose/memory/caller_policy.hpp"
#include "interpose/memory/suballocations.hpp"
#include "profiler/call_origin.hpp"
#include "profiler/unwind/stack_memory.hpp"
#include "profiler/unwind/unloads.hpp"

namespace mi = memlab::interpose;

namespace c10 {

/// c10::Device, passed as two bytes in a register.
struct Device {
    std::int8_t type;
    std::int8_t index;
};

}  // namespace c10

namespace {

constexpr std::int8_t cuda_type = 1;  // c10::DeviceType::CUDA

/// A function of one of PyTorch's libraries. Found without the loader's lock, which a thread that
/// waits for this one may hold; again after libraries were unloaded.
template <typename Function>
class RealFunction {
  public:
    constexpr explicit RealFunction(const char* name, const char* library = "libc10.so")
        : name_(name), library_(library) {}

    Function* get() {
        return found_.get([this] {
            Function* found = nullptr;
            mi::find_loaded_symbols(library_, [&](const memlab::profiler::ObjectSymbols& in) {
                found = reinterpret_cast<Function*>(in.find(name_));
                return found != nullptr;
            });
            return found;
        });
    }

  private:
    const char* const name_;
    const char* const library_;
    memlab::profiler::unwind::FoundUntilUnload<Function*> found_;
};

/// Does `work`, which the next block makes up for where it is missing: out of host memory.
template <class Work>
void record_on(c10::Device device, const Work& work) noexcept {
    if (device.type == cuda_type) {
        (void)mi::in_session([&](mi::Session& session) {
            work(session);
            return true;
        });
    }
}

constexpr const char* torch_library = "libtorch_cpu.so";
constexpr const char* set_gradient_edge =
    "_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE";
constexpr const char* evaluate_function =
    "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeE"
    "RNS0_11InputBufferERKS2_INS0_10ReadyQueueEE";

using SetGradientEdge = void(const void* tensor, mi::AutogradEdge* edge);
constinit RealFunction<SetGradientEdge> real_set_gradient_edge(set_gradient_edge, torch_library);
/// The calling thread's next sequence number.
constinit RealFunction<std::uint64_t()> peek_sequence_number("_ZN2at15sequence_number4peekEv",
                                                             torch_library);
/// Returns a std::shared_ptr<torch::autograd::Node>: a pointer to an object of any type has the
/// same binary interface. Since PyTorch 2.1.
constinit RealFunction<std::shared_ptr<const mi::AutogradNode>()> get_current_node(
    "_ZN5torch8autograd16get_current_nodeEv", torch_library);

constinit mi::AutogradNodes autograd_nodes;

void report_backward(const char* why) noexcept {
    static constinit std::atomic<bool> reported{false};
    mi::Session* const session = mi::Session::current();
    if (session != nullptr && session->recorder() != nullptr &&
        !reported.exchange(true, std::memory_order_relaxed)) {
        session->recorder()->report_missed(why, 0);
    }
}

/// The stack of the forward call that made the node which this thread evaluates; 0: unknown.
///
/// Called from the engine's evaluate_function(), around which the engine keeps the node in a
/// variable of the thread (NodeGuard, engine.cpp). So the reference that get_current_node() returns
/// is never the last one, and that its thread-local variable exists already: nothing is destroyed
/// or registered here, under the lock of PyTorch's allocator.
std::uint32_t forward_stack() noexcept {
    if (!autograd_nodes.usable()) {
        report_backward(
            "the nodes of this PyTorch's backward graph are not as memlab knows them, or not seen: "
            "what backward allocates has no line of the forward");
        return 0;
    }
    auto* const current_node = get_current_node.get();
    if (current_node == nullptr) {
        report_backward(
            "this PyTorch does not tell which node of its graph backward evaluates (2.1 and later "
            "do): what backward allocates has no line of the forward");
        return 0;
    }
    return autograd_nodes.find(current_node().get());
}

/// For whom backward allocates.
memlab::profiler::CallOrigin backwards_origin() {
    static constinit memlab::profiler::unwind::FoundUntilUnload<std::uintptr_t> begin;
    static constinit memlab::profiler::unwind::FoundUntilUnload<std::uintptr_t> bytes;
    const auto find = [](auto part) {
        memlab::profiler::ObjectSymbols::Extent extent;
        mi::find_loaded_symbols(torch_library, [&](const memlab::profiler::ObjectSymbols& in) {
            extent = in.extent_of(evaluate_function);
            return extent.bytes != 0;
        });
        return extent.*part;
    };
    using Extent = memlab::profiler::ObjectSymbols::Extent;
    return {begin.get([&] { return find(&Extent::begin); }),
            bytes.get([&] { return find(&Extent::bytes); }), forward_stack};
}

/// Whether what memlab reads of an edge and its node is memory at all.
bool can_be_read(const mi::AutogradEdge* edge) {
    const auto readable = [](const void* object) {
        const auto at = reinterpret_cast<std::uintptr_t>(object);
        return memlab::profiler::unwind::is_readable(at) &&
               memlab::profiler::unwind::is_readable(at + sizeof(mi::AutogradNode) - 8);
    };
    return readable(edge) && readable(edge->node);
}

[[gnu::hot, gnu::noinline]] void record_gradient_edge(const mi::AutogradEdge* edge) noexcept {
    (void)mi::in_session([&](mi::Session& session) {
        auto* const peek = peek_sequence_number.get();
        memlab::profiler::Recorder* const recorder = session.recorder();
        if (recorder == nullptr || peek == nullptr ||
            (!autograd_nodes.usable() && !can_be_read(edge))) {
            return false;
        }
        autograd_nodes.attached(*edge, peek(), [&] { return recorder->capture_call_site(); });
        return true;
    });
}

template <typename Size>
void tell_memory(RealFunction<void(void*, std::int64_t, Size, Size, c10::Device)>& real,
                 void* pointer, std::int64_t bytes, Size allocated, Size reserved,
                 c10::Device device) {
    record_on(device, [&](mi::Session& session) {
        const auto address = reinterpret_cast<std::uintptr_t>(pointer);
        if (bytes > 0) {
            const std::uint32_t stack = mi::record_suballocation(
                session, device.index, address, static_cast<std::uint64_t>(bytes),
                static_cast<std::uint64_t>(reserved), backwards_origin());
            if (auto* const peek = peek_sequence_number.get()) {
                mi::AutogradNodes::allocated(peek(), stack);
            }
        } else if (bytes < 0) {
            mi::record_suballocation_freed(session, device.index, address,
                                           0 - static_cast<std::uint64_t>(bytes));
        }
    });
    if (auto* const function = real.get()) {
        function(pointer, bytes, allocated, reserved, device);
    }
}

template <typename Size>
void tell_out_of_memory(RealFunction<void(std::int64_t, Size, Size, c10::Device)>& real,
                        std::int64_t bytes, Size allocated, Size reserved, c10::Device device) {
    record_on(device, [&](mi::Session& session) {
        mi::record_suballocator_oom(session, device.index, static_cast<std::uint64_t>(bytes),
                                    backwards_origin());
    });
    if (auto* const function = real.get()) {
        function(bytes, allocated, reserved, device);
    }
}

template <typename Size>
using MemoryUsage = RealFunction<void(void*, std::int64_t, Size, Size, c10::Device)>;
template <typename Size>
using OutOfMemory = RealFunction<void(std::int64_t, Size, Size, c10::Device)>;

constinit MemoryUsage<std::size_t> real_memory_usage(mi::pytorch_memory_usage);
constinit MemoryUsage<std::int64_t> real_signed_memory_usage(mi::pytorch_signed_memory_usage);
constinit OutOfMemory<std::size_t> real_out_of_memory(
    "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
constinit OutOfMemory<std::int64_t> real_signed_out_of_memory(
    "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE");

}  // namespace

namespace c10 {

#define MEMLAB_C10 __attribute__((visibility("default")))

[[gnu::hot]] MEMLAB_C10 void reportMemoryUsageToProfiler(void* pointer, std::int64_t bytes,
                                                         std::size_t allocated,
                                                         std::size_t reserved, Device device) {
    tell_memory(real_memory_usage, pointer, bytes, allocated, reserved, device);
}

/// As PyTorch has it before 2.3.
[[gnu::hot]] MEMLAB_C10 void reportMemoryUsageToProfiler(void* pointer, std::int64_t bytes,
                                                         std::int64_t allocated,
                                                         std::int64_t reserved, Device device) {
    tell_memory(real_signed_memory_usage, pointer, bytes, allocated, reserved, device);
}

MEMLAB_C10 void reportOutOfMemoryToProfiler(std::int64_t bytes, std::size_t allocated,
                                            std::size_t reserved, Device device) {
    tell_out_of_memory(real_out_of_memory, bytes, allocated, reserved, device);
}

MEMLAB_C10 void reportOutOfMemoryToProfiler(std::int64_t bytes, std::int64_t allocated,
                                            std::int64_t reserved, Device device) {
    tell_out_of_memory(real_signed_out_of_memory, bytes, allocated, reserved, device);
}

}  // namespace c10

/// torch::autograd::impl::set_gradient_edge(at::Tensor const&, torch::autograd::Edge). The real one
/// takes the edge's node over.
extern "C" MEMLAB_C10 void memlab_set_gradient_edge(const void* tensor, mi::AutogradEdge* edge) asm(
    "_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE");

extern "C" [[gnu::hot]] MEMLAB_C10 void memlab_set_gradient_edge(const void* tensor,
                                                                 mi::AutogradEdge* edge) {
    record_gradient_edge(edge);
    SetGradientEdge* real = real_set_gradient_edge.get();
    if (real == nullptr) [[unlikely]] {
        // Linked statically, or under another name: whoever calls this has it from some object.
        mi::find_loaded_symbols("", [&](const memlab::profiler::ObjectSymbols& in) {
            real = reinterpret_cast<SetGradientEdge*>(in.find(set_gradient_edge));
            real = real == memlab_set_gradient_edge ? nullptr : real;
            return real != nullptr;
        });
        if (real == nullptr) {
            std::abort();  // as the loader would end a program whose symbol is nowhere
        }
    }
    real(tensor, edge);
}
