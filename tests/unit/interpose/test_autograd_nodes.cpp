// Which call made a node of PyTorch's graph: only what the operator itself allocated, only of nodes
// as they are known, and never another node's.
#include "interpose/hooks/autograd_nodes.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

using memlab::interpose::AutogradEdge;
using memlab::interpose::AutogradNode;
using memlab::interpose::AutogradNodes;
using memlab::interpose::IntrusiveNode;
using memlab::interpose::NodeLayout;
using memlab::interpose::SharedNode;
using memlab::profiler::CallSite;

namespace {

const int kind_a = 0;
const int kind_b = 0;
const int kind_c = 0;

/// A thread's graph.
class Graph {
  public:
    explicit Graph(AutogradNodes& nodes, std::uint64_t next = 0, std::uint64_t thread = 1)
        : nodes_(nodes), next_(next), thread_(thread) {}

    /// An operator begins: it makes its node.
    SharedNode& begin(const void* kind = &kind_a) {
        SharedNode& node = made_.emplace_back();
        node = {{kind}, &node, &made_, {next_++, 0, 0, thread_}};
        return node;
    }
    void allocate(std::uint32_t stack, std::uint32_t nn_modules = 0) {
        AutogradNodes::allocated(next_, {stack, nn_modules});
    }
    void end(const AutogradNode& node, std::uint32_t captured = 0) {
        nodes_.attached({&node, &made_}, next_, [&] {
            ++captures;
            return CallSite{captured, captured + 1};
        });
    }
    const SharedNode& operate(std::uint32_t stack, const void* kind = &kind_a) {
        const SharedNode& node = begin(kind);
        allocate(stack);
        end(node);
        return node;
    }

    int captures = 0;

  private:
    AutogradNodes& nodes_;
    std::uint64_t next_;
    const std::uint64_t thread_;
    std::deque<SharedNode> made_;
};

std::unique_ptr<AutogradNodes> proved() {
    auto nodes = std::make_unique<AutogradNodes>();
    Graph graph(*nodes, 1000);
    for (int i = 0; i < 8; ++i) {
        graph.operate(1);
    }
    REQUIRE(nodes->proved());
    return nodes;
}

}  // namespace

TEST_CASE("a node has the stack of what its operator allocated first") {
    const auto nodes = proved();
    Graph graph(*nodes);
    const AutogradNode& node = graph.begin();
    graph.allocate(5, 2);
    graph.allocate(6, 3);  // a workspace
    graph.end(node);
    graph.allocate(7);  // of an operator without a node
    graph.end(node);    // another output
    CHECK(nodes->find(&node) == CallSite{5, 2});
    CHECK(nodes->find(nullptr) == CallSite{});
    CHECK(nodes->find(&graph.operate(8)).stack == 8);
    CHECK(nodes->find(&node).stack == 5);
}

TEST_CASE("what others allocate is not a node's") {
    const auto nodes = proved();
    Graph graph(*nodes);
    const AutogradNode& failed = graph.begin();
    graph.allocate(5);  // it raised: no tensor has the node
    const AutogradNode& outer = graph.begin();
    const SharedNode& inner = graph.begin();
    graph.allocate(6);
    graph.end(inner);
    graph.end(outer);  // made before another one: who allocated is unknown
    CHECK(nodes->find(&failed).stack == 0);
    CHECK(nodes->find(&inner).stack == 6);
    CHECK(nodes->find(&outer).stack == 0);
    // An address that is used again, of which the number is another one.
    SharedNode again = inner;
    const SharedNode& known = graph.operate(7);
    again = known;
    CHECK(nodes->find(&again).stack == 0);
    again.numbers.sequence = inner.numbers.sequence;
    CHECK(nodes->find(&again).stack == 0);
}

TEST_CASE("a thread that counts again makes nodes of the same numbers at the same addresses") {
    const auto nodes = proved();
    const auto attach = [&](SharedNode& node, std::uint32_t stack) {
        node = {{&kind_a}, &node, &node, {0, 0, 0, 1}};
        if (stack != 0) {
            AutogradNodes::allocated(1, {stack});
        }
        nodes->attached({&node, &node}, 1, [] { return CallSite{}; });
        Graph(*nodes, 500).operate(1);
    };
    SharedNode node{};
    attach(node, 5);
    CHECK(nodes->find(&node).stack == 5);
    attach(node, 6);
    CHECK(nodes->find(&node).stack == 6);
    attach(node, 0);
    CHECK(nodes->find(&node).stack == 0);
}

TEST_CASE("an operator that allocates nothing is captured while backward allocates for its kind") {
    const auto nodes = proved();
    Graph graph(*nodes);
    for (int i = 0; i < 3000; ++i) {
        graph.end(graph.begin(&kind_b), 9);
    }
    CHECK(graph.captures == 16);
    const AutogradNode& late = graph.begin(&kind_b);
    graph.end(late, 9);
    CHECK(graph.captures == 16);
    for (int i = 0; i < 3000; ++i) {
        CHECK(nodes->find(&late).stack == 0);  // backward asks
    }
    const AutogradNode& next = graph.begin(&kind_b);
    graph.end(next, 10);
    CHECK(graph.captures == 17);
    CHECK(nodes->find(&next) == CallSite{10, 11});
    // Another kind is another matter, and each of which backward asks stays captured.
    for (int i = 0; i < 100; ++i) {
        const AutogradNode& view = graph.begin(&kind_c);
        graph.end(view, 11);
        CHECK(nodes->find(&view).stack == 11);
    }
}

