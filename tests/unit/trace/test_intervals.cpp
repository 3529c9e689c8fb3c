// Intervals of a running program against a model that looks at all live memory after each event.
#include "trace/aggregate/intervals.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "trace/aggregate/library_memory.hpp"

namespace memlab::test {
namespace {

constexpr std::uint32_t cache = DeviceInfo::suballocator_index(0, 0);
constexpr std::uint32_t stacks = 5;

/// Of nn.Modules' calls: the last two are of one.
constexpr std::uint32_t nn_module_stacks = 4;
constexpr std::uint32_t nn_module_of(std::uint32_t stack) {
    return std::min<std::uint32_t>(stack, nn_module_stacks - 1);
}

/// Has no call, only labels.
constexpr std::uint32_t labelled_nn_module = nn_module_stacks + 5;

using Held = std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>>;  ///< by site

/// A GPU with a cache that is seen from inside, and a second GPU.
class IntervalProgram {
  public:
    explicit IntervalProgram(std::uint64_t seed) : random_(seed) {
        aggregate.on(ProcessInfo{.pid = 1, .executable = "/bin/train"});
        aggregate.on(DeviceInfo{.index = 0, .total_bytes = 1 << 30});
        aggregate.on(DeviceInfo{.index = 1, .total_bytes = 1 << 30});
        aggregate.on(
            DeviceInfo{.index = cache, .total_bytes = 1 << 30, .allocator = "PyTorch", .gpu = 0});
        aggregate.on(ContextInfo{.id = 1, .device = 0, .primary = true});
        aggregate.on(ContextInfo{.id = 2, .device = 1, .primary = true});
        aggregate.on(StringDef{1, "PyTorch"});
        for (std::uint32_t stack = 1; stack <= nn_module_stacks; ++stack) {
            aggregate.on(NnModuleStackDef{stack, 0, nn_module_of(stack)});
        }
        aggregate.on(StringDef{2, "fc"});
        aggregate.on(StringDef{3, "fc.weight"});
        aggregate.on(StringDef{4, "head"});
        aggregate.on(StringDef{5, "Adam.head.weight.exp_avg"});
        aggregate.on(NnModuleName{1, 2, 0});
        aggregate.on(NnModuleName{labelled_nn_module, 4, 0});
        aggregate.on(ModuleDef{.id = 1, .path = "/cuda/lib/libcublas.so.13"});
        aggregate.on(ModuleDef{.id = 2, .path = "/torch/lib/libtorch_cuda.so"});
        for (std::uint32_t stack = 1; stack <= stacks; ++stack) {
            StackDef definition;
            definition.id = stack;
            definition.frames = {
                Frame{.module = stack <= 2 ? stack : 0, .address = stack, .python = 0}};
            aggregate.on(definition);
        }
    }

    void step() {
        ++now_;
        switch (random_.below(9)) {
            case 0:
            case 1:
                send(driver(EventType::alloc, false));
                break;
            case 2:
                send(driver(EventType::free_requested, false));
                break;
            case 3:
                add_segment(random_.one_in(2));
                break;
            case 4:
                send(inside(EventType::segment_free));
                send(driver(EventType::free_requested, true));
                break;
            case 5:
            case 6:
                send(inside(EventType::alloc));
                break;
            case 7:
                send(inside(EventType::free_requested));
                break;
            default:
                send(inside(EventType::free_completed));
                break;
        }
        for (int i = 0; i < 2; ++i) {
            Event label = random_.one_in(2) ? driver(EventType::label, random_.one_in(4))
                                            : inside(EventType::label);
            label.name = 3 + static_cast<std::uint32_t>(random_.below(3));
            label.requested = label.size = 0;
            aggregate.on(label);
            note_nn_modules();
        }
        if (random_.one_in(300)) {
            aggregate.on(ContextLost{.time_ns = now_, .context = 2});
            look();
        }
    }

    void begin(std::uint64_t id) {
        static constexpr IntervalFilter filters[] = {{},
                                                     {.gpu = 0},
                                                     {.gpu = 1},
                                                     {.kind = MemoryKind::pinned},
                                                     {.gpu = 1, .kind = MemoryKind::pinned}};
        const IntervalFilter& filter = filters[random_.below(std::size(filters))];
        REQUIRE(intervals.begin(id, filter));
        const Held held = held_now(filter);
        models_[id] = {.filter = filter,
                       .totals = {.begin_ns = aggregate.duration_ns(),
                                  .begin_bytes = sum(held),
                                  .peak_bytes = sum(held),
                                  .peak_time_ns = aggregate.duration_ns(),
                                  .begin_moment = aggregate.latest_serial(),
                                  .peak_moment = aggregate.latest_serial(),
                                  .at_peak = {},
                                  .nn_modules = {}},
                       .held = held,
                       .lived = live_now(filter),
                       .levels = {}};
    }

