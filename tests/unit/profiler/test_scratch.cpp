// Scratch memory: a slot never has two users, signal handlers included, and is never too small.
#include "profiler/scratch.hpp"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

using memlab::profiler::Scratch;

namespace {

struct Room {
    std::uint64_t words[512];
};
using FourRooms = Scratch<Room, 4>;

}  // namespace

TEST_CASE("nested users have scratch buffers of their own, even more than there are slots") {
    std::vector<std::unique_ptr<FourRooms>> held;
    std::set<Room*> rooms;
    for (int i = 0; i < 12; ++i) {
        held.push_back(std::make_unique<FourRooms>());
        Room* const room = held.back()->get();
        REQUIRE(room != nullptr);
        for (std::uint64_t& word : room->words) {
            word = static_cast<std::uint64_t>(i);
        }
        rooms.insert(room);
    }
    CHECK(rooms.size() == held.size());
    for (std::size_t i = 0; i < held.size(); ++i) {
        CHECK(held[i]->get()->words[511] == i);
    }
}

TEST_CASE("a thread gets the scratch buffer that it had before") {
    Room* const first = FourRooms().get();
    CHECK(FourRooms().get() == first);
    const FourRooms held;
    CHECK(held.get() == first);
    CHECK(FourRooms().get() != first);
}

TEST_CASE("a signal handler gets another scratch buffer than the code that it interrupted") {
    static std::atomic<Room*> in_handler{nullptr};
    struct sigaction action {};
    struct sigaction before {};
    action.sa_handler = [](int) { in_handler = FourRooms().get(); };
    REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
    {
        const FourRooms held;
        REQUIRE(raise(SIGUSR1) == 0);
        CHECK(in_handler.load() != nullptr);
        CHECK(in_handler.load() != held.get());
    }
    sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("threads never share a scratch buffer") {
    std::vector<std::thread> threads;
    std::vector<int> wrong(6);
    threads.reserve(wrong.size());
    for (std::size_t t = 0; t < wrong.size(); ++t) {
        threads.emplace_back([&wrong, t] {
            for (int i = 0; i < 2'000; ++i) {
                const FourRooms outer;
                const FourRooms inner;
                outer.get()->words[7] = 2 * t;
                inner.get()->words[7] = 2 * t + 1;
                if (i % 64 == 0) {
                    std::this_thread::yield();
                }
                wrong[t] += outer.get()->words[7] != 2 * t ? 1 : 0;
                wrong[t] += inner.get()->words[7] != 2 * t + 1 ? 1 : 0;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(wrong == std::vector<int>(6));
}