TEST_CASE("nodes of another layout are not believed") {
    AutogradNodes nodes;
    CHECK(nodes.none_seen());
    Graph graph(nodes);
    const auto other = [&](int what) {
        SharedNode node = graph.begin();
        if (what == 0) {
            node.self = nullptr;
        } else if (what == 1) {
            ++node.numbers.sequence;
        } else if (what == 2) {
            node.self_control = nullptr;
        } else {
            ++node.numbers.thread;
        }
        graph.allocate(5);
        graph.end(node);
        CHECK(nodes.find(&node).stack == 0);
    };
    graph.operate(1);
    graph.operate(1);
    for (int i = 0; i < 6; ++i) {
        CHECK_FALSE(nodes.refuted());
        other(i % 4);
    }
    CHECK(nodes.refuted());
    CHECK_FALSE(nodes.proved());
    const AutogradNode& node = graph.operate(5);
    CHECK(nodes.find(&node).stack == 0);
}

TEST_CASE("nodes that cannot be read speak against the layout") {
    AutogradNodes nodes;
    for (int i = 0; i < 8; ++i) {
        CHECK_FALSE(nodes.refuted());
        nodes.unlike_a_node();
    }
    CHECK(nodes.refuted());
}

TEST_CASE("nodes that count their references are known by their own layout") {
    AutogradNodes nodes;
    std::deque<IntrusiveNode> made;
    std::uint64_t next = 70;
    const std::uint64_t one_holder = (std::uint64_t{1} << 32) + 1;
    const auto operate = [&](std::uint32_t stack, std::uint64_t references) -> IntrusiveNode& {
        IntrusiveNode& node = made.emplace_back();
        node = {{&kind_a}, references, {next++, 0, 0, 4}};
        AutogradNodes::allocated(next, {stack});
        nodes.attached({&node, nullptr}, next, [] { return CallSite{}; });
        return node;
    };
    std::thread([&] {  // which counts its thread's nodes again
        for (std::uint32_t i = 1; i <= 8; ++i) {
            // One with nothing that counts; and one with a Python object.
            operate(i, i == 2 ? 0 : one_holder + (i == 3 ? std::uint64_t{1} << 63 : 0));
        }
        CHECK(nodes.layout() == NodeLayout::intrusive);
        const IntrusiveNode& node = operate(50, one_holder);
        CHECK(nodes.find(&node).stack == 50);
        CHECK(nodes.find(&made[4]).stack == 5);
        CHECK(nodes.find(&made[1]).stack == 0);
    })
        .join();
}

TEST_CASE("a few nodes that are not the newest do not speak against the layout") {
    AutogradNodes nodes;
    Graph graph(nodes);
    const AutogradNode& outer = graph.begin();
    for (int i = 0; i < 6; ++i) {
        graph.operate(1);
        CHECK_FALSE(nodes.proved());
    }
    graph.end(outer);
    graph.operate(1);
    CHECK(nodes.proved());
}

TEST_CASE("the newest nodes are known, older ones give way") {
    const auto nodes = proved();
    Graph graph(*nodes);
    std::vector<const AutogradNode*> made;
    constexpr std::size_t more = 5000;
    for (std::size_t i = 0; i < AutogradNodes::capacity + more; ++i) {
        made.push_back(&graph.operate(static_cast<std::uint32_t>(i + 1)));
    }
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < made.size(); ++i) {
        wrong += nodes->find(made[i]).stack != (i < more ? 0 : i + 1) ? 1 : 0;
    }
    CHECK(wrong == 0);
}

TEST_CASE("threads that make nodes never get each other's") {
    const auto nodes = proved();
    constexpr std::size_t threads = 4;
    std::vector<std::thread> workers;
    std::atomic<std::uint64_t> wrong{0};
    for (const bool apart : {false, true}) {  // or all of one number, which may lose some
        std::atomic<std::uint64_t> lost{0};
        for (std::size_t t = 0; t < threads; ++t) {
            workers.emplace_back([&, t] {
                Graph graph(*nodes, 0, apart ? 10 + t : 1);
                std::vector<const AutogradNode*> made;
                for (std::uint32_t i = 1; i < 4000; ++i) {
                    made.push_back(&graph.operate(static_cast<std::uint32_t>(i * threads + t)));
                }
                for (std::uint32_t i = 1; i < 4000; ++i) {
                    const std::uint32_t got = nodes->find(made[i - 1]).stack;
                    wrong += got != i * threads + t && got != 0 ? 1 : 0;
                    lost += got == 0 ? 1 : 0;
                }
            });
        }
        for (std::thread& worker : workers) {
            worker.join();
        }
        workers.clear();
        CHECK((!apart || lost == 0));
    }
    CHECK(wrong == 0);
}