    void end(std::uint64_t id) {
        const std::size_t limit = 1 + random_.below(8);
        const IntervalTotals* const got = intervals.end(id, limit);
        REQUIRE(got != nullptr);
        const Model& model = models_.at(id);
        CHECK(got->begin_ns == model.totals.begin_ns);
        CHECK(got->end_ns == aggregate.duration_ns());
        CHECK(got->begin_bytes == model.totals.begin_bytes);
        CHECK(got->end_bytes == sum(held_now(model.filter)));
        CHECK(got->peak_bytes == model.totals.peak_bytes);
        CHECK(got->peak_time_ns == model.totals.peak_time_ns);
        CHECK(got->begin_moment == model.totals.begin_moment);
        CHECK(got->peak_moment == model.totals.peak_moment);
        CHECK(got->end_moment == aggregate.latest_serial());
        CHECK(got->begin_bytes + got->allocated_bytes == got->end_bytes + got->freed_bytes);
        check_libraries(*got, model);
        check_sites(got->at_peak, model.held, limit);
        Held nn_modules;
        std::uint64_t most = UINT64_MAX;
        for (const NnModuleHeld& held : got->nn_modules) {
            CHECK(held.bytes <= std::exchange(most, held.bytes));
            nn_modules[held.nn_module] = {held.count, held.bytes};
        }
        CHECK(nn_modules == nn_modules_of(model.lived));
        labelled += nn_modules.contains(labelled_nn_module) ? 1 : 0;
        CHECK(nn_modules.size() == got->nn_modules.size());
        // It has ended: what comes later does not change it.
        const std::uint64_t end_bytes = got->end_bytes;
        send(driver(EventType::alloc, false));
        CHECK(intervals.end(id, limit)->end_bytes == end_bytes);
        intervals.forget(id);
        CHECK(intervals.end(id, limit) == nullptr);
        models_.erase(id);
    }

    /// Moments are between steps, which have times of their own.
    void note_moment() { moments_.emplace_back(aggregate.latest_serial(), now_); }

    void check_made_between() {
        std::vector<std::uint64_t> moments;
        std::vector<std::pair<std::uint64_t, std::uint64_t>> times;
        for (std::size_t i = 0; i + 1 < moments_.size(); ++i) {
            if (random_.one_in(3)) {
                moments.insert(moments.end(), {moments_[i].first, moments_[i + 1].first});
                times.emplace_back(moments_[i].second, moments_[i + 1].second);
            }
        }
        const std::size_t limit = 1 + random_.below(8);
        const auto got = intervals.made_between(moments, limit);
        REQUIRE(got);
        const Held expected = held_now({}, [&](const Live& live) {
            return std::any_of(times.begin(), times.end(), [&](const auto& time) {
                return time.first < live.time_ns && live.time_ns <= time.second;
            });
        });
        CHECK(got->peak_bytes == sum(expected));
        check_sites(got->at_peak, expected, limit);
    }

    bool open(std::uint64_t id) const { return models_.contains(id); }

    Aggregator aggregate;
    Intervals intervals{aggregate};

    std::size_t labelled = 0;  ///< intervals with something of labelled_nn_module

  private:
    using Sizes = std::map<std::uint64_t, std::uint64_t>;  // by Live::serial

    struct Model {
        IntervalFilter filter;
        IntervalTotals totals;
        Held held;    ///< at the peak
        Sizes lived;  ///< the same
        std::vector<std::pair<std::uint64_t, std::uint64_t>>
            levels;  ///< after each event, and moments
    };

    /// At each moment the level without the libraries' blocks that are there now.
    void check_libraries(const IntervalTotals& got, const Model& model) const {
        std::map<std::uint64_t, std::uint64_t> kept;  // bytes, by moment
        aggregate.live().for_each([&](std::uint32_t, const Live& live) {
            const Site& site = aggregate.sites()[live.site];
            const bool of_library =
                site.stack == 1 || (site.stack == 2 && (site.kind == MemoryKind::suballocation ||
                                                        site.kind == MemoryKind::pinned));
            if (of_library && takes(model.filter, live) && live.serial > got.begin_moment) {
                kept[live.serial] = live.size;
            }
        });
        std::uint64_t most = got.begin_bytes;
        for (const auto& [level, moment] : model.levels) {
            std::uint64_t without = level;
            for (const auto& [serial, size] : kept) {
                without -= serial <= moment ? size : 0;
            }
            most = std::max(most, without);
        }
        CHECK(got.own_growth_bytes == most - got.begin_bytes);
        CHECK(got.library_count == kept.size());
        std::uint64_t bytes = 0;
        for (const auto& [serial, size] : kept) {
            bytes += size;
        }
        CHECK(got.library_bytes == bytes);
    }

