// Races of calls that get memory and give it back, step by step: the protocol's operations in a
// fixed order (protocol.hpp), with each of its checks after every one.
#include <initializer_list>
#include <string_view>

#include "tests/catch.hpp"
#include "tests/model_check/protocol.hpp"

namespace memlab::model_check {

namespace {

constexpr std::string_view nothing;

class Script {
  public:
    explicit Script(Layout layout, std::size_t blocks, std::size_t live)
        : run_(setting_of(layout, blocks, live), fibers_) {}

    const Reached& operator()(Step step, std::uint8_t first = 0) {
        run_.apply({step, first, 0});
        run_.check();
        CHECK(run_.problem() == nothing);
        return run_.reached();
    }

    /// Everything ends, and all is as it should be.
    void end() {
        run_.check_ending();
        CHECK(run_.problem() == nothing);
    }

    const Protocol& run() const { return run_; }

  private:
    static Setting setting_of(Layout layout, std::size_t blocks, std::size_t live) {
        Setting setting;
        setting.on_way = true;
        setting.layout = layout;
        setting.knowledge = Knowledge::exact;
        setting.streams = 1;
        setting.blocks = blocks;
        setting.live = live;
        return setting;
    }

    Fibers fibers_;
    Protocol run_;
};

constexpr Layout layouts[] = {Layout::own_segments, Layout::range, Layout::own_chunks};

}  // namespace

TEST_CASE("memory that arrives after a free made it unnecessary goes back") {
    for (const Layout layout : layouts) {
        Script script(layout, 2, 1);
        script(Step::allocate);  // call 0: the device gives the second block
        CHECK(script(Step::free, 0).call_while_arriving);
        CHECK(script.run().live() == 0);
        CHECK(script(Step::go_on, 0).surplus);  // it takes the block that is free now
        CHECK(script.run().live() == 1);
        CHECK(script.run().used() == 2);  // until the call that gives it back returns
        script(Step::go_on, 0);
        CHECK(script.run().used() == 1);
        CHECK(script.run().served() == 2);  // with the one that was there
        script.end();
    }
}

TEST_CASE("whoever waits for its turn to grow has it when the growth before it fails") {
    for (const Layout layout : layouts) {
        Script script(layout, 1, 1);
        script(Step::allocate);                         // call 0: the device has none
        CHECK(script(Step::allocate).waited_for_turn);  // call 1
        script(Step::go_on, 0);  // call 0 makes room, without success, and asks again
        CHECK(script(Step::free, 0).call_while_arriving);  // which is too late for that answer
        for (int step = 0; step < 8 && script.run().can_go_on(0); ++step) {
            script(Step::go_on, 0);
        }
        for (int step = 0; step < 8 && script.run().can_go_on(1); ++step) {
            script(Step::go_on, 1);
        }
        CHECK(script.run().served() == 2);
        CHECK(script.run().refused() == 1);
        CHECK(script.run().live() == 1);
        script.end();
    }
}

TEST_CASE("a growth that failed while memory went back is tried again") {
    for (const Layout layout : layouts) {
        Script script(layout, 1, 1);
        script(Step::free, 0);
        script(Step::empty_cache);  // call 0: the block leaves
        script(Step::allocate);     // call 1: the device has none yet
        script(Step::go_on, 0);     // it has by now, before the answer is there
        for (int step = 0; step < 8 && script.run().can_go_on(1); ++step) {
            script(Step::go_on, 1);
        }
        CHECK(script.run().served() == 2);
        CHECK(script.run().retries() == 0);  // which would wait for all frees
        script.end();
    }
}

}  // namespace memlab::model_check
