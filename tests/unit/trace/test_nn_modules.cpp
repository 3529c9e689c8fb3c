// The memory of nn.Modules, against a list of all that lives.
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "trace/aggregate/aggregator.hpp"

using namespace memlab::test;
using namespace memlab::trace;

namespace {

/// What each holder had at each device's peak, by adding up all that lived then; what a label moves
/// later was the other's then, too.
class HeldAtPeaks final : public LiveObserver {
  public:
    explicit HeldAtPeaks(const Aggregator& aggregator) : aggregator_(aggregator) {}

    void allocated(std::uint32_t slot, const Live& live, const Event&) override {
        slots_[slot] = live.serial;
        living_[live.serial] = {holder(live.nn_modules), live.site, live.size};
        look();
    }
    void freed(std::uint32_t slot, const Live&, const LifeEnd&) override {
        living_.erase(slots_[slot]);
    }
    void moved(std::uint32_t, const Live& live, std::uint32_t to) override {
        ++moves;
        living_[live.serial].holder = holder(to);
        for (auto& [device, lived] : lived_) {
            if (const auto at = lived.find(live.serial); at != lived.end()) {
                at->second.holder = holder(to);
                ++moves_after_peak;
            }
        }
    }

    /// By holder and site: count and bytes.
    using Held =
        std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::uint64_t, std::uint64_t>>;
    Held held(std::uint32_t device) {
        Held held;
        for (const auto& [serial, one] : lived_[device]) {
            if (one.holder != 0) {
                auto& [count, bytes] = held[{one.holder, one.site}];
                ++count;
                bytes += one.size;
            }
        }
        return held;
    }

    std::size_t moves = 0;
    std::size_t moves_after_peak = 0;

  private:
    struct One {
        std::uint32_t holder = 0;
        std::uint32_t site = 0;
        std::uint64_t size = 0;
    };
    using Living = std::map<std::uint64_t, One>;  // by serial

    std::uint32_t holder(std::uint32_t number) const {
        return number == 0 ? 0 : aggregator_.nn_modules().holdings()[number - 1].holder;
    }

    void look() {
        for (std::uint32_t device = 0; device < aggregator_.devices().size(); ++device) {
            const std::uint64_t peak = aggregator_.devices()[device]->peak_number;
            if (std::exchange(peaks_[device], peak) != peak) {
                lived_[device] = living_;
                std::erase_if(lived_[device], [&](const auto& each) {
                    const Site& site = aggregator_.sites()[each.second.site];
                    return site.device != device || !counts_as_device_memory(site.kind);
                });
            }
        }
    }

    const Aggregator& aggregator_;
    std::map<std::uint32_t, std::uint64_t> slots_;
    Living living_;
    std::map<std::uint32_t, std::uint64_t> peaks_;
    std::map<std::uint32_t, Living> lived_;  ///< at the peak, by device
};

/// How many held something then.
std::size_t check_held_at_peaks(const Aggregator& aggregator, HeldAtPeaks& expected) {
    std::size_t some = 0;
    for (const NnModuleHolding& holding : aggregator.nn_modules().holdings()) {
        const HeldAtPeaks::Held held = expected.held(aggregator.sites()[holding.site].device);
        const auto at = held.find({holding.holder, holding.site});
        const Holder found = aggregator.held_at_peak(holding);
        CHECK(found.count == (at == held.end() ? 0 : at->second.first));
        CHECK(found.bytes == (at == held.end() ? 0 : at->second.second));
        CHECK(holding.live_count <= holding.count);
        some += found.count != 0 ? 1 : 0;
    }
    return some;
}

/// A device, a context, and nn.Modules "encoder" (called) and "encoder.0" (not called).
struct Labelled {
    Aggregator aggregator;
    std::uint64_t now = 0;
    std::uint32_t strings = 0;

