// The orders of free blocks and the index by address, against the standard library's containers.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "allocator/block_index.hpp"
#include "allocator/ordered_blocks.hpp"
#include "allocator/page_set.hpp"
#include "tests/unit/allocator/fixture.hpp"
#include "tests/unit/allocator/random.hpp"

namespace memlab::allocator::testing {

namespace {

struct BySize {
    static std::uint64_t of(const Block& block) { return block.size; }
    static TreeLinks& links(Block& block) { return block.idle.size_links; }
};

using Model = std::set<std::pair<std::uint64_t, Address>>;

/// Typical sizes: a few frequent ones, all magnitudes, and the boundaries of size classes.
std::uint64_t some_size(Random& random) {
    if (random.one_in(4)) {
        return 512 * (1 + random.below(4));
    }
    const std::uint64_t power = std::uint64_t{1} << random.below(55);
    return 512 * std::max<std::uint64_t>(1, power + random.below(3) - 1);
}

template <typename Order>
void compare(Order& order, std::uint64_t seed) {
    Random random(seed);
    std::vector<Block> blocks(300);
    std::vector<bool> in(blocks.size(), false);
    Model model;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        blocks[i] = Block{};
        blocks[i].address = 512 * (1 + i * 7 + random.below(7));
    }
    const auto key = [](const Block* block) {
        return block == nullptr ? std::pair<std::uint64_t, Address>{0, 0}
                                : std::pair<std::uint64_t, Address>{block->size, block->address};
    };
    const auto at = [&model](Model::const_iterator found) {
        return found == model.end() ? std::pair<std::uint64_t, Address>{0, 0} : *found;
    };
    for (int step = 0; step < 4000; ++step) {
        const std::size_t i = random.below(blocks.size());
        if (in[i]) {
            order.remove(blocks[i]);
            model.erase({blocks[i].size, blocks[i].address});
        } else {
            blocks[i].size = some_size(random);
            order.insert(blocks[i]);
            model.insert({blocks[i].size, blocks[i].address});
        }
        in[i] = !in[i];
        const std::uint64_t size = some_size(random);
        const Address address = random.one_in(2) ? 0 : blocks[random.below(300)].address;
        REQUIRE(key(order.lower_bound(size, address)) == at(model.lower_bound({size, address})));
        REQUIRE(key(order.upper_bound(size, address)) == at(model.upper_bound({size, address})));
        const auto below = model.lower_bound({size, address});
        REQUIRE(key(order.before(size, address)) ==
                (below == model.begin() ? at(model.end()) : *std::prev(below)));
        REQUIRE(key(order.last()) == (model.empty() ? at(model.end()) : *model.rbegin()));
        // In order from there, to one of the next few or to the end.
        auto next = below;
        std::uint64_t left = random.below(random.one_in(2) ? 3 : 400);
        const Block* const found = order.find_from(size, address, [&](const Block& block) {
            REQUIRE(key(&block) == at(next));
            ++next;
            return left-- == 0;
        });
        REQUIRE((found != nullptr ? key(found) == at(std::prev(next)) : next == model.end()));
    }
}

}  // namespace

TEST_CASE("a tree of blocks is an ordered set") {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        OrderedBlocks<BySize> order;
        compare(order, seed);
    }
}

TEST_CASE("the trees by size are one ordered set") {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        SizedBlocks<BySize> order(9);
        compare(order, seed);
    }
}

TEST_CASE("a tree that is deeper than a visit remembers is visited to its end") {
    // The same priority for all: each block is the right child of the last, or the left one.
    for (const bool ascending : {true, false}) {
        OrderedBlocks<BySize> order;
        std::vector<Block> blocks(300);
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            blocks[i] = Block{};
            blocks[i].address = 1 + i;  // of these the hash takes nothing
            blocks[i].size = 512 * (ascending ? 1 + i : blocks.size() - i);
            order.insert(blocks[i]);
        }
        std::uint64_t expected = 0;
        order.find_from(0, 0, [&](const Block& block) {
            expected += 512;
            REQUIRE(block.size == expected);
            return false;
        });
        CHECK(expected == 512 * blocks.size());
    }
}

