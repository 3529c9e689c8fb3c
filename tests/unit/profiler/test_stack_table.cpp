// The stack table: equal stacks have one id in all threads, and no id names code that was unloaded.
#include "profiler/stack_table.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

using memlab::profiler::StackDefinitions;
using memlab::profiler::StackTable;
using namespace memlab;

namespace {

class Collected final : public StackDefinitions {
  public:
    std::uint32_t string_id(std::string_view) override { return 0; }
    void define(const trace::ModuleDef& module) override { modules.push_back(module); }
    void define(const trace::PythonFrameDef&) override {}
    void report_limitation(std::string_view reason) override { reasons.emplace_back(reason); }
    void define(const trace::StackDef& stack) override { stacks.push_back(stack); }

    std::vector<trace::ModuleDef> modules;
    std::vector<trace::StackDef> stacks;
    std::vector<std::string> reasons;
};

// Addresses that no module holds, so that each stack is what it says.
std::vector<std::uint64_t> stack_number(std::uint64_t number, std::size_t depth) {
    std::vector<std::uint64_t> stack(depth);
    for (std::size_t i = 0; i < depth; ++i) {
        stack[i] = 0x1000 + ((number >> (4 * (i % 8))) & 15) + 16 * i;
    }
    return stack;
}

class UnloadedLibrary {
  public:
    UnloadedLibrary() : handle_(dlopen("libBrokenLocale.so.1", RTLD_NOW | RTLD_LOCAL)) {
        REQUIRE(handle_ != nullptr);
    }
    ~UnloadedLibrary() { dlclose(handle_); }
    UnloadedLibrary(const UnloadedLibrary&) = delete;
    UnloadedLibrary& operator=(const UnloadedLibrary&) = delete;

    std::uint64_t address() const {
        void* symbol = dlsym(handle_, "__ctype_get_mb_cur_max");
        REQUIRE(symbol != nullptr);
        return reinterpret_cast<std::uintptr_t>(symbol) + 1;
    }

  private:
    void* handle_;
};

}  // namespace

TEST_CASE("a stack has one number, and one of another depth, end or truncation has another") {
    Collected collected;
    StackTable table(collected);
    const std::vector<std::uint64_t> stack = stack_number(0x1234567, 9);
    CHECK(table.intern({}, false, 1) == 0);
    CHECK(table.intern(stack, false, 1) == 1);
    CHECK(table.intern(stack, true, 1) == 2);
    CHECK(table.intern({stack.data(), 8}, false, 1) == 3);
    std::vector<std::uint64_t> other = stack;
    other.back() += 1;
    CHECK(table.intern(other, false, 1) == 4);
    CHECK(table.intern(stack, false, 1) == 1);
    REQUIRE(collected.stacks.size() == 4);
    CHECK(collected.stacks[1].truncated);
    CHECK(collected.stacks[0].frames.size() == 9);
    CHECK(collected.stacks[0].frames[8].address == stack[8]);
    CHECK(collected.modules.empty());
}

TEST_CASE("stacks that differ in one frame are two, however small their numbers are") {
    Collected collected;
    StackTable table(collected);
    std::uint32_t stacks = 0;
    for (std::size_t native = 0; native < 9; ++native) {
        for (std::uint64_t frame = 1; frame <= 8; ++frame) {
            for (std::uint64_t caller = 1; caller <= 8; ++caller) {
                std::vector<std::uint64_t> stack = stack_number(0, native);
                stack.push_back(frame);
                stack.push_back(caller);
                StackTable::PythonWords python{};
                python[0] = 3U << native;
                CAPTURE(native, frame, caller);
                CHECK(table.intern(stack, false, 1, &python) == ++stacks);
            }
        }
    }
}

TEST_CASE("the Python frames of a stack are available again") {
    Collected collected;
    StackTable table(collected);
    const std::vector<std::uint64_t> stack = {0x1000, 7, 0x2000, 9, 8};
    StackTable::PythonWords python{};
    python[0] = 0b11010;
    const std::uint32_t id = table.intern(stack, false, 1, &python);
    CHECK(table.intern(stack, false, 2, &python) == id);
    std::vector<std::uint64_t> frames(4);
    CHECK(table.python_frames(id, frames) == 3);
    CHECK(frames == std::vector<std::uint64_t>{7, 9, 8, 0});
    frames.resize(2);
    CHECK(table.python_frames(id, frames) == 2);
    CHECK(table.python_frames(table.intern(stack, false, 1), frames) == 0);  // of return addresses
    CHECK(table.python_frames(0, frames) == 0);
    CHECK(table.python_frames(99, frames) == 0);
}

