// Scopes against the naive model on random programs, and at their limits.
#include "trace/aggregate/scopes.hpp"

#include <map>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "tests/unit/trace/scopes_model.hpp"
#include "trace/aggregate/aggregator.hpp"

namespace memlab::test {
namespace {

/// A random program of threads that allocate, free, and open and close scopes in and out of order.
class Program {
  public:
    explicit Program(std::uint64_t seed) : random_(seed) {}

    void step() {
        now_ += random_.below(100);
        const auto thread = static_cast<std::uint32_t>(1 + random_.below(3));
        switch (random_.below(10)) {
            case 0:
            case 1:
                begin(thread);
                break;
            case 2:
            case 3:
                end(thread);
                break;
            case 4:
            case 5:
            case 6:
                allocate(thread);
                break;
            default:
                release(thread);
                break;
        }
        CHECK(figures.any_open() == (figures.open_count() != 0));
    }

    void check() {
        check_scopes(figures.totals(now_), model, now_);
        CHECK(figures.unbalanced().ends_without_begin == model.unbalanced.ends_without_begin);
        CHECK(figures.unbalanced().ended_with_thread == model.unbalanced.ended_with_thread);
        CHECK(figures.unbalanced().too_many_open == 0);
    }

    ScopeStats figures;
    ScopesModel model;

  private:
    void begin(std::uint32_t thread) {
        static const std::vector<std::string> names = {"", "forward", "backward", "layer", "copy"};
        Event event;
        event.thread = thread;
        event.time_ns = now_;
        event.name = static_cast<std::uint32_t>(random_.below(names.size()));
        event.requested = random_.below(2);
        if (random_.one_in(4)) {
            event.address = ++ranges_;
            open_ranges_.push_back(ranges_);
        } else if (depth_[thread] == 8) {
            return;
        } else {
            ++depth_[thread];
        }
        figures.begin({event.thread, event.requested, event.address}, event.name, names[event.name],
                      now_, level_, serial_);
        model.begin(event, names[event.name], level_);
    }

    void end(std::uint32_t thread) {
        Event event;
        event.thread = thread;
        event.time_ns = now_;
        event.requested = random_.below(2);
        if (random_.one_in(40)) {
            event.stream = ended_with_thread;
            figures.end_thread(thread, now_);
            model.end(event);
            depth_[thread] = 0;
            return;
        }
        if (random_.one_in(4)) {
            event.address = open_ranges_.empty() || random_.one_in(10) ? 1000000 + random_.below(5)
                                                                       : random_.pick(open_ranges_);
            std::erase(open_ranges_, event.address);
        }
        const std::uint64_t before = model.unbalanced.ends_without_begin;
        const bool happened =
            figures.end({event.thread, event.requested, event.address}, now_).happened;
        model.end(event);
        CHECK(happened == (model.unbalanced.ends_without_begin == before));
        depth_[thread] -= event.address == 0 && happened ? 1 : 0;
    }

    void allocate(std::uint32_t thread) {
        const Block block{++serial_, static_cast<std::uint32_t>(random_.below(40)),
                          random_.below(10000), 0};
        blocks_.push_back(block);
        level_ += block.bytes;
        if (figures.any_open()) {
            blocks_.back().owner = figures.allocated(thread, block.site, block.bytes);
        }
        model.allocated(block.serial, thread, block.site, block.bytes, level_);
    }

    void release(std::uint32_t thread) {
        if (blocks_.empty()) {
            return;
        }
        // The youngest as often as any.
        const std::size_t index =
            random_.one_in(2) ? blocks_.size() - 1 : random_.below(blocks_.size());
        const Block block = blocks_[index];
        blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(index));
        level_ -= block.bytes;
        const auto freeing = random_.one_in(10) ? std::nullopt : std::optional(thread);
        if (figures.any_open()) {
            figures.freed(freeing, block.owner, block.site, block.bytes, block.serial);
        }
        model.freed(block.serial, freeing);
    }

