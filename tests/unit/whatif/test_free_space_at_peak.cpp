// FreeSpaceAtPeak gives the free space at a snapshot that FreeRanges, which is always up to date,
// had then.
#include <map>
#include <vector>

#include "report/whatif/free_ranges.hpp"
#include "report/whatif/free_space_at_peak.hpp"
#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"

using namespace memlab;
using namespace memlab::test;
using namespace memlab::report::whatif;

namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t unit = 512;
constexpr std::uint64_t owner_range = std::uint64_t{1} << 40;

/// Applies random reservations and blocks of a few owners to both.
class Both {
  public:
    explicit Both(std::uint64_t seed) : random_(seed) {}

    void step() {
        switch (random_.below(8)) {
            case 0:
            case 1:
                reserve();
                break;
            case 2:
                release();
                break;
            case 3:
            case 4:
            case 5:
                allocate();
                break;
            default:
                free();
        }
    }

    void lose_owner() {
        const auto owner = static_cast<std::uint32_t>(random_.below(owners));
        for (std::size_t i = blocks_.size(); i > 0; --i) {
            if (blocks_[i - 1].owner == owner) {
                free(i - 1);
            }
        }
        tested_.release_all(owner);
        ranges_.erase(owner);
        reserved_.erase(owner);
    }

    void snapshot() {
        tested_.snapshot();
        expected_ = now();
    }

    void check() const {
        CHECK(tested_.free_space().largest == expected_.largest);
        CHECK(tested_.free_space().total == expected_.total);
    }

  private:
    static constexpr std::uint64_t owners = 3;
    static constexpr std::uint64_t pages = 64;

    struct InUse {
        std::uint32_t owner;
        std::uint64_t size;
        FreeSpaceAtPeak::Slot slot;
    };

    FreeSpace now() const {
        FreeSpace space;
        for (const auto& [owner, free] : ranges_) {
            space.largest = std::max(space.largest, free.largest());
            space.total += free.total();
        }
        return space;
    }

    /// Reserves one to four unreserved pages.
    void reserve() {
        const auto owner = static_cast<std::uint32_t>(random_.below(owners));
        const std::uint64_t first = random_.below(pages);
        const std::uint64_t count = 1 + random_.below(4);
        for (std::uint64_t i = first; i < first + count; ++i) {
            if (reserved_[owner][i]) {
                return;
            }
        }
        for (std::uint64_t i = first; i < first + count; ++i) {
            reserved_[owner][i] = true;
        }
        const std::uint64_t address = (owner + 1) * owner_range + first * page;
        tested_.reserve(owner, address, count * page);
        ranges_[owner].add(address, count * page);
    }

    /// Releases free pages, also of several reservations.
    void release() {
        const auto owner = static_cast<std::uint32_t>(random_.below(owners));
        const std::uint64_t first = random_.below(pages);
        const std::uint64_t count = 1 + random_.below(6);
        const std::uint64_t address = (owner + 1) * owner_range + first * page;
        if (!ranges_[owner].take_at(address, count * page)) {
            return;
        }
        for (std::uint64_t i = first; i < first + count; ++i) {
            reserved_[owner][i] = false;
        }
        tested_.release(owner, address, count * page);
    }

    void allocate() {
        const auto owner = static_cast<std::uint32_t>(random_.below(owners));
        const std::uint64_t size = unit * (1 + random_.below(12));
        std::uint64_t address = 0;
        if (ranges_[owner].take_best(size, &address)) {
            blocks_.push_back({owner, size, tested_.allocate(address, size)});
        }
    }

    void free() {
        if (!blocks_.empty()) {
            free(random_.below(blocks_.size()));
        }
    }

    void free(std::size_t index) {
        const InUse block = blocks_[index];
        ranges_[block.owner].add(tested_.address(block.slot), block.size);
        tested_.free(block.slot);
        blocks_[index] = blocks_.back();
        blocks_.pop_back();
    }

    Random random_;
    FreeSpaceAtPeak tested_;
    std::map<std::uint32_t, FreeRanges> ranges_;
    std::map<std::uint32_t, std::map<std::uint64_t, bool>> reserved_;
    std::vector<InUse> blocks_;
    FreeSpace expected_;
};

}  // namespace

TEST_CASE("the free space at the latest snapshot is found later") {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        INFO("seed " << seed);
        Both both(seed);
        both.check();  // no snapshot yet
        for (int round = 0; round < 20; ++round) {
            for (int i = 0; i < 60; ++i) {
                both.step();
            }
            both.snapshot();
            both.check();
            for (int i = 0; i < 150; ++i) {
                both.step();
                if (i % 50 == 49) {
                    both.check();
                }
            }
            if (round % 5 == 4) {
                both.lose_owner();
                both.check();
            }
        }
    }
}

TEST_CASE("free pieces that touch are one, across reservations of one owner") {
    FreeSpaceAtPeak space;
    space.reserve(1, 10 * page, page);
    space.reserve(1, 11 * page, page);
    const FreeSpaceAtPeak::Slot block = space.allocate(10 * page, unit);
    space.snapshot();
    space.free(block);
    space.release(1, 10 * page + unit, 2 * page - unit);
    CHECK(space.free_space().largest == 2 * page - unit);
    CHECK(space.free_space().total == 2 * page - unit);
}
