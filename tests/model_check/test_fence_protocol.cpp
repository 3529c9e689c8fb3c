// The fence protocol: every interleaving within a small scope (explorer.hpp). And the checker
// itself: each rule of the protocol is broken once, which must be detected.
//
//   MEMLAB_TEST_DEPTH=n           operations (default: 4, thoroughly 5; not optimized one less)
//   model_check_fence_protocol "[full]"
//                                 8 operations, more where the program begins with fewer blocks
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/model_check/explorer.hpp"
#include "tests/support/thorough.hpp"
#include "tests/unit/allocator/random.hpp"

namespace memlab::model_check {

namespace {

using allocator::FreeSync;
using allocator::testing::setting;
using testing::thoroughly;

constexpr std::string_view sound;

#ifdef NDEBUG
constexpr unsigned usual_depth = 4;
constexpr unsigned full_merge_depth = 4;
#else
constexpr unsigned usual_depth = 3;
constexpr unsigned full_merge_depth = 3;
#endif
constexpr unsigned usual_merge_depth = 3;

/// All combinations of the pool's options, the knowledge of its fences and the layout of blocks.
std::vector<Setting> settings(std::size_t live) {
    std::vector<Setting> all;
    for (const FreeSync sync : {FreeSync::never, FreeSync::automatic, FreeSync::always}) {
        for (const Knowledge knowledge : {Knowledge::nothing, Knowledge::exact, Knowledge::clock}) {
            if (sync == FreeSync::always && knowledge != Knowledge::clock) {
                continue;  // as automatic, except for polling the fence
            }
            for (const Layout layout : {Layout::own_segments, Layout::one_segment}) {
                Setting each;
                each.sync = sync;
                each.knowledge = knowledge;
                each.layout = layout;
                each.live = live;
                all.push_back(each);
            }
        }
    }
    return all;
}

struct Sum {
    std::uint64_t settings = 0;
    std::uint64_t states = 0;
    std::uint64_t transitions = 0;
    std::uint64_t sequences = 0;
    std::uint64_t while_arriving = 0;
    std::uint64_t while_leaving = 0;
    std::uint64_t surpluses = 0;
    std::uint64_t waits_for_turn = 0;
    std::uint64_t failures_in_turn = 0;
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();

    void add(const Setting& setting, unsigned depth) {
        const Exploration found = explore(setting, depth);
        REQUIRE(found.story == sound);
        ++settings;
        states += found.states;
        transitions += found.transitions;
        sequences += found.sequences;
        while_arriving += found.calls_while_arriving;
        while_leaving += found.calls_while_leaving;
        surpluses += found.surpluses;
        waits_for_turn += found.waits_for_turn;
        failures_in_turn += found.failures_in_turn;
    }