    struct Block {
        std::uint64_t serial = 0;
        std::uint32_t site = 0;
        std::uint64_t bytes = 0;
        std::uint32_t owner = 0;
    };

    Random random_;
    std::uint64_t now_ = 0;
    std::uint64_t level_ = 0;
    std::uint64_t serial_ = 0;
    std::uint64_t ranges_ = 0;
    std::vector<std::uint64_t> open_ranges_;
    std::map<std::uint32_t, int> depth_;
    std::vector<Block> blocks_;
};

/// One thread, one name after the other.
class OneThread {
  public:
    void begin(const std::string& name, std::uint32_t id, std::uint64_t range = 0) {
        figures.begin({.thread = 1, .domain = 0, .range = range}, id, name, ++now, level, serial);
    }
    bool end(std::uint64_t range = 0) {
        return figures.end({.thread = 1, .domain = 0, .range = range}, ++now).happened;
    }
    void allocate(std::uint32_t site, std::uint64_t bytes) {
        ++serial;
        level += bytes;
        if (figures.any_open()) {
            figures.allocated(1, site, bytes);
        }
    }

    ScopeStats figures;
    std::uint64_t now = 0;
    std::uint64_t level = 0;
    std::uint64_t serial = 0;
};

}  // namespace

TEST_CASE("scopes agree with the obvious model, at every moment") {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        CAPTURE(seed);
        Program program(seed);
        for (int i = 0; i < 400; ++i) {
            program.step();
            if (i % 50 == 0) {
                program.check();
            }
        }
        program.check();
    }
}

TEST_CASE("numbered names are rows of their own until there are too many") {
    OneThread thread;
    constexpr std::uint32_t steps = 1000;
    for (std::uint32_t step = 1; step <= steps; ++step) {
        thread.begin("step " + std::to_string(step), step);
        thread.begin("forward", steps + 1);
        thread.allocate(7, 10);
        thread.end();
        thread.begin("layer " + std::to_string(step % 3), steps + 2 + step % 3);
        thread.end();
        thread.end();
        if (step == ScopeStats::max_variants) {
            CHECK(by_path(thread.figures.totals(0)).count({"step 1", "forward"}) == 1);
        }
    }
    const auto rows = by_path(thread.figures.totals(thread.now));
    CHECK(rows.size() == 1 + 1 + 3);
    REQUIRE(rows.count({"step #"}) == 1);
    REQUIRE(rows.count({"step #", "forward"}) == 1);
    CHECK(rows.at({"step #"}).entries == steps);
    CHECK(rows.at({"step #"}).escaped_bytes == 10 * steps);
    CHECK(rows.at({"step #", "forward"}).allocated_count == steps);
    REQUIRE(rows.at({"step #", "forward"}).escaped_from.size() == 1);
    CHECK(rows.at({"step #", "forward"}).escaped_from[0].count == steps);
    CHECK(rows.at({"step #", "layer 1"}).entries == 334);
}

TEST_CASE("a row of numbered names may be merged while one of them is open") {
    OneThread thread;
    thread.begin("epoch 0", 1);
    for (std::uint32_t i = 0; i < 200; ++i) {
        thread.begin("step " + std::to_string(i), 10 + i);
        thread.allocate(1, 1);
        thread.begin("inner " + std::to_string(i), 1000 + i);
        for (std::uint32_t deep = 0; deep < 3; ++deep) {
            thread.begin("deep", 9);
            thread.end();
        }
        if (i % 2 == 0) {
            thread.end();
        }
    }
    const auto rows = by_path(thread.figures.totals(thread.now));
    std::uint64_t entries = 0;
    for (const auto& [path, row] : rows) {
        entries += row.entries;
    }
    // The 101st open step is at the maximum depth: max_depth of them are tracked.
    CHECK(thread.figures.unbalanced().too_many_open + entries == 1 + 200 * 5);
    CHECK(thread.figures.open_count() == ScopeStats::max_depth);
}

