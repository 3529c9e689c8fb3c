// A stand-in for libtorch_cpu.so: operators that make nodes of a backward graph, allocate from the
// stand-in for libc10_cuda.so and attach their results to the node; and an engine that evaluates
// nodes on a thread of its own.
//
//   MEMLAB_INTRUSIVE_NODES   nodes that count their references, as in 2.14
//   MEMLAB_NO_CURRENT_NODE   does not tell the node that is evaluated, as before 2.1
//   MEMLAB_OTHER_NODES       nodes of another layout
//   MEMLAB_OTHER_EDGES       edges of another layout: nothing at the node's place
//   MEMLAB_OTHER_POINTER     tells the node by another kind of pointer
//   MEMLAB_NO_ENGINE         an engine of another name
//   MEMLAB_NO_COUNTER        a counter of sequence numbers of another name
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#define EXPORT __attribute__((visibility("default")))

extern "C" std::uint64_t torch_allocate(std::int8_t device, std::uint64_t bytes, bool expandable);
extern "C" void torch_free(std::int8_t device, std::uint64_t address);

namespace at {

class Tensor {};

namespace sequence_number {

namespace {
thread_local std::uint64_t next = 0;
}

#ifndef MEMLAB_NO_COUNTER
EXPORT std::uint64_t peek() {
    return next;
}
#endif

EXPORT std::uint64_t get_and_increment() {
    return next++;
}

}  // namespace sequence_number
}  // namespace at