    Labelled() {
        aggregator.on(DeviceInfo{0, "Some GPU", "GPU-0", std::uint64_t{80} << 30, 13000});
        aggregator.on(ContextInfo{1, 0, true});
        aggregator.on(NnModuleStackDef{1, 0, 7});
        name(7, "encoder");
        name(9, "encoder.0");
    }
    std::uint32_t text(const std::string& text) {
        aggregator.on(StringDef{++strings, text});
        return strings;
    }
    void name(std::uint32_t nn_module, const std::string& as) {
        aggregator.on(NnModuleName{nn_module, text(as), 0});
    }
    Event event(EventType type, std::uint64_t address) {
        Event event;
        event.type = type;
        event.time_ns = ++now;
        event.context = 1;
        event.address = address;
        return event;
    }
    void allocate(std::uint64_t address, std::uint64_t bytes, std::uint32_t stack = 0) {
        Event alloc = event(EventType::alloc, address);
        alloc.requested = alloc.size = bytes;
        alloc.nn_modules = stack;
        aggregator.on(alloc);
    }
    void label(std::uint64_t address, const std::string& as) {
        Event label = event(EventType::label, address);
        label.name = text(as);
        aggregator.on(label);
    }
    void free(std::uint64_t address) { aggregator.on(event(EventType::free_requested, address)); }

    /// By nn.Module, and 0 for the sum of what calls have: at the peak, and at the end.
    using Bytes = std::map<std::uint32_t, std::uint64_t>;
    Bytes bytes(bool at_peak) const {
        Bytes bytes;
        const NnModuleStats& stats = aggregator.nn_modules();
        for (const NnModuleHolding& each : stats.holdings()) {
            const NnModuleHolder& holder = stats.holders()[each.holder - 1];
            const std::uint64_t held =
                at_peak ? aggregator.held_at_peak(each).bytes : each.live_bytes;
            if (held != 0) {
                bytes[holder.stack == 0 ? holder.nn_module : 0] += held;
            }
        }
        return bytes;
    }
};

std::string owner(const std::string& label, const std::set<std::string>& known) {
    return nn_module_owner(label, [&](std::string_view name) {
        const bool is_known = known.contains(std::string(name));
        return !is_known ? "" : name.empty() ? "outermost" : std::string(name);
    });
}

}  // namespace

TEST_CASE("a label names the nn.Module that has the parameter") {
    const std::set<std::string> known = {"Net", "Net.layers.0", "Net.layers.0.fc", "Net.head"};
    CHECK(owner("Net.layers.0.fc.weight", known) == "Net.layers.0.fc");
    CHECK(owner("Net.layers.0.fc.weight.grad", known) == "Net.layers.0.fc");
    CHECK(owner("Adam.Net.layers.0.fc.weight.exp_avg", known) == "Net.layers.0.fc");
    CHECK(owner("Shampoo.Net.layers.0.fc.weight.factors.1", known) == "Net.layers.0.fc");
    CHECK(owner("Net.head.weight+Net.layers.0.fc.weight", known) == "Net.head");
    CHECK(owner("Net.head.weight+Net.layers.0.fc.weight.grad", known) == "Net.head");
    CHECK(owner("Adam.Net.head.weight+Net.layers.0.fc.weight.exp_avg", known) == "Net.head");
    CHECK(owner("Net.layers.1.fc.weight", known) == "Net");
    CHECK(owner("Net.scale", known) == "Net");
    for (const char* const other :
         {"", "Net", "scale", "Other.fc.weight", "ema.Net.head.weight", "+", ".", ".Net.x", "a.b.c",
          "Adam.scale.exp_avg", "Network.head.weight", "Adam", "batch 17"}) {
        CAPTURE(other);
        CHECK(owner(other, known).empty());
    }
}

TEST_CASE("the outermost nn.Module without a name has what is named like its parameters") {
    const std::set<std::string> known = {"", "fc"};
    for (const char* const own : {"weight", "weight.grad", "Adam.weight.exp_avg",
                                  "Adam.weight+fc.weight.exp_avg", "weight+fc.weight"}) {
        CAPTURE(own);
        CHECK(owner(own, known) == "outermost");
    }
    CHECK(owner("fc.weight", known) == "fc");
    CHECK(owner("Adam.fc.weight.exp_avg", known) == "fc");
    for (const char* const other : {"", "KV cache", "other.weight", "a.b.c", "7", "Adam.weight"}) {
        CAPTURE(other);
        CHECK(owner(other, known).empty());
    }
}