TEST_CASE("the table of scopes, the depth and the open ranges are bounded") {
    OneThread thread;
    for (std::uint32_t i = 0; i < 2 * ScopeStats::max_scopes; ++i) {
        std::string name;  // without digits, so that nothing folds
        for (std::uint32_t rest = i + 1; rest != 0; rest /= 26) {
            name += static_cast<char>('a' + rest % 26);
        }
        thread.begin(name, i + 1);
        thread.allocate(i, 5);
        REQUIRE(thread.end());
    }
    const std::vector<ScopeTotals> rows = thread.figures.totals(thread.now);
    CHECK(rows.size() == ScopeStats::max_scopes);
    CHECK(rows.back().name == "(other scopes)");
    std::uint64_t entries = 0;
    std::uint64_t escaped = 0;
    for (const ScopeTotals& row : rows) {
        entries += row.entries;
        escaped += row.escaped_bytes;
        CHECK(row.escaped_from.size() <= ScopeStats::max_sites);
    }
    CHECK(entries == 2 * ScopeStats::max_scopes);
    CHECK(escaped == 5 * entries);
    CHECK(rows.back().escaped_from.size() == ScopeStats::max_sites);

    OneThread ranges;
    constexpr std::uint64_t more = ScopeStats::max_ranges + 10;
    for (std::uint64_t range = 1; range <= more; ++range) {
        ranges.begin("range", 1, range);
    }
    CHECK(ranges.figures.open_count() == ScopeStats::max_ranges);
    for (std::uint64_t range = 1; range <= more; ++range) {
        CHECK(ranges.end(range) == (range <= ScopeStats::max_ranges));
    }
    CHECK(ranges.figures.unbalanced().too_many_open == 10);
    CHECK(ranges.figures.unbalanced().ends_without_begin == 0);
    CHECK_FALSE(ranges.end(1));
    CHECK(ranges.figures.unbalanced().ends_without_begin == 1);

    OneThread deep;
    for (std::size_t i = 0; i < 2 * ScopeStats::max_depth; ++i) {
        deep.begin("deep", 1);
    }
    std::size_t ended = 0;
    for (std::size_t i = 0; i < 2 * ScopeStats::max_depth; ++i) {
        ended += deep.end() ? 1 : 0;
    }
    CHECK(ended == ScopeStats::max_depth);
    CHECK_FALSE(deep.figures.any_open());
    CHECK(deep.figures.unbalanced().ends_without_begin == 0);
}

TEST_CASE("what each open scope saw is found in one pass") {
    // A walk for each of them would take minutes.
    constexpr std::uint32_t threads = 200'000;
    ScopeStats figures;
    std::uint64_t level = 0;
    for (std::uint32_t thread = 1; thread <= threads; ++thread) {
        figures.begin({.thread = thread}, 1, "step", thread, level, thread);
        figures.allocated(thread, 0, 10);
        level += 10;
    }
    const std::vector<ScopeTotals> totals = figures.totals(threads + 1);
    REQUIRE(totals.size() == 1);
    CHECK(totals[0].open == threads);
    CHECK(totals[0].peak_bytes == level);
    CHECK(totals[0].peak_growth_bytes == level);  // of the first
}

TEST_CASE("the outermost scopes that repeat are steps") {
    OneThread thread;
    const auto ended = [&thread] {
        return thread.figures.end({.thread = 1, .domain = 0, .range = 0}, ++thread.now);
    };
    thread.begin("train", 1);
    thread.begin("step 1", 2);
    thread.begin("forward", 3);
    CHECK(ended().outermost);  // nothing repeats so far
    const ScopeStats::Ended first = ended();
    CHECK(first.outermost);
    thread.begin("step 2", 4);
    thread.begin("forward", 3);
    CHECK(ended().outermost);
    const ScopeStats::Ended second = ended();
    CHECK(second.outermost);
    CHECK(second.path == first.path);
    CHECK(thread.figures.path_text(first.path) == "train/step #");
    thread.begin("step 2", 4);
    thread.begin("forward", 3);
    CHECK_FALSE(ended().outermost);
}

}  // namespace memlab::test
