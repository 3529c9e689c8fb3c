// The merged stack cache: the key covers every part that decides the merge, and a reader never sees
// an entry that another thread is writing.
#include "profiler/python/merged_stack_cache.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/catch.hpp"

using memlab::profiler::hash_frames;
using memlab::profiler::StackHash;
using memlab::profiler::python::FrameBuffer;
using memlab::profiler::python::hash_parts;
using memlab::profiler::python::MergedStackCache;
using memlab::profiler::unwind::CapturedStack;

namespace {

struct Parts {
    CapturedStack native;
    FrameBuffer<256> python;
    std::uint64_t epoch = 1;

    StackHash hash() const { return hash_parts(hash_frames(native, epoch), python); }
};

Parts some_parts() {
    Parts parts;
    parts.native.depth = 11;
    for (std::size_t i = 0; i < parts.native.depth; ++i) {
        parts.native.addresses[i] = 0x400000 + 0x100 * i;
        parts.native.ends[i] = 0x7ffc0000 + 0x40 * i;
    }
    parts.python.frame_count = 7;
    for (std::uint32_t i = 0; i < parts.python.frame_count; ++i) {
        parts.python.frames()[i] = {nullptr, 0, 10 + i};
    }
    parts.python.activation_count = 2;
    parts.python.activations[0] = {0x7ffc0050, 3};
    parts.python.activations[1] = {0x7ffc0150, 7};
    return parts;
}

// The one id that a hash has in these tests.
std::uint32_t id_of(const StackHash& hash) {
    return static_cast<std::uint32_t>(hash.check >> 32) | 1U;
}

}  // namespace

TEST_CASE("the hash of a stack covers all that decides how it is merged") {
    std::vector<std::function<void(Parts&)>> changes = {
        [](Parts& parts) { ++parts.epoch; },
        [](Parts& parts) { parts.native.truncated = true; },
        [](Parts& parts) { parts.native.ends_early = true; },
        [](Parts& parts) { parts.python.truncated = true; },
        [](Parts& parts) { --parts.native.depth; },
        [](Parts& parts) { --parts.python.frame_count; },
        [](Parts& parts) { --parts.python.activation_count; },
        [](Parts& parts) { std::swap(parts.python.frames()[4].id, parts.python.frames()[5].id); },
        [](Parts& parts) { parts.native.ends[10] = UINTPTR_MAX; },
    };
    for (std::size_t i = 0; i < 11; ++i) {
        changes.emplace_back([i](Parts& parts) { parts.native.addresses[i] += 1; });
        changes.emplace_back([i](Parts& parts) { parts.native.ends[i] += 8; });
    }
    for (std::size_t i = 0; i < 7; ++i) {
        changes.emplace_back([i](Parts& parts) { parts.python.frames()[i].id += 1; });
    }
    for (std::size_t i = 0; i < 2; ++i) {
        changes.emplace_back(
            [i](Parts& parts) { parts.python.activations[i].stack_address ^= 8U; });
        changes.emplace_back([i](Parts& parts) { --parts.python.activations[i].end; });
    }
    const Parts parts = some_parts();
    CHECK(parts.hash() == some_parts().hash());
    std::set<std::pair<std::uint64_t, std::uint64_t>> hashes = {
        {parts.hash().index, parts.hash().check}};
    for (const auto& change : changes) {
        Parts changed = parts;
        change(changed);
        hashes.emplace(changed.hash().index, changed.hash().check);
    }
    CHECK(hashes.size() == changes.size() + 1);
}

TEST_CASE("leftovers of a deeper stack do not change the hash") {
    const Parts parts = some_parts();
    Parts other = parts;
    other.native.addresses[11] = 1;
    other.python.frames()[7].id = 99;
    other.python.activations[2] = {1, 2};
    other.python.frames()[0].code = &other;  // the number says it
    CHECK(other.hash() == parts.hash());
}

TEST_CASE("a stored stack is found, and beyond the capacity most are") {
    MergedStackCache cache;
    std::mt19937_64 random(3);
    std::vector<StackHash> hashes;
    const auto how_many_are_known = [&] {
        std::size_t count = 0;
        for (const StackHash& hash : hashes) {
            const std::uint32_t id = cache.find(hash);
            CHECK((id == 0 || id == id_of(hash)));
            count += id != 0 ? 1 : 0;
        }
        return count;
    };
    constexpr std::size_t room = MergedStackCache::sets * MergedStackCache::set_size;
    for (std::size_t i = 0; i < room / 16; ++i) {
        hashes.push_back({random(), random()});
        CHECK(cache.find(hashes.back()) == 0);
        cache.insert(hashes.back(), id_of(hashes.back()));
        CHECK(cache.find(hashes.back()) == id_of(hashes.back()));
    }
    CHECK(how_many_are_known() == hashes.size());
    while (hashes.size() < 2 * room) {
        hashes.push_back({random(), random()});
        cache.insert(hashes.back(), id_of(hashes.back()));
    }
    CHECK(how_many_are_known() > room * 3 / 4);
}

TEST_CASE("concurrent insertions and lookups never return another stack's number") {
    MergedStackCache cache;
    std::vector<std::thread> threads;
    threads.reserve(4);
    std::vector<int> wrong(4);
    for (std::size_t t = 0; t < 4; ++t) {
        threads.emplace_back([&cache, &wrong, t] {
            std::mt19937_64 random(t);
            for (int i = 0; i < 50'000; ++i) {
                // So few places that all threads are at the same entries.
                const std::uint64_t which = random() % 64;
                const StackHash hash{which % 4, which * 0x9e3779b97f4a7c15ULL + 1};
                const std::uint32_t id = cache.find(hash);
                wrong[t] += id != 0 && id != id_of(hash) ? 1 : 0;
                cache.insert(hash, id_of(hash));
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(wrong == std::vector<int>(4));
}
