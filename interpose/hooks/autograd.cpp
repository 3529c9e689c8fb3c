#include "interpose/hooks/autograd.hpp"

#include <atomic>
#include <cstdlib>

#include "interpose/driver/loaded_objects.hpp"
#include "interpose/hooks/autograd_nodes.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/hooks/pytorch_checks.hpp"
#include "profiler/object_symbols.hpp"
#include "profiler/unwind/unloads.hpp"

namespace memlab::interpose {
namespace {

using SetGradientEdge = void(const void* tensor, AutogradEdge* edge);
using PeekSequenceNumber = std::uint64_t();
/// Returns a pointer to a torch::autograd::Node.
using GetCurrentNode = CurrentNode::Function;

/// What libtorch_cpu.so has of autograd; null or of no bytes where it has not.
struct Functions {
    SetGradientEdge* set_gradient_edge = nullptr;
    PeekSequenceNumber* peek = nullptr;
    GetCurrentNode* current_node = nullptr;  ///< since PyTorch 2.1
    profiler::ObjectSymbols::Extent evaluate;

    [[gnu::noinline]] static Functions search() {
        Functions found;
        find_loaded_symbols("libtorch_cpu.so", [&](const profiler::ObjectSymbols& in) {
            found.set_gradient_edge =
                reinterpret_cast<SetGradientEdge*>(in.find(pytorch_set_gradient_edge));
            found.peek = reinterpret_cast<PeekSequenceNumber*>(in.find(pytorch_peek));
            found.current_node = reinterpret_cast<GetCurrentNode*>(in.find(pytorch_current_node));
            found.evaluate = in.extent_of(pytorch_evaluate_function);
            return true;
        });
        return found;
    }
};

/// The functions, found without the loader's lock; again after libraries were unloaded.
class FoundFunctions {
  public:
    [[gnu::always_inline]] Functions get() {
        if (profiler::unwind::is_unloading()) [[unlikely]] {
            return Functions::search();
        }
        if (searched_.is_stale()) [[unlikely]] {
            refresh();
        }
        return {set_gradient_edge_.load(std::memory_order_relaxed),
                peek_.load(std::memory_order_relaxed),
                current_node_.load(std::memory_order_relaxed),
                {begin_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed)}};
    }

  private:
    [[gnu::noinline]] void refresh() {
        searched_.refresh([this] { store(Functions::search()); });
    }

    void store(const Functions& found) {
        set_gradient_edge_.store(found.set_gradient_edge, std::memory_order_relaxed);
        peek_.store(found.peek, std::memory_order_relaxed);
        current_node_.store(found.current_node, std::memory_order_relaxed);
        begin_.store(found.evaluate.begin, std::memory_order_relaxed);
        bytes_.store(found.evaluate.bytes, std::memory_order_relaxed);
    }

