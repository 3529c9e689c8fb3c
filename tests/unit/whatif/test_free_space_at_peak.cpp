// PastSpace answers for a moment of the past what FreeRanges, which keeps everything in order all
// along, knew at that moment.
#include <map>
#include <vector>

#include "report/whatif/free_ranges.hpp"
#include "report/whatif/free_space_at_peak.hpp"
#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"

using namespace memlab;
using namespace memlab::test;
using namespace memlab::whatif;

namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t unit = 512;
constexpr std::uint64_t room_of_owner = std::uint64_t{1} << 40;

/// The same reservations and blocks for both: pages of a few owners, of which some are reserved.
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
                take();
                break;
            default:
                give_back();
        }
    }

    void lose_an_owner() {
        const auto owner = static_cast<std::uint32_t>(random_.below(owners));
        for (std::size_t i = blocks_.size(); i > 0; --i) {
            if (blocks_[i - 1].owner == owner) {
                give_back(i - 1);
            }
        }
        past_.release_all(owner);
        free_.erase(owner);
        reserved_.erase(owner);
    }

    void remember() {
        past_.remember();
        remembered_ = now();
    }

    void check() const {
        CHECK(past_.then().largest == remembered_.largest);
        CHECK(past_.then().total == remembered_.total);
    }

  private:
    static constexpr std::uint64_t owners = 3;
    static constexpr std::uint64_t pages = 64;

    struct InUse {
        std::uint32_t owner;
        std::uint64_t size;
        PastSpace::Place place;
    };

    FreeSpace now() const {
        FreeSpace space;
        for (const auto& [owner, free] : free_) {
            space.largest = std::max(space.largest, free.largest());
            space.total += free.total();
        }
        return space;
    }

    /// One to four pages, none of which is reserved or holds a block.
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
        const std::uint64_t address = (owner + 1) * room_of_owner + first * page;
        past_.reserve(owner, address, count * page);
        free_[owner].add(address, count * page);
    }

    /// Free pages, whichever calls reserved them.
    void release() {
        const auto owner = static_cast<std::uint32_t>(random_.below(owners));
        const std::uint64_t first = random_.below(pages);
        const std::uint64_t count = 1 + random_.below(6);
        const std::uint64_t address = (owner + 1) * room_of_owner + first * page;
        if (!free_[owner].take_at(address, count * page)) {
            return;
        }
        for (std::uint64_t i = first; i < first + count; ++i) {
            reserved_[owner][i] = false;
        }
        past_.release(owner, address, count * page);
    }

    void take() {
        const auto owner = static_cast<std::uint32_t>(random_.below(owners));
        const std::uint64_t size = unit * (1 + random_.below(12));
        std::uint64_t address = 0;
        if (free_[owner].take_best(size, &address)) {
            blocks_.push_back({owner, size, past_.take(address, size)});
        }
    }

    void give_back() {
        if (!blocks_.empty()) {
            give_back(random_.below(blocks_.size()));
        }
    }

    void give_back(std::size_t index) {
        const InUse block = blocks_[index];
        free_[block.owner].add(past_.address(block.place), block.size);
        past_.give_back(block.place);
        blocks_[index] = blocks_.back();
        blocks_.pop_back();
    }

    Random random_;
    PastSpace past_;
    std::map<std::uint32_t, FreeRanges> free_;
    std::map<std::uint32_t, std::map<std::uint64_t, bool>> reserved_;
    std::vector<InUse> blocks_;
    FreeSpace remembered_;
};

}  // namespace

TEST_CASE("what was free at the last moment that counted is found afterwards") {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        INFO("seed " << seed);
        Both both(seed);
        both.check();  // no moment yet
        for (int moment = 0; moment < 20; ++moment) {
            for (int i = 0; i < 60; ++i) {
                both.step();
            }
            both.remember();
            both.check();
            for (int i = 0; i < 150; ++i) {
                both.step();
                if (i % 50 == 49) {
                    both.check();
                }
            }
            if (moment % 5 == 4) {
                both.lose_an_owner();
                both.check();
            }
        }
    }
}

TEST_CASE("free pieces that touch are one, across reservations of one owner") {
    PastSpace past;
    past.reserve(1, 10 * page, page);
    past.reserve(1, 11 * page, page);
    const PastSpace::Place block = past.take(10 * page, unit);
    past.remember();
    past.give_back(block);
    past.release(1, 10 * page + unit, 2 * page - unit);
    CHECK(past.then().largest == 2 * page - unit);
    CHECK(past.then().total == 2 * page - unit);
}