namespace torch::autograd {

std::uint64_t current_thread() {
    static std::atomic<std::uint64_t> last{0};
    thread_local const std::uint64_t mine = ++last;
    return mine;
}

#ifdef MEMLAB_INTRUSIVE_NODES

/// Counts references as c10::intrusive_ptr_target does; the weak ones are one for all others.
struct Counted {
    static constexpr std::uint64_t first = std::uint64_t{1} << 32 | 1;
    virtual ~Counted() = default;
    std::atomic<std::uint64_t> references{first};
};

template <class Object>
class Pointer {
  public:
    Pointer() = default;
    Pointer(std::nullptr_t) {}
    explicit Pointer(Object* object) : object_(object) {}
    template <class Other>
    Pointer(const Pointer<Other>& other) : object_(other.get()) {
        if (object_ != nullptr) {
            object_->references.fetch_add(1);
        }
    }
    Pointer(const Pointer& other) : object_(other.object_) {
        if (object_ != nullptr) {
            object_->references.fetch_add(1);
        }
    }
    Pointer(Pointer&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Pointer& operator=(Pointer other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Pointer() {
        if (object_ != nullptr && (object_->references.fetch_sub(1) & 0xffff'ffffU) == 1) {
            delete object_;
        }
    }
    Object* get() const { return object_; }
    Object* operator->() const { return object_; }
    bool operator==(std::nullptr_t) const { return object_ == nullptr; }

  private:
    Object* object_ = nullptr;
};

template <class Object>
Pointer<Object> make() {
    return Pointer<Object>(new Object);
}

struct Node : Counted {
#else

template <class Object>
using Pointer = std::shared_ptr<Object>;

template <class Object>
Pointer<Object> make() {
    return std::make_shared<Object>();
}

struct Node : std::enable_shared_from_this<Node> {
#endif
    Node() = default;
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;
    virtual ~Node() = default;
    virtual void apply() = 0;
#ifdef MEMLAB_OTHER_NODES
    std::uint64_t first = 0;
#endif
    const std::uint64_t sequence = at::sequence_number::get_and_increment();
    std::uint64_t topological = 0;
    bool has_parent = false;
    const std::uint64_t thread = current_thread();
};

struct Edge {
#ifdef MEMLAB_OTHER_EDGES
    std::uint64_t kind = 3;
#endif
    Pointer<Node> function;
    std::uint32_t input = 0;
};

Edge make_edge(const Pointer<Node>& node, std::uint32_t input) {
    Edge edge;
    edge.function = node;
    edge.input = input;
    return edge;
}

struct GraphTask {};
struct InputBuffer {};
struct ReadyQueue {};

namespace {
thread_local Pointer<Node> current;
std::uint64_t attached = 0;
}  // namespace

#ifdef MEMLAB_OTHER_POINTER
EXPORT Node* get_current_node() {
    return current.get();
}
#elif !defined(MEMLAB_NO_CURRENT_NODE)
EXPORT Pointer<Node> get_current_node() {
    return current;
}
#endif

namespace impl {

EXPORT void set_gradient_edge(const at::Tensor& /*tensor*/, Edge edge) {
    // Takes the node over, as the real one does.
    const Pointer<Node> taken = std::move(edge.function);
    __atomic_fetch_add(&attached, taken == nullptr ? 0 : 1, __ATOMIC_RELAXED);
}

}  // namespace impl

class NodeGuard {
  public:
    explicit NodeGuard(Pointer<Node> node) : last_(std::move(current)) {
        current = std::move(node);
    }
    ~NodeGuard() { current = std::move(last_); }
    NodeGuard(const NodeGuard&) = delete;
    NodeGuard& operator=(const NodeGuard&) = delete;

  private:
    Pointer<Node> last_;
};

class Engine {
  public:
#ifdef MEMLAB_NO_ENGINE
#define evaluate_function evaluate_node
#endif
    EXPORT void evaluate_function(std::shared_ptr<GraphTask>& task, Node* node, InputBuffer& inputs,
                                  const std::shared_ptr<ReadyQueue>& queue);
};

EXPORT void Engine::evaluate_function(std::shared_ptr<GraphTask>& /*task*/, Node* node,
                                      InputBuffer& /*inputs*/,
                                      const std::shared_ptr<ReadyQueue>& /*queue*/) {
    node->apply();
    asm volatile("");  // no tail call
}

namespace generated {

/// Three kinds, since a kind of nodes is what memlab decides by.
template <int kind>
struct EXPORT TestBackward : Node {
    void apply() override {
        work();
        asm volatile("");
    }
    std::function<void()> work;
};

template struct TestBackward<0>;
template struct TestBackward<1>;
template struct TestBackward<2>;

}  // namespace generated

namespace {

/// The thread that evaluates the nodes of one device, one at a time.
class DeviceThread {
  public:
    void evaluate(const Pointer<Node>& node) {
        std::unique_lock lock(mutex_);
        if (!started_) {
            started_ = true;
            std::thread([this] { run(); }).detach();
        }
        node_ = node;
        changed_.notify_all();
        changed_.wait(lock, [this] { return node_ == nullptr; });
    }

  private:
    void run() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [this] { return node_ != nullptr; });
            evaluate_here(node_);
            node_ = nullptr;
            changed_.notify_all();
        }
    }

  public:
    static void evaluate_here(const Pointer<Node>& node) {
        std::shared_ptr<GraphTask> task;
        InputBuffer inputs;
        Engine engine;
        const NodeGuard guard(node);
        engine.evaluate_function(task, node.get(), inputs, nullptr);
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool started_ = false;
    Pointer<Node> node_;
};

DeviceThread& device_thread() {
    static auto* const thread = new DeviceThread;  // never ends
    return *thread;
}

std::vector<Pointer<Node>> nodes;
thread_local std::uint64_t last_result = 0;

template <int kind>
[[gnu::noinline]] Pointer<Node> operate(std::uint64_t bytes, std::uint64_t backward_bytes,
                                        std::uint32_t outputs) {
    auto node = make<generated::TestBackward<kind>>();
    node->work = [backward_bytes] {
        if (backward_bytes != 0) {
            torch_allocate(0, backward_bytes, false);
        }
    };
    last_result = bytes == 0 ? 0 : torch_allocate(0, bytes, false);
    const at::Tensor result;
    for (std::uint32_t i = 0; i < outputs; ++i) {
        impl::set_gradient_edge(result, make_edge(node, i));
    }
    return node;
}

Pointer<Node> operate(int kind, std::uint64_t bytes, std::uint64_t backward_bytes,
                      std::uint32_t outputs) {
    return kind == 0   ? operate<0>(bytes, backward_bytes, outputs)
           : kind == 1 ? operate<1>(bytes, backward_bytes, outputs)
                       : operate<2>(bytes, backward_bytes, outputs);
}

std::uint64_t keep(Pointer<Node> node) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    nodes.push_back(std::move(node));
    return nodes.size() - 1;
}

}  // namespace
}  // namespace torch::autograd

using namespace torch::autograd;

extern "C" {

/// An operator of this kind that allocates `bytes` (0: a view), whose backward does
/// `backward_bytes`. Returns the number of its node. Without outputs it fails.
EXPORT std::uint64_t torch_operator(int kind, std::uint64_t bytes, std::uint64_t backward_bytes,
                                    std::uint32_t outputs) {
    return keep(operate(kind, bytes, backward_bytes, outputs));
}

/// So many operators of this kind, one after the other, whose results are dropped.
EXPORT void torch_operators(int kind, std::uint64_t bytes, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        operate(kind, bytes, 0, 1);
        if (last_result != 0) {
            torch_free(0, last_result);
        }
    }
}

/// An operator without a node.
EXPORT void torch_without_gradient(std::uint64_t bytes) {
    torch_allocate(0, bytes, false);
    asm volatile("");
}

/// Its backward is Python code: of a torch.autograd.Function.
EXPORT std::uint64_t torch_function(void (*backward)()) {
    auto node = make<generated::TestBackward<2>>();
    node->work = backward;
    impl::set_gradient_edge({}, make_edge(node, 0));
    return keep(node);
}

/// Its backward makes a node, which can itself go backward: returned by torch_backward().
EXPORT std::uint64_t torch_twice(std::uint64_t bytes, std::uint64_t backward_bytes,
                                 std::uint64_t twice_bytes, std::uint64_t* second) {
    auto node = make<generated::TestBackward<0>>();
    node->work = [=] { *second = torch_operator(1, backward_bytes, twice_bytes, 1); };
    torch_allocate(0, bytes, false);
    impl::set_gradient_edge({}, make_edge(node, 0));
    return keep(node);
}

/// Evaluates a node: on the engine's thread or the calling one.
EXPORT void torch_backward(std::uint64_t node, bool here) {
    const Pointer<Node> wanted = nodes[node];
    if (here) {
        DeviceThread::evaluate_here(wanted);
    } else {
        device_thread().evaluate(wanted);
    }
    asm volatile("");
}

/// The same node's memory, as another node that no tensor has.
EXPORT void torch_replace(std::uint64_t node, std::uint64_t backward_bytes) {
    using Kind = generated::TestBackward<0>;
    auto* const memory = static_cast<Kind*>(nodes[node].get());
#ifdef MEMLAB_INTRUSIVE_NODES
    const std::uint64_t references = memory->references;
#endif
    std::destroy_at(memory);
    auto* const another = std::construct_at(memory);
#ifdef MEMLAB_INTRUSIVE_NODES
    another->references = references;
#endif
    another->work = [backward_bytes] { torch_allocate(0, backward_bytes, false); };
}

/// How often a tensor got a node.
EXPORT std::uint64_t torch_attached() {
    return __atomic_load_n(&attached, __ATOMIC_RELAXED);
}
}