    static std::uint64_t sum(const Held& held) {
        std::uint64_t bytes = 0;
        for (const auto& [site, each] : held) {
            bytes += each.second;
        }
        return bytes;
    }

    static void check_sites(const Composition& got, const Held& expected, std::size_t limit) {
        CHECK(got.bytes == sum(expected));
        CHECK(got.sites.size() == std::min(limit, expected.size()));
        CHECK(got.sites.size() + got.other_sites == expected.size());
        std::uint64_t listed = got.other_bytes;
        for (const Holder& holder : got.sites) {
            REQUIRE(expected.contains(holder.site));
            CHECK(holder.count == expected.at(holder.site).first);
            CHECK(holder.bytes == expected.at(holder.site).second);
            listed += holder.bytes;
        }
        CHECK(listed == got.bytes);
    }

    bool takes(const IntervalFilter& filter, const Live& live) const {
        const Site& site = aggregate.sites()[live.site];
        const std::uint32_t gpu = site.device == cache ? 0 : site.device;
        return !live.pending && !live.is_segment && gpu == filter.gpu.value_or(gpu) &&
               (filter.kind ? site.kind == *filter.kind : counts_as_device_memory(site.kind));
    }

    template <typename Which = bool (*)(const Live&)>
    Held held_now(
        const IntervalFilter& filter, Which which = [](const Live&) { return true; }) const {
        Held held;
        aggregate.live().for_each([&](std::uint32_t, const Live& live) {
            if (takes(filter, live) && which(live)) {
                ++held[live.site].first;
                held[live.site].second += live.size;
            }
        });
        return held;
    }

    Sizes live_now(const IntervalFilter& filter) const {
        Sizes sizes;
        aggregate.live().for_each([&](std::uint32_t, const Live& live) {
            if (takes(filter, live)) {
                sizes[live.serial] = live.size;
            }
        });
        return sizes;
    }
    /// By number; what a label says later was so before.
    Held nn_modules_of(const Sizes& sizes) const {
        Held held;
        for (const auto& [serial, size] : sizes) {
            if (const auto at = nn_modules_.find(serial); at != nn_modules_.end()) {
                auto& [count, bytes] = held[at->second];
                ++count;
                bytes += size;
            }
        }
        return held;
    }
    void note_nn_modules() {
        const NnModuleStats& stats = aggregate.nn_modules();
        aggregate.live().for_each([&](std::uint32_t, const Live& live) {
            nn_modules_.erase(live.serial);
            if (live.nn_modules != 0) {
                const NnModuleHolding& holding = stats.holdings()[live.nn_modules - 1];
                nn_modules_[live.serial] = stats.holders()[holding.holder - 1].nn_module;
            }
        });
    }

    void look() {
        note_nn_modules();
        CHECK(sum(held_now({})) == aggregate.total_allocated());
        for (auto& [id, model] : models_) {
            const Held held = held_now(model.filter);
            model.levels.emplace_back(sum(held), aggregate.latest_serial());
            if (sum(held) > model.totals.peak_bytes) {
                model.totals.peak_bytes = sum(held);
                model.totals.peak_time_ns = aggregate.duration_ns();
                model.totals.peak_moment = aggregate.latest_serial();
                model.held = held;
                model.lived = live_now(model.filter);
            }
        }
    }

    void send(Event event) {
        if (event.type == EventType::alloc) {
            event.nn_modules = static_cast<std::uint32_t>(random_.below(nn_module_stacks + 1));
        }
        aggregate.on(event);
        look();
    }

    /// `segment`: in the range where the cache's segments are.
    Event driver(EventType type, bool segment) {
        const auto device = static_cast<std::uint32_t>(segment ? 0 : random_.below(2));
        const std::uint64_t size = 256 * (1 + random_.below(64));
        return {.type = type,
                .kind = segment || random_.below(8) != 0 ? MemoryKind::device : MemoryKind::pinned,
                .device = device,
                .context = device + 1,
                .thread = 7,
                .stack = 1 + static_cast<std::uint32_t>(random_.below(stacks)),
                .time_ns = now_,
                .address = segment ? segment_of(random_.below(4))
                                   : 0x100000 * (1 + random_.below(20) + 20 * device),
                .requested = size,
                .size = size};
    }
    Event inside(EventType type) {
        const bool of_segment = type == EventType::segment_alloc || type == EventType::segment_free;
        const std::uint64_t segment = segment_of(random_.below(4));
        return {.type = type,
                .kind = MemoryKind::suballocation,
                .origin = Origin::pool,
                .device = cache,
                .context = 1,
                .thread = 7,
                .stack = 1 + static_cast<std::uint32_t>(random_.below(stacks)),
                .time_ns = now_,
                .address = of_segment ? segment : segment + 0x1000 * random_.below(8),
                .requested = 0x1000,
                .size = of_segment ? std::uint64_t{0x8000} : 0x1000};
    }
    /// `known`: at its allocation already.
    void add_segment(bool known) {
        Event segment = driver(EventType::alloc, true);
        segment.name = known ? 1 : 0;
        segment.requested = segment.size = 0x8000;
        send(segment);
        Event cut = inside(EventType::segment_alloc);
        cut.address = segment.address;
        send(cut);
    }
    static std::uint64_t segment_of(std::uint64_t index) { return 0x40000000 + 0x8000 * index; }

