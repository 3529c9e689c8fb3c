// The private heap: blocks that never overlap and keep their contents, whatever the order; every
// block in exactly one place, seen by a walk; threads that free each other's; forks in the middle.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "interpose/process/private_heap.hpp"
#include "tests/catch.hpp"

using memlab::interpose::PrivateHeap;

namespace {

struct Held {
    std::size_t size = 0;
    std::size_t align = 0;
    unsigned char fill = 0;
};

/// A block whose every byte is its own, as long as nobody else writes to it.
struct Filled {
    unsigned char* bytes = nullptr;
    Held held;

    bool is_intact() const {
        for (std::size_t i = 0; i < held.size; ++i) {
            if (bytes[i] != held.fill) {
                return false;
            }
        }
        return true;
    }
};

std::size_t random_size(std::mt19937_64& random) {
    const auto bits = std::uniform_int_distribution<unsigned>(0, 17)(random);
    return std::uniform_int_distribution<std::size_t>(0, std::size_t{1} << bits)(random);
}

Filled take(PrivateHeap& heap, std::mt19937_64& random) {
    const std::size_t align = random() % 8 == 0 ? std::size_t{16} << random() % 9 : 16;
    Filled made{nullptr, {random_size(random), align, static_cast<unsigned char>(random())}};
    made.bytes = static_cast<unsigned char*>(heap.allocate(made.held.size, align));
    if (made.bytes != nullptr) {
        std::memset(made.bytes, made.held.fill, made.held.size);
    }
    return made;
}

/// Each block of a class is free, or is one that is held (or that a held one was cut of), not both,
/// and each held one is found.
void check_walk(const PrivateHeap& heap, const std::map<std::uintptr_t, Held>& held) {
    std::size_t found = 0;
    std::size_t overlaps = 0;
    std::size_t forgotten = 0;
    const bool good = heap.walk([&](void* block, std::size_t usable, bool is_free) {
        const auto begin = reinterpret_cast<std::uintptr_t>(block);
        const auto at = held.lower_bound(begin);
        const bool is_held = at != held.end() && at->first < begin + usable;
        overlaps += is_held && (is_free || at->first + at->second.size > begin + usable) ? 1 : 0;
        forgotten += !is_held && !is_free ? 1 : 0;
        found += is_held ? 1 : 0;
    });
    std::size_t of_classes = 0;
    for (const auto& [address, block] : held) {
        const std::size_t need = block.size + (block.align > 16 ? block.align : 0);
        of_classes += need <= PrivateHeap::max_class_bytes ? 1 : 0;
    }
    CHECK(good);
    CHECK(overlaps == 0);
    CHECK(forgotten == 0);
    CHECK(found == of_classes);
}

}  // namespace

TEST_CASE("the private heap serves every size and alignment") {
    static PrivateHeap heap;
    for (std::size_t size = 0; size < 70'000; size += size < 2000 ? 1 : 997) {
        CAPTURE(size);
        for (const std::size_t align : {1, 16, 64, 4096}) {
            auto* const block = static_cast<unsigned char*>(heap.allocate(size, align));
            REQUIRE(block != nullptr);
            REQUIRE(reinterpret_cast<std::uintptr_t>(block) % std::max<std::size_t>(align, 16) ==
                    0);
            std::memset(block, 0xff, size);
            heap.release(block);
        }
    }
    heap.release(nullptr);
    CHECK(heap.allocate(SIZE_MAX) == nullptr);
    CHECK(heap.allocate(SIZE_MAX - 8) == nullptr);
    CHECK(heap.allocate(SIZE_MAX / 2) == nullptr);
    CHECK(heap.allocate(SIZE_MAX - 100, 4096) == nullptr);
    check_walk(heap, {});
}

TEST_CASE("the private heap's blocks never overlap, and each is free or held") {
    for (const std::uint64_t seed : {1, 2, 3}) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        const auto heap = std::make_unique<PrivateHeap>();
        std::vector<Filled> blocks;
        std::map<std::uintptr_t, Held> held;
        for (int step = 0; step < 30'000; ++step) {
            const bool growing = step / 5000 % 2 == 0;
            if (blocks.empty() || random() % 8 < (growing ? 5 : 3)) {
                blocks.push_back(take(*heap, random));
                REQUIRE(blocks.back().bytes != nullptr);
                held[reinterpret_cast<std::uintptr_t>(blocks.back().bytes)] = blocks.back().held;
            } else {
                std::swap(blocks[random() % blocks.size()], blocks.back());
                REQUIRE(blocks.back().is_intact());
                held.erase(reinterpret_cast<std::uintptr_t>(blocks.back().bytes));
                heap->release(blocks.back().bytes);
                blocks.pop_back();
            }
            if (step % 3000 == 0) {
                check_walk(*heap, held);
            }
        }
        for (const Filled& block : blocks) {
            REQUIRE(block.is_intact());
            heap->release(block.bytes);
        }
        check_walk(*heap, {});
    }
}

