// The aggregator's containers against the standard library's.
#include <map>
#include <optional>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "trace/address_map.hpp"
#include "trace/aggregate/live_table.hpp"
#include "trace/hash_index.hpp"

using namespace memlab::test;
using namespace memlab::trace;

namespace {

using Map = AddressMap<std::uint64_t>;
using Model = std::map<std::uint64_t, std::uint64_t>;

/// Both, in either direction.
void require_equal(const Map& map, const Model& model) {
    auto at = map.begin();
    auto before = map.end();
    for (const auto& [key, value] : model) {
        REQUIRE(at != map.end());
        REQUIRE(map.key_at(at) == key);
        REQUIRE(map.at(at) == value);
        REQUIRE(map.previous(at) == before);
        before = at;
        at = map.next(at);
    }
    REQUIRE(at == map.end());
    REQUIRE(map.empty() == model.empty());
}

/// The key at a position; none at the end.
std::optional<std::uint64_t> key_at(const Map& map, Map::Position position) {
    return position == map.end() ? std::nullopt : std::optional(map.key_at(position));
}

void require_same_answers(const Map& map, const Model& model, std::uint64_t key) {
    const auto above = model.lower_bound(key);
    const auto upper = model.upper_bound(key);
    using Answer = std::optional<std::uint64_t>;
    REQUIRE(key_at(map, map.lower_bound(key)) ==
            (above == model.end() ? Answer() : Answer(above->first)));
    REQUIRE(key_at(map, map.floor(key)) ==
            (upper == model.begin() ? Answer() : Answer(std::prev(upper)->first)));
    REQUIRE(key_at(map, map.find(key)) == (model.contains(key) ? Answer(key) : Answer()));
}

}  // namespace

TEST_CASE("the address map is an ordered map") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        Map map;
        Model model;
        // Few keys and many, in any order and ascending, growing, steady and shrinking to nothing.
        const std::uint64_t keys = std::uint64_t{1} << (3 + seed % 12);
        const bool ascending = seed % 3 == 0;
        std::uint64_t next = 0;
        for (const std::uint64_t inserts_of_ten : {8U, 5U, 1U, 6U, 0U}) {
            for (int step = 0; step < 3000; ++step) {
                const std::uint64_t key =
                    ascending && random.one_in(2) ? ++next % keys : random.below(keys);
                const bool there = model.contains(key);
                if (!there && random.below(10) < inserts_of_ten) {
                    const auto at = map.insert(key, key * 3);
                    REQUIRE(map.key_at(at) == key);
                    model[key] = key * 3;
                } else if (there && random.below(10) >= inserts_of_ten) {
                    map.erase(map.find(key));
                    model.erase(key);
                }
                require_same_answers(map, model, random.below(keys));
            }
            require_equal(map, model);
        }
        while (!model.empty()) {
            map.erase(map.find(model.begin()->first));
            model.erase(model.begin());
        }
        require_equal(map, model);
    }
}

TEST_CASE("the address map holds the ends of the address space") {
    Map map;
    const std::uint64_t last = ~std::uint64_t{0};
    map.insert(last, 1);
    map.insert(0, 2);
    CHECK(map.key_at(map.floor(last)) == last);
    CHECK(map.key_at(map.floor(last - 1)) == 0);
    CHECK(map.next(map.find(last)) == map.end());
    map.erase(map.find(0));
    CHECK(map.floor(last - 1) == map.end());
}

TEST_CASE("the hash index finds what is in it, and nothing else, with the worst of hashes") {
    for (const std::uint64_t kinds_of_hash :
         {std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{16}, std::uint64_t{1} << 40}) {
        CAPTURE(kinds_of_hash);
        Random random(kinds_of_hash);
        HashIndex index;
        std::vector<bool> in(200, false);
        // The low bits full, so that probing wraps around the table's end.
        const auto hash = [&](std::uint32_t position) {
            return 0xffffffffU - HashIndex::mix(position) % kinds_of_hash;
        };
        for (int step = 0; step < 20000; ++step) {
            const auto position = static_cast<std::uint32_t>(random.below(in.size()));
            const auto found = index.find(
                hash(position), [&](std::uint32_t candidate) { return candidate == position; });
            REQUIRE(found == (in[position] ? position : HashIndex::none));
            if (in[position]) {
                index.erase(hash(position), position);
            } else {
                index.insert(hash(position), position);
            }
            in[position] = !in[position];
        }
    }
}

TEST_CASE("the live table keeps places while they are used, and uses them again") {
    LiveTable table;
    constexpr std::uint64_t count = 3000;
    std::vector<std::uint32_t> places;
    for (std::uint64_t i = 0; i < count; ++i) {
        Live& live = table[table.add(i * 512, AddressSpace::pointer)];
        live.site = 1;
        live.context = static_cast<std::uint32_t>(i % 3);
        places.push_back(table.find(i * 512, AddressSpace::pointer));
    }
    CHECK(table.size() == count);
    CHECK(table.find(512, AddressSpace::array_handle) == LiveTable::none);
    CHECK(table.find(513, AddressSpace::pointer) == LiveTable::none);
    for (std::uint64_t i = 0; i < count; i += 2) {
        table.erase(places[i]);
    }
    CHECK(table.find_by_context(1).size() == count / 6);
    for (std::uint64_t i = 0; i < count; ++i) {
        REQUIRE(table.find(i * 512, AddressSpace::pointer) ==
                (i % 2 == 0 ? LiveTable::none : places[i]));
    }
    for (std::uint64_t i = 0; i < count; i += 2) {
        table[table.add(i * 512, AddressSpace::pointer)].context = 9;
        REQUIRE(table.find(i * 512, AddressSpace::pointer) < count + 512);
    }
    CHECK(table.find_by_context(9).size() == count / 2);
}