    Random random_;
    std::uint64_t now_ = 0;
    std::map<std::uint64_t, Model> models_;
    std::map<std::uint64_t, std::uint32_t> nn_modules_;             ///< by Live::serial
    std::vector<std::pair<std::uint64_t, std::uint64_t>> moments_;  ///< allocations, time
};

}  // namespace

TEST_CASE("intervals have the peak and who held it, whatever else is open") {
    const auto seed = GENERATE(range(1, 25));
    CAPTURE(seed);
    IntervalProgram program(static_cast<std::uint64_t>(seed));
    Random random(static_cast<std::uint64_t>(seed) + 1000);
    for (int i = 0; i < 600; ++i) {
        program.step();
        const std::uint64_t id = 1 + random.below(4);
        if (random.one_in(20)) {
            if (program.open(id)) {
                program.end(id);
            } else {
                program.begin(id);
            }
        }
    }
    CHECK(program.labelled > 0);
}

TEST_CASE("what was made between moments and is still there is known by call site") {
    const auto seed = GENERATE(range(1, 25));
    CAPTURE(seed);
    IntervalProgram program(static_cast<std::uint64_t>(seed));
    CHECK(program.intervals.made_between({}, 9)->peak_bytes == 0);
    for (int i = 0; i < 300; ++i) {
        program.step();
        if (i % 20 == 0) {
            program.note_moment();
            program.check_made_between();
        }
    }
}

TEST_CASE("an interval in which nothing happens has the level that it found") {
    IntervalProgram program(3);
    for (int i = 0; i < 100; ++i) {
        program.step();
    }
    program.begin(1);
    program.end(1);
}

TEST_CASE("what libraries take for themselves is told by the binaries of its call stack") {
    Aggregator aggregate;
    std::uint32_t id = 0;
    const auto kept = [&](MemoryKind kind, const std::vector<std::string>& names) {
        StackDef stack{.id = ++id};
        for (const std::string& name : names) {
            const auto module = static_cast<std::uint32_t>(aggregate.modules().size());
            aggregate.on(ModuleDef{.id = module, .path = "/packages/libcuda13/" + name});
            stack.frames.push_back({.module = module, .address = 1});
        }
        aggregate.on(PythonFrameDef{id, 0, 0, 1, 1});
        stack.frames.push_back({.module = 0, .address = 0, .python = id});
        aggregate.on(stack);
        Site site;
        site.stack = id;
        site.kind = kind;
        return is_taken_by_library(aggregate, site);
    };
    CHECK(kept(MemoryKind::device, {"libcudart.so.13", "libcublas.so.13", "libtorch_cuda.so"}));
    for (const char* const name : {"libcublasLt.so.13", "libcudnn_graph.so.9", "libnccl.so.2"}) {
        CHECK(kept(MemoryKind::device, {name, "libtorch_cpu.so"}));
    }
    for (const MemoryKind kind : {MemoryKind::suballocation, MemoryKind::pinned}) {
        CHECK(kept(kind, {"libc10_cuda.so", "libtorch_cuda.so", "libtorch_cpu.so"}));
        CHECK_FALSE(kept(kind, {"libc10_cuda.so", "libtorch_cpu.so", "libtorch_cuda.so"}));
    }
    CHECK_FALSE(kept(MemoryKind::device, {"libc10_cuda.so", "libtorch_cuda.so"}));
    CHECK_FALSE(kept(MemoryKind::device, {"libmine.so", "libcublas.so.13"}));
    CHECK_FALSE(kept(MemoryKind::device, {}));
}

TEST_CASE("intervals are bounded, and have one name each") {
    IntervalProgram program(4);
    CHECK(program.intervals.end(1, 9) == nullptr);
    for (std::uint64_t id = 1; id <= Intervals::max_intervals; ++id) {
        CHECK(program.intervals.begin(id));
    }
    CHECK_FALSE(program.intervals.begin(1000));
    program.intervals.forget(1);
    CHECK_FALSE(program.intervals.begin(2));
    CHECK(program.intervals.begin(1000));
    program.intervals.forget(7);
    program.step();
    CHECK(program.intervals.end(7, 9) == nullptr);
}

}  // namespace memlab::test