    void print(const char* what, unsigned depth) const {
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        std::printf(
            "%s, %u operations: %llu settings, %llu states, %llu transitions, %llu "
            "sequences, %.1f s\n",
            what, depth, static_cast<unsigned long long>(settings),
            static_cast<unsigned long long>(states), static_cast<unsigned long long>(transitions),
            static_cast<unsigned long long>(sequences), took.count());
        std::fflush(stdout);
    }
};

/// Those in which others run while memory is on its way: with memory for three blocks, on the
/// simplest device.
std::vector<Setting> settings_on_way() {
    std::vector<Setting> all;
    for (const Layout layout : {Layout::own_segments, Layout::range, Layout::own_chunks}) {
        for (const FreeSync sync : {FreeSync::never, FreeSync::automatic}) {
            for (const std::size_t live : {0, 2, 3}) {
                Setting each;
                each.on_way = true;
                each.layout = layout;
                each.sync = sync;
                each.live = live;
                each.blocks = 3;
                each.streams = 1;
                each.knowledge = Knowledge::exact;
                all.push_back(each);
            }
        }
    }
    return all;
}

/// `depth` operations after a program has allocated everything, more after it has allocated less.
void explore_all(unsigned depth) {
    Sum frees;
    for (const std::size_t live : {4, 2, 0}) {
        const unsigned reach = depth + static_cast<unsigned>(4 - live) / 2;
        for (const Setting& each : settings(live)) {
            // Blocks that split and merge cannot be exchanged: ten times as many states.
            const bool merging = each.layout == Layout::one_segment;
            frees.add(each, merging ? reach - 1 : reach);
        }
    }
    frees.print("frees and reuse", depth);
    struct Extra {
        const char* what;
        void (*change)(Setting&);
    };
    for (const Extra& extra :
         {Extra{"captures", [](Setting& each) { each.captures = true; }},
          {"a call that fails", [](Setting& each) { each.failures = true; }},
          {"callers that rely on nothing", [](Setting& each) { each.relies = false; }},
          {"one stream, as long as it is", [](Setting& each) { each.one_stream = true; }},
          {"one stream, and callers known to rely on nothing", [](Setting& each) {
               each.one_stream = true;
               each.relies = false;
               each.known = true;
           }}}) {
        Sum sum;
        for (Setting each : settings(3)) {
            if (each.layout == Layout::own_segments && each.sync != FreeSync::always) {
                each.blocks = 3;
                extra.change(each);
                sum.add(each, depth);
            }
        }
        sum.print(extra.what, depth);
    }
}

struct Broken {
    const char* name;
    std::size_t blocks;
    std::initializer_list<Flaw> flaws;  ///< what it may show as
    Mutation mutation;
    FreeSync sync;
    Knowledge knowledge;
    bool captures;
    bool one_stream = false;
    bool relies = true;
};

const Broken all_broken[] = {
    {"no fence", 2, {Flaw::reuse}, Mutation::no_fence, FreeSync::never, Knowledge::exact, false},
    {"the clock is read after the record",
     2,
     {Flaw::reuse},
     Mutation::look_after_record,
     FreeSync::never,
     Knowledge::clock,
     false},
    {"the clock ticks before the submission",
     2,
     {Flaw::reuse},
     Mutation::tick_before_submit,
     FreeSync::never,
     Knowledge::clock,
     false},
    {"a submission under way is not seen",
     2,
     {Flaw::reuse},
     Mutation::under_way_unseen,
     FreeSync::never,
     Knowledge::clock,
     false},
    {"submissions that do not tick",
     2,
     {Flaw::reuse},
     Mutation::unseen_stream,
     FreeSync::never,
     Knowledge::clock,
     false},
    {"a released fence counts as complete",
     2,
     {Flaw::promise},
     Mutation::released_is_complete,
     FreeSync::automatic,
     Knowledge::clock,
     false},
    {"a fence of one stream",
     2,
     {Flaw::reuse},
     Mutation::one_stream_fence,
     FreeSync::never,
     Knowledge::exact,
     false},
    {"a fence complete too early",
     2,
     {Flaw::reuse},
     Mutation::any_stream_completes,
     FreeSync::never,
     Knowledge::exact,
     false},
    {"fences complete out of order",
     2,
     {Flaw::reuse},
     Mutation::out_of_order,
     FreeSync::never,
     Knowledge::exact,
     false},
    {"a fence recorded too late",
     3,
     {Flaw::late},
     Mutation::recorded_late,
     FreeSync::never,
     Knowledge::exact,
     false},
    {"an epoch that does not end",
     2,
     {Flaw::reuse},
     Mutation::endless_epoch,
     FreeSync::never,
     Knowledge::clock,
     false},
    {"a device wait that orders nothing",
     1,
     {Flaw::reuse},
     Mutation::wait_orders_nothing,
     FreeSync::never,
     Knowledge::exact,
     false},
    {"a device wait that orders one stream",
     1,
     {Flaw::reuse},
     Mutation::wait_orders_one_stream,
     FreeSync::never,
     Knowledge::exact,
     false},
    {"a host wait that does not wait",
     1,
     {Flaw::promise, Flaw::reuse},
     Mutation::host_waits_for_nothing,
     FreeSync::automatic,
     Knowledge::exact,
     false},
    {"a fence in a capture",
     2,
     {Flaw::books},
     Mutation::fence_in_capture,
     FreeSync::never,
     Knowledge::clock,
     true},
    {"a fence is not released",
     2,
     {Flaw::books},
     Mutation::release_forgotten,
     FreeSync::never,
     Knowledge::exact,
     false},
    {"a fence is released twice",
     2,
     {Flaw::books},
     Mutation::released_twice,
     FreeSync::never,
     Knowledge::exact,
     false},
    {"nothing is fenced at a capture's end",
     2,
     {Flaw::stuck},
     Mutation::capture_end_forgotten,
     FreeSync::never,
     Knowledge::exact,
     true},
    {"a second stream that waits for nothing",
     2,
     {Flaw::reuse},
     Mutation::second_orders_nothing,
     FreeSync::never,
     Knowledge::clock,
     false,
     true},
    {"a second stream that waits after its first work",
     2,
     {Flaw::reuse},
     Mutation::second_orders_late,
     FreeSync::never,
     Knowledge::clock,
     false,
     true},
    {"a third stream that need not wait for the second one's wait",
     2,
     {Flaw::reuse},
     Mutation::second_told_early,
     FreeSync::never,
     Knowledge::clock,
     false,
     true},
    {"a free that counts on one stream while a second one begins",
     2,
     {Flaw::reuse},
     Mutation::second_told_late,
     FreeSync::never,
     Knowledge::clock,
     false,
     true},
    {"a second stream that waits for more than the frees",
     2,
     {Flaw::late},
     Mutation::second_orders_everything,
     FreeSync::never,
     Knowledge::clock,
     false,
     true},
    {"a second stream that begins in a capture",
     2,
     {Flaw::books},
     Mutation::second_in_capture,
     FreeSync::never,
     Knowledge::clock,
     true,
     true},
    {"an older free's fence in place of a newer one's",
     2,
     {Flaw::reuse},
     Mutation::older_fence_ordered,
     FreeSync::automatic,
     Knowledge::exact,
     false,
     true,
     false},
    {"two streams taken for one",
     2,
     {Flaw::reuse},
     Mutation::streams_confused,
     FreeSync::never,
     Knowledge::clock,
     false,
     true},
    {"a destroyed stream's handle taken for it",
     2,
     {Flaw::reuse},
     Mutation::destroyed_stays_known,
     FreeSync::never,
     Knowledge::clock,
     false,
     true},
    {"a stream that is ignored",
     2,
     {Flaw::reuse},
     Mutation::one_stream_unseen,
     FreeSync::never,
     Knowledge::clock,
     false,
     true},
    {"a free that promises and does not wait for the one stream",
     2,
     {Flaw::promise},
     Mutation::one_stream_is_idle,
     FreeSync::automatic,
     Knowledge::clock,
     false,
     true},
};

}  // namespace

TEST_CASE("every broken rule of the fence protocol is found") {
    for (const Broken& broken : all_broken) {
        CAPTURE(broken.name);
        Setting setting;
        setting.sync = broken.sync;
        setting.knowledge = broken.knowledge;
        setting.blocks = broken.blocks;
        setting.live = broken.blocks;
        setting.captures = broken.captures;
        setting.one_stream = broken.one_stream;
        setting.relies = broken.relies;
        REQUIRE(explore(setting, usual_depth - 1).story == sound);
        setting.mutation = broken.mutation;
        const Exploration found = explore(setting, 8);
        CAPTURE(found.story);
        CHECK(std::count(broken.flaws.begin(), broken.flaws.end(), found.flaw) == 1);
    }
}

TEST_CASE("a device that breaks a rule of memory on its way is found") {
    for (const auto& [mutation, flaw] : {std::pair{Mutation::unmapping_forgotten, Flaw::stuck},
                                         std::pair{Mutation::full_for_long, Flaw::answer}}) {
        Setting setting = settings_on_way().back();
        setting.live = 1;
        REQUIRE(explore(setting, usual_depth).story == sound);
        setting.mutation = mutation;
        const Exploration found = explore(setting, 8);
        CAPTURE(found.story);
        CHECK(found.flaw == flaw);
    }
}

// Justifies visiting equal states once: without that, the same states are found.
TEST_CASE("states that look the same lead to the same states") {
    const unsigned depth = thoroughly(full_merge_depth, usual_merge_depth);
    for (const std::size_t live : {1, 3}) {
        std::vector<Setting> all = settings(live);
        Setting one_stream;
        one_stream.live = live;
        one_stream.one_stream = true;
        all.push_back(one_stream);
        for (Setting& each : all) {
            each.captures = true;
        }
        for (Setting each : settings_on_way()) {
            each.live = live;
            all.push_back(each);
        }
        for (const Setting& each : all) {
            const std::vector<std::uint64_t> merged = reachable(each, depth, true);
            CAPTURE(describe(each));
            CHECK(merged.size() > 20);
            CHECK(merged == reachable(each, depth, false));
        }
    }
}

TEST_CASE("the fence protocol is safe and live in a small scope") {
    explore_all(static_cast<unsigned>(
        setting("MEMLAB_TEST_DEPTH", thoroughly(usual_depth + 1, usual_depth))));
}

TEST_CASE("others run while memory arrives and leaves") {
    const auto depth = static_cast<unsigned>(
        setting("MEMLAB_TEST_DEPTH", thoroughly(usual_depth + 2, usual_depth + 1)));
    for (const Layout layout : {Layout::own_segments, Layout::range, Layout::own_chunks}) {
        Sum sum;
        for (const Setting& each : settings_on_way()) {
            if (each.layout == layout) {
                sum.add(each, depth);
            }
        }
        sum.print("memory on its way", depth);
        std::printf(
            "  %llu calls while it arrived, %llu while it left, %llu times too late, %llu "
            "waits for the turn, %llu failures in turn\n",
            static_cast<unsigned long long>(sum.while_arriving),
            static_cast<unsigned long long>(sum.while_leaving),
            static_cast<unsigned long long>(sum.surpluses),
            static_cast<unsigned long long>(sum.waits_for_turn),
            static_cast<unsigned long long>(sum.failures_in_turn));
        CHECK(sum.while_arriving != 0);
        CHECK(sum.while_leaving != 0);
        CHECK(sum.surpluses != 0);
        CHECK(sum.waits_for_turn != 0);
        CHECK(sum.failures_in_turn != 0);
    }
}

TEST_CASE("the fence protocol is safe and live in its full scope", "[.full]") {
    explore_all(static_cast<unsigned>(setting("MEMLAB_TEST_DEPTH", 8)));
}

}  // namespace memlab::model_check