TEST_CASE("threads that define and look up while the table grows agree on every number") {
    Collected collected;
    StackTable table(collected);
    constexpr std::uint64_t stacks = 20000;  // far past the first capacity
    constexpr std::size_t threads = 4;
    std::vector<std::vector<std::uint32_t>> ids(threads, std::vector<std::uint32_t>(stacks));
    std::vector<std::thread> workers;
    workers.reserve(threads);
    for (std::size_t t = 0; t < threads; ++t) {
        workers.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < stacks; ++i) {
                const std::uint64_t number = t % 2 == 0 ? i : stacks - 1 - i;
                ids[t][number] = table.intern(stack_number(number, 4 + number % 7), false, 1);
            }
        });
    }
    for (std::thread& worker : workers) {
        worker.join();
    }
    REQUIRE(collected.stacks.size() == stacks);
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < stacks; ++i) {
        const std::vector<std::uint64_t> stack = stack_number(i, 4 + i % 7);
        const std::uint32_t id = ids[0][i];
        for (std::size_t t = 1; t < threads; ++t) {
            wrong += ids[t][i] != id ? 1 : 0;
        }
        const trace::StackDef& definition = collected.stacks.at(id - 1);
        bool same = definition.id == id && definition.frames.size() == stack.size();
        for (std::size_t f = 0; same && f < stack.size(); ++f) {
            same = definition.frames[f].address == stack[f];
        }
        wrong += same ? 0 : 1;
    }
    CHECK(wrong == 0);
}

TEST_CASE("after an unload addresses are looked up again, and unchanged code keeps its number") {
    Collected collected;
    StackTable table(collected);
    const UnloadedLibrary kept;
    const std::vector<std::uint64_t> stack = {kept.address(), 0x1000};
    const std::uint32_t id = table.intern(stack, false, 1);
    CHECK(table.intern(stack, false, 2) == id);
    CHECK(table.intern(stack, false, 3) == id);
    CHECK(table.intern(stack, false, 2) == id);  // a thread that read the epoch before the others
    CHECK(collected.stacks.size() == 1);
    REQUIRE(collected.modules.size() == 1);
    CHECK(collected.modules[0].path.find("libBrokenLocale") != std::string::npos);
}

TEST_CASE("while a library is being unloaded every stack is looked up again") {
    Collected collected;
    StackTable table(collected);
    const UnloadedLibrary kept;
    const std::vector<std::uint64_t> stack = {kept.address(), 0x1000};
    const std::uint32_t id = table.intern(stack, false, StackTable::no_epoch);
    CHECK(id == 1);
    CHECK(table.intern(stack, false, StackTable::no_epoch) == id);
    CHECK(table.intern(stack, false, 7) == id);
    CHECK(table.intern(stack, false, 7) == id);
    CHECK(collected.stacks.size() == 1);
}

TEST_CASE("a Python frame is a frame of its own, whatever its number") {
    Collected collected;
    StackTable table(collected);
    const std::vector<std::uint64_t> stack = {0x1000, 0x1000, 0x2000};
    const StackTable::PythonWords second{0b010};
    const std::uint32_t id = table.intern(stack, false, 1, &second);
    CHECK(table.intern(stack, false, 2, &second) == id);
    REQUIRE(collected.stacks.size() == 1);
    const StackTable::PythonWords third{0b100};
    CHECK(table.intern(stack, false, 1, &third) == 2);
    CHECK(table.intern(stack, false, 1) == 3);
    const std::vector<trace::Frame>& frames = collected.stacks[0].frames;
    REQUIRE(frames.size() == 3);
    CHECK(frames[0] == trace::Frame{.module = 0, .address = 0x1000, .python = 0});
    CHECK(frames[1] == trace::Frame{.module = 0, .address = 0, .python = 0x1000});
    CHECK(frames[2] == trace::Frame{.module = 0, .address = 0x2000, .python = 0});
}