TEST_CASE("the first of a tree is known as blocks come and go") {
    OrderedBlocks<BySize> order;
    std::vector<Block> blocks(64);
    Random random(5);
    for (Block& block : blocks) {
        block = Block{};
        block.size = 512;
        block.address = 512 * (1 + random.below(1U << 30));
        order.insert(block);
    }
    Address previous = 0;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        Block* first = order.first();
        REQUIRE(first != nullptr);
        REQUIRE(first->address > previous);
        previous = first->address;
        order.remove(*first);
    }
    CHECK(order.first() == nullptr);
    CHECK(order.empty());
}

TEST_CASE("the index finds blocks by their base and by any address inside, as they come and go") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        Random random(seed);
        BlockIndex index;
        // One segment, split and merged at random; the model is its list of bases.
        constexpr Address base = 1ULL << 40;
        constexpr std::uint64_t units = 1 << 14;
        std::vector<Block> blocks(units);
        std::map<Address, Block*> model;
        const auto add = [&](Address address, std::uint64_t size, Block* previous) {
            Block& block = blocks[(address - base) / 512];
            block = Block{};
            block.address = address;
            block.size = size;
            block.previous = previous;
            if (previous != nullptr) {
                block.next = previous->next;
                previous->next = &block;
                if (block.next != nullptr) {
                    block.next->previous = &block;
                }
            }
            index.reserve(1);
            CHECK(index.ready(1));
            index.insert(block);
            model[address] = &block;
        };
        add(base, units * 512, nullptr);
        for (int step = 0; step < 20000; ++step) {
            const Address address = base + 512 * random.below(units);
            Block* holder = std::prev(model.upper_bound(address))->second;
            REQUIRE(index.find_containing(address + random.below(512)) == holder);
            REQUIRE(index.at(address) == (holder->address == address ? holder : nullptr));
            // More splits than merges at first, then more merges.
            const bool joins = random.below(20000) < static_cast<std::uint64_t>(step);
            if (!joins && holder->address != address) {
                const std::uint64_t rest = holder->address + holder->size - address;
                holder->size -= rest;
                add(address, rest, holder);
            } else if (joins && holder->next != nullptr) {
                Block& gone = *holder->next;
                index.remove(gone);
                model.erase(gone.address);
                holder->size += gone.size;
                holder->next = gone.next;
                if (gone.next != nullptr) {
                    gone.next->previous = holder;
                }
            }
            REQUIRE(index.count() == model.size());
        }
        for (const auto& [address, block] : model) {
            REQUIRE(index.is_consistent(*block));
        }
        CHECK(index.find_containing(base - 1) == nullptr);
        CHECK(index.find_containing(base + units * 512) == nullptr);
        CHECK(index.at(base + units * 512) == nullptr);
        index.clear();
        CHECK(index.find_containing(base) == nullptr);
        CHECK(index.count() == 0);
    }
}

TEST_CASE("a set of pages finds its next and previous ones") {
    for (const std::uint64_t pages : {1, 63, 64, 65, 1000}) {
        Random random(pages);
        PageSet set;
        CHECK(set.at_or_above(0) == PageSet::none);
        CHECK(set.at_or_below(pages) == PageSet::none);
        set.cover(pages);
        std::set<std::uint64_t> model;
        for (int step = 0; step < 2000; ++step) {
            const std::uint64_t page = random.below(pages);
            if (random.one_in(2)) {
                set.insert(page);
                model.insert(page);
            } else if (random.one_in(random.one_in(100) ? 1 : 3)) {
                set.erase(page);
                model.erase(page);
            }
            const std::uint64_t at = random.below(pages + 1);  // the end of the range as well
            const auto above = model.lower_bound(at);
            const auto below = model.upper_bound(at);
            REQUIRE(set.at_or_above(at) == (above == model.end() ? PageSet::none : *above));
            REQUIRE(set.at_or_below(at) ==
                    (below == model.begin() ? PageSet::none : *std::prev(below)));
        }
    }
}

}  // namespace memlab::allocator::testing