    profiler::unwind::EpochTracker searched_{profiler::unwind::EpochTracker::never};
    std::atomic<SetGradientEdge*> set_gradient_edge_{};
    std::atomic<PeekSequenceNumber*> peek_{};
    std::atomic<GetCurrentNode*> current_node_{};
    std::atomic<std::uintptr_t> begin_{};
    std::atomic<std::uintptr_t> bytes_{};
};

constinit FoundFunctions functions;
constinit AutogradNodes nodes;
constinit CurrentNode current_node;

void not_read(const char* why) noexcept {
    if (Session* const session = Session::current()) {
        session->pytorch_not_read(PytorchFeature::forward_lines, "libtorch_cpu.so", why);
    }
}

/// Where the calling thread is; of the stack only its Python frames matter. No stack: it has none.
profiler::CallSite capture() noexcept {
    profiler::CallSite site;
    (void)in_session([&](Session& session) {
        site = session.recorder()->capture_python_frames();
        return true;
    });
    return site;
}

/// MEMLAB_FORWARD_LINES.
bool wanted() {
    const Session* const session = Session::current();
    return session != nullptr && session->settings().forward_lines;
}

void record(const AutogradEdge* edge, PeekSequenceNumber* peek) {
    Session* const session = Session::current();
    if (session == nullptr || session->recorder() == nullptr ||
        !session->settings().forward_lines || nodes.refuted()) {
        return;
    }
    if (peek == nullptr) [[unlikely]] {
        not_read("at::sequence_number::peek is not exported");
        return;
    }
    if (!nodes.proved()) [[unlikely]] {
        if (can_be_read(edge, sizeof *edge) && edge->node == nullptr) {
            return;  // a tensor that is given no node
        }
        if (!can_be_read(edge, sizeof *edge) || !looks_like_node(edge->node)) {
            nodes.unlike_a_node();
            return;
        }
    }
    nodes.attached(*edge, peek(), capture);
}

[[gnu::hot]] profiler::ObjectSymbols::Extent evaluating_code() noexcept {
    if (!wanted()) {
        return {};
    }
    const Functions found = functions.get();
    if (found.evaluate.bytes == 0 && found.set_gradient_edge != nullptr) [[unlikely]] {
        not_read("torch::autograd::Engine::evaluate_function is not exported");
    }
    return found.evaluate;
}

/// The forward call that made the node which this thread evaluates; no stack: unknown.
///
/// Called from inside the engine's evaluate_function(), around which the engine keeps the node in a
/// variable of the thread (NodeGuard, torch/csrc/autograd/engine.cpp). So the reference that
/// get_current_node() returns is never the last one, and the thread-local variable exists already:
/// nothing is destroyed or registered here, under the lock of PyTorch's allocator.
[[gnu::hot]] profiler::CallSite forward_site() noexcept {
    if (!nodes.proved()) [[unlikely]] {
        if (nodes.refuted()) {
            not_read(pytorch_layout_unknown);
        } else if (nodes.none_seen()) {
            not_read("its operators make their backward graph unseen");
        }
        return {};
    }
    GetCurrentNode* const function = functions.get().current_node;
    if (function == nullptr) [[unlikely]] {
        not_read("torch::autograd::get_current_node is not exported");
        return {};
    }
    const AutogradNode* const node = current_node.get(function, nodes.layout());
    if (node == nullptr && current_node.refuted()) [[unlikely]] {
        not_read("torch::autograd::get_current_node returns something else");
    }
    return nodes.find(node);
}

}  // namespace

constinit const profiler::CallOrigin backwards_origin{evaluating_code, forward_site};

[[gnu::hot]] void allocated_by_pytorch(profiler::CallSite site) {
    PeekSequenceNumber* const peek = wanted() ? functions.get().peek : nullptr;
    if (peek != nullptr) {
        AutogradNodes::allocated(peek(), site);
    }
}

}  // namespace memlab::interpose

/// torch::autograd::impl::set_gradient_edge(at::Tensor const&, torch::autograd::Edge), by which
/// each operator of the forward ends. The real one takes the edge's node over.
extern "C" __attribute__((visibility("default"))) void
memlab_set_gradient_edge(const void* tensor, memlab::interpose::AutogradEdge* edge) asm(
    "_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE");

extern "C" [[gnu::hot]] void memlab_set_gradient_edge(const void* tensor,
                                                      memlab::interpose::AutogradEdge* edge) {
    namespace mi = memlab::interpose;
    const mi::Functions found = mi::functions.get();
    mi::record(edge, found.peek);
    mi::SetGradientEdge* real = found.set_gradient_edge;
    if (real == nullptr) [[unlikely]] {
        // Linked statically, or under another name: whoever calls this has it from some object.
        mi::find_loaded_symbols("", [&](const memlab::profiler::ObjectSymbols& in) {
            real = reinterpret_cast<mi::SetGradientEdge*>(in.find(mi::pytorch_set_gradient_edge));
            real = real == memlab_set_gradient_edge ? nullptr : real;
            return real != nullptr;
        });
        if (real == nullptr) {
            std::abort();  // as the loader would end a program whose symbol is nowhere
        }
    }
    real(tensor, edge);
}