TEST_CASE("what no call allocated is that of the nn.Module that its label names") {
    Labelled run;
    run.allocate(0x1000, 100);
    run.label(0x1000, "encoder.0.weight");
    run.allocate(0x2000, 30);
    run.label(0x2000, "encoder.1.bias");
    run.allocate(0x3000, 7, 1);
    run.label(0x3000, "encoder.0.weight.grad");  // what a call allocated stays the call's
    run.allocate(0x4000, 5);
    run.label(0x4000, "batch");
    CHECK(run.bytes(true) == Labelled::Bytes{{0, 7}, {7, 30}, {9, 100}});
    CHECK(run.bytes(false) == run.bytes(true));
    CHECK(run.aggregator.composition_at_peak(0, 10).bytes == 142);
}

TEST_CASE("a label that is given after the peak was its nn.Module's at the peak") {
    Labelled run;
    run.allocate(0x1000, 100);
    run.allocate(0x2000, 50);
    run.free(0x2000);
    run.allocate(0x3000, 10);  // not there at the peak
    run.label(0x1000, "Adam.encoder.0.weight.exp_avg");
    run.label(0x1000, "Adam.encoder.0.weight.exp_avg");  // the same once more
    run.label(0x3000, "encoder.0.bias");
    CHECK(run.bytes(true) == Labelled::Bytes{{9, 100}});
    CHECK(run.bytes(false) == Labelled::Bytes{{9, 110}});
    run.label(0x1000, "encoder.weight");  // the latest label counts
    CHECK(run.bytes(true) == Labelled::Bytes{{7, 100}});
    CHECK(run.bytes(false) == Labelled::Bytes{{7, 100}, {9, 10}});
    run.label(0x1000, "scratch");
    CHECK(run.bytes(true).empty());
}

TEST_CASE("what has a label and is freed before the peak is no nn.Module's at the peak") {
    Labelled run;
    run.allocate(0x1000, 100);
    run.label(0x1000, "encoder.0.weight");
    run.free(0x1000);
    run.allocate(0x1000, 300);
    CHECK(run.bytes(true).empty());
    CHECK(run.bytes(false).empty());
    run.label(0x1000, "encoder.0.weight");
    run.free(0x1000);
    CHECK(run.bytes(true) == Labelled::Bytes{{9, 300}});
    CHECK(run.bytes(false).empty());
}

TEST_CASE("the memory of nn.Modules at the peak is what they had then") {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        CAPTURE(seed);
        Aggregator aggregator;
        HeldAtPeaks expected(aggregator);
        aggregator.set_observer(&expected);
        feed(PlausibleRecords::make(seed, 4000), aggregator);
        const NnModuleStats& stats = aggregator.nn_modules();
        CHECK(stats.stacks().size() == 5);
        CHECK(stats.name_of(3)->name == 4);
        CHECK(check_held_at_peaks(aggregator, expected) > 5);
    }
}

TEST_CASE("labels at any time move what was held at the peak") {
    std::size_t moves_after_peak = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        CAPTURE(seed);
        Labelled run;
        HeldAtPeaks expected(run.aggregator);
        run.aggregator.set_observer(&expected);
        Random random(seed);
        std::set<std::uint64_t> there;
        constexpr const char* labels[] = {"encoder.0.weight", "encoder.weight", "batch",
                                          "Adam.encoder.0.weight.exp_avg", "other.0.weight"};
        for (int i = 0; i < 500; ++i) {
            const std::uint64_t address = 0x1000 * (1 + random.below(20));
            if (there.contains(address) && random.one_in(3)) {
                run.free(address);
                there.erase(address);
            } else if (there.insert(address).second) {
                run.allocate(address, 1 + random.below(100), random.one_in(3) ? 1 : 0);
            } else {
                run.label(address, labels[random.below(std::size(labels))]);
            }
        }
        check_held_at_peaks(run.aggregator, expected);
        moves_after_peak += expected.moves_after_peak;
        CHECK(expected.moves > 20);
    }
    CHECK(moves_after_peak > 20);
}