TEST_CASE("the private heap reuses what is freed") {
    const auto heap = std::make_unique<PrivateHeap>();
    std::size_t before = 0;
    for (int round = 0; round < 20; ++round) {
        std::vector<void*> blocks;
        for (int i = 0; i < 1000; ++i) {
            blocks.push_back(heap->allocate(200));
        }
        for (void* block : blocks) {
            heap->release(block);
        }
        std::size_t count = 0;
        heap->walk([&](void*, std::size_t, bool) { ++count; });
        CHECK((round == 0 || count == before));
        before = count;
    }
    CHECK(before == 1000);
}

TEST_CASE("threads free what other threads took from the private heap") {
    const auto heap = std::make_unique<PrivateHeap>();
    constexpr std::size_t places = 64;
    struct Place {
        std::mutex mutex;
        Filled block;
    };
    std::vector<Place> shared(places);
    std::atomic<int> damaged{0};
    std::vector<std::thread> threads;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        threads.emplace_back([&, seed] {
            std::mt19937_64 random(seed);
            for (int step = 0; step < 20'000; ++step) {
                Filled block = take(*heap, random);
                Place& place = shared[random() % places];
                {
                    const std::lock_guard lock(place.mutex);
                    std::swap(place.block, block);
                }
                damaged += block.bytes == nullptr || block.is_intact() ? 0 : 1;
                heap->release(block.bytes);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(damaged == 0);
    std::map<std::uintptr_t, Held> held;
    for (const Place& place : shared) {
        if (place.block.bytes != nullptr) {
            held[reinterpret_cast<std::uintptr_t>(place.block.bytes)] = place.block.held;
        }
    }
    check_walk(*heap, held);
}

TEST_CASE("threads contend for one size of the private heap") {
    const auto heap = std::make_unique<PrivateHeap>();
    std::atomic<int> shared_twice{0};
    std::vector<std::thread> threads;
    for (std::uintptr_t number = 1; number <= 4; ++number) {
        threads.emplace_back([&, number] {
            for (int step = 0; step < 100'000; ++step) {
                auto* const first = static_cast<std::uintptr_t*>(heap->allocate(24));
                auto* const second = static_cast<std::uintptr_t*>(heap->allocate(24));
                first[0] = first[1] = number;
                second[0] = second[1] = number + 16;
                shared_twice += first[0] == number && first[1] == number ? 0 : 1;
                heap->release(first);
                shared_twice += second[0] == number + 16 && second[1] == number + 16 ? 0 : 1;
                heap->release(second);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(shared_twice == 0);
    std::size_t count = 0;
    CHECK(heap->walk([&](void*, std::size_t, bool) { ++count; }));
    CHECK(count <= 8);
    check_walk(*heap, {});
}

#ifndef __SANITIZE_THREAD__  // whose own locks do not survive a fork beside other threads
TEST_CASE("a child forked while other threads use the private heap can use it") {
    const auto heap = std::make_unique<PrivateHeap>();
    std::atomic<bool> done{false};
    std::vector<std::thread> threads;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        threads.emplace_back([&, seed] {
            std::mt19937_64 random(seed);
            while (!done) {
                heap->release(take(*heap, random).bytes);
            }
        });
    }
    for (int i = 0; i < 50; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            std::uint64_t state = 88172645463325252ULL;
            for (int step = 0; step < 2000; ++step) {
                state = state * 6364136223846793005ULL + 1442695040888963407ULL;
                const std::size_t size = (state >> 33) % 5000 + 1;
                auto* const block = static_cast<unsigned char*>(heap->allocate(size));
                if (block == nullptr) {
                    _exit(1);
                }
                std::memset(block, 1, size);
                heap->release(block);
            }
            _exit(0);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
    done = true;
    for (std::thread& thread : threads) {
        thread.join();
    }
}
#endif