TEST_CASE("stacks beyond the limit are cut to their innermost frames, which is said once") {
    Collected collected;
    constexpr std::uint32_t most = 100;
    StackTable table(collected, most);
    const auto stack = [](std::uint64_t leaf, std::uint64_t inner, std::uint64_t outer) {
        std::vector<std::uint64_t> words(20);
        for (std::size_t i = 0; i < words.size(); ++i) {
            words[i] = 0x1000 + 16 * i + (i == 0 ? leaf << 32 : i == 7 ? inner << 20 : 0);
        }
        words[19] += outer << 24;
        return words;
    };
    for (std::uint64_t i = 0; i < most; ++i) {
        CHECK(table.intern(stack(0, 0, i), false, 1) == i + 1);
    }
    CHECK(collected.reasons.empty());
    const std::uint32_t folded = table.intern(stack(0, 0, most), false, 1);
    CHECK(folded == most + 1);
    const trace::StackDef& definition = collected.stacks.back();
    CHECK(definition.truncated);
    REQUIRE(definition.frames.size() == 8);
    CHECK(definition.frames[7].address == 0x1000 + 16 * 7);
    REQUIRE(collected.reasons.size() == 1);
    CHECK(collected.reasons[0].find("more than 100 different call stacks") != std::string::npos);
    for (std::uint64_t i = 0; i < 5 * most; ++i) {
        CHECK(table.intern(stack(0, 0, most + i), false, 1) == folded);
        CHECK(table.intern(stack(0, 0, i % most), false, 1) == i % most + 1);
        CHECK(table.intern(stack(0, 0, i % most), false, 2 + i / most) == i % most + 1);
    }
    // As many kinds of innermost frames, then of innermost frames alone: a bound on all.
    const std::uint64_t epoch = 7;
    for (std::uint64_t i = 1; i < 5 * most; ++i) {
        const std::uint32_t id = table.intern(stack(0, i, 0), false, epoch);
        CHECK(collected.stacks.at(id - 1).frames.size() == (i < 20 ? 8 : 1));
    }
    for (std::uint64_t i = 1; i < 5 * most; ++i) {
        const std::uint32_t id = table.intern(stack(i, 0, 0), false, epoch);
        CHECK(collected.stacks.at(id - 1).frames.size() == (i < 20 ? 1 : 0));
        CHECK(collected.stacks.at(id - 1).truncated);
    }
    CHECK(table.intern(std::vector<std::uint64_t>{1, 2}, false, epoch) == collected.stacks.size());
    CHECK(collected.stacks.size() <= most + most / 4 + 20);
    CHECK(collected.reasons.size() == 1);
}

TEST_CASE("any word may be a return address and is not taken for a Python frame") {
    Collected collected;
    StackTable table(collected);
    const UnloadedLibrary library;
    std::mt19937_64 random(11);
    const std::uint64_t odd[] = {0,
                                 1,
                                 ~std::uint64_t{0},
                                 0x8000000000000002,
                                 0xdeaddeaddeaddead,
                                 std::uint64_t{1} << 63,
                                 std::uint64_t{1} << 47,
                                 library.address()};
    for (int i = 0; i < 5000; ++i) {
        std::vector<std::uint64_t> stack(1 + random() % 64);
        for (std::uint64_t& word : stack) {
            word = random() % 3 == 0 ? odd[random() % std::size(odd)] : random() >> random() % 64;
        }
        stack[0] = 0x1000 + static_cast<std::uint64_t>(i);  // no stack twice
        const std::uint64_t thinned = random() & ~std::uint64_t{1};
        const StackTable::PythonWords python{thinned & random()};
        const bool merged = i % 2 == 0;
        if (merged) {
            for (std::size_t n = 0; n < stack.size(); ++n) {
                stack[n] = (python[0] >> n & 1U) != 0 ? 1 + stack[n] % 1000 : stack[n];
            }
        }
        const std::uint32_t id = table.intern(stack, false, 1, merged ? &python : nullptr);
        REQUIRE(id == collected.stacks.size());
        const trace::StackDef& definition = collected.stacks.back();
        REQUIRE(definition.id == id);
        REQUIRE(definition.frames.size() == stack.size());
        for (std::size_t n = 0; n < stack.size(); ++n) {
            const trace::Frame& frame = definition.frames[n];
            const bool is_python = merged && (python[0] >> n & 1U) != 0;
            REQUIRE(frame.python == (is_python ? stack[n] : 0));
            REQUIRE(frame.module <= collected.modules.size());
            REQUIRE((frame.module == 0 || stack[n] == library.address()));
            REQUIRE((is_python || frame.module != 0 || frame.address == stack[n]));
        }
    }
}

TEST_CASE("an address belongs to a library only while that library is loaded") {
    Collected collected;
    StackTable table(collected);
    std::vector<std::uint64_t> stack = {0};
    std::uint32_t loaded = 0;
    {
        const UnloadedLibrary library;
        stack[0] = library.address();
        loaded = table.intern(stack, false, 1);
    }
    const std::uint32_t unloaded = table.intern(stack, false, 2);
    CHECK(unloaded != loaded);
    CHECK(collected.stacks.at(loaded - 1).frames[0].module == 1);
    CHECK(collected.stacks.at(unloaded - 1).frames[0].module == 0);
    CHECK(collected.stacks.at(unloaded - 1).frames[0].address == stack[0]);
    const UnloadedLibrary again;
    if (again.address() == stack[0]) {  // nothing was mapped there meanwhile
        CHECK(table.intern(stack, false, 3) == loaded);
        CHECK(collected.stacks.size() == 2);
    }
}
