// The memory of nn.Modules, against a list of all that lives.
#include <cstdint>
#include <map>
#include <utility>

#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "trace/aggregate/aggregator.hpp"

using namespace memlab::test;
using namespace memlab::trace;

namespace {

/// What each stack of nn.Modules held at each device's peak, by adding up all that lived then.
class HeldAtPeaks final : public LiveObserver {
  public:
    explicit HeldAtPeaks(const Aggregator& aggregator) : aggregator_(aggregator) {}

    void allocated(std::uint32_t slot, const Live& live, const Event& by) override {
        living_[slot] = {by.nn_modules, live.site, live.size};
        look();
    }
    void freed(std::uint32_t slot, const Live&, const LifeEnd&) override { living_.erase(slot); }

    /// By device, stack and site: count and bytes.
    using Held =
        std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::uint64_t, std::uint64_t>>;
    Held held(std::uint32_t device) { return held_[device]; }

  private:
    struct One {
        std::uint32_t stack = 0;
        std::uint32_t site = 0;
        std::uint64_t size = 0;
    };

    void look() {
        for (std::uint32_t device = 0; device < aggregator_.devices().size(); ++device) {
            const std::uint64_t peak = aggregator_.devices()[device]->peak_number;
            if (std::exchange(peaks_[device], peak) != peak) {
                Held& held = held_[device];
                held.clear();
                for (const auto& [slot, one] : living_) {
                    const Site& site = aggregator_.sites()[one.site];
                    if (one.stack != 0 && site.device == device &&
                        counts_as_device_memory(site.kind)) {
                        auto& [count, bytes] = held[{one.stack, one.site}];
                        ++count;
                        bytes += one.size;
                    }
                }
            }
        }
    }

    const Aggregator& aggregator_;
    std::map<std::uint32_t, One> living_;  ///< by slot
    std::map<std::uint32_t, std::uint64_t> peaks_;
    std::map<std::uint32_t, Held> held_;
};

}  // namespace

TEST_CASE("the memory of nn.Modules at the peak is what their calls had allocated then") {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        CAPTURE(seed);
        Aggregator aggregator;
        HeldAtPeaks expected(aggregator);
        aggregator.set_observer(&expected);
        feed(PlausibleRecords::make(seed, 4000), aggregator);
        const NnModuleStats& stats = aggregator.nn_modules();
        CHECK(stats.stacks().size() == 5);
        CHECK(stats.names().at(3).name == 4);
        std::size_t some = 0;
        for (const NnModuleHolding& holding : stats.holdings()) {
            const HeldAtPeaks::Held held = expected.held(aggregator.sites()[holding.site].device);
            const auto at = held.find({holding.stack, holding.site});
            const Holder found = aggregator.held_at_peak(holding);
            CHECK(found.count == (at == held.end() ? 0 : at->second.first));
            CHECK(found.bytes == (at == held.end() ? 0 : at->second.second));
            CHECK(holding.live_count <= holding.count);
            some += found.count != 0 ? 1 : 0;
        }
        CHECK(some > 5);
    }
}
