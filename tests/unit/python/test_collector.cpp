// The garbage collector of a made-up interpreter: where it says that it runs, and on which thread.
#include "profiler/python/collector.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <list>
#include <thread>
#include <vector>

#include "profiler/python/objects.hpp"
#include "tests/catch.hpp"

using namespace memlab::profiler::python;

namespace {

using Word = std::uintptr_t;

Word address_of(const void* object) {
    return reinterpret_cast<Word>(object);
}

/// A type object: its type, and its flags.
struct Type {
    std::array<Word, 32> words{};
    Type(const Type* type, Word flags) {
        words[1] = address_of(type);
        words[21] = flags;
    }
};
const Type type_of_types(nullptr, Word{1} << 31 | 1U << 14 | 1U << 12);
const Type collected_type(&type_of_types, 1U << 14 | 1U << 12);
const Type other_type(&type_of_types, 1U << 12);
const Type list_type(&type_of_types, 1U << 14 | 1U << 12);

/// An object with the two words that the collector has before it.
struct alignas(16) Object {
    Word next = 0;
    Word previous = 0;
    Word references = 1;
    const void* type = &collected_type;
};

struct Head {
    Word next = address_of(this);
    Word previous = address_of(this);

    /// Flags are in the lowest bits, as the collector has them.
    void append(Object& object) {
        Object* const last =
            next == address_of(this) ? nullptr : reinterpret_cast<Object*>(previous);
        object.next = address_of(this);
        object.previous = (last != nullptr ? address_of(last) : address_of(this)) | 2;
        (last != nullptr ? last->next : next) = address_of(&object);
        previous = address_of(&object);
    }
};

[[gnu::noinline]] bool is_on_stack() {
    return Collector::is_on_stack(address_of(__builtin_frame_address(0)));
}

/// The state of an interpreter, with the collector's at word `at`.
struct State {
    explicit State(std::size_t at) : gc(at) {
        words[gc + 1] = Word{1} << 32;                // enabled
        words[gc + 12] = address_of(&words[gc + 3]);  // generation0
        words[gc + 26] = address_of(&garbage);
        words[gc + 27] = address_of(&callbacks);
    }
    void collecting(std::int32_t value) { std::memcpy(&words[gc + 25], &value, sizeof value); }
    bool find(Collector& collector) const {
        return collector.find(13, words.data(), words.data() + words.size(), &list_type);
    }

    std::size_t gc;
    std::vector<Word> words = std::vector<Word>(1000);
    std::array<const void*, 4> garbage = {nullptr, &list_type};
    std::array<const void*, 4> callbacks = {nullptr, &list_type};
};

}  // namespace

TEST_CASE("the collector's mark is found wherever it is in the state") {
    for (const std::size_t at :
         {std::size_t{0}, std::size_t{1}, std::size_t{500}, std::size_t{970}}) {
        CAPTURE(at);
        State state(at);
        Collector collector;
        CHECK_FALSE(collector.runs());
        REQUIRE(state.find(collector));
        CHECK_FALSE(collector.runs());
        state.collecting(1);
        CHECK(collector.runs());
        collector.forget();
        CHECK_FALSE(collector.runs());
    }
}

TEST_CASE("the state of 3.13's later patch releases, without padding") {
    Collector collector;
    State state(100);
    state.words[112] -= 4;
    REQUIRE(state.find(collector));
    state.collecting(1);
    CHECK(collector.runs());
}

TEST_CASE("what is not the collector's state is not taken for it") {
    Collector collector;
    State state(100);
    SECTION("another pointer") {
        state.words[112] += 8;
    }
    SECTION("another type of list") {
        state.callbacks[1] = &other_type;
    }
    SECTION("no list") {
        state.words[126] = 0;
    }
    SECTION("a list that cannot be read") {
        state.words[126] = Word{1} << 40;
    }
    SECTION("a mark that is none") {
        state.collecting(7);
    }
    SECTION("a state that ends before it does") {
        state.words.resize(129);
        state.words[112] = address_of(&state.words[103]);
    }
    CHECK_FALSE(state.find(collector));
    CHECK_FALSE(collector.runs());
}

TEST_CASE("a thread collects while a list of objects has its head on the thread's stack") {
    std::vector<Object> objects(3);
    CHECK_FALSE(is_on_stack());
    Head head;
    CHECK_FALSE(is_on_stack());  // empty
    for (Object& object : objects) {
        head.append(object);
        CHECK(is_on_stack());
        CHECK(is_on_stack());
    }
    SECTION("a thread beside it does not") {
        std::thread([] { CHECK_FALSE(is_on_stack()); }).join();
    }
    SECTION("a list that is not whole") {
        objects.front().previous += 8;
        CHECK_FALSE(is_on_stack());
    }
    SECTION("one that does not come back") {
        objects.back().next = 0;
        CHECK_FALSE(is_on_stack());
    }
    SECTION("of what is no object of the collector's") {
        objects.front().type = &other_type;
        CHECK_FALSE(is_on_stack());
    }
    SECTION("of what has no type") {
        objects.front().type = nullptr;
        CHECK_FALSE(is_on_stack());
    }
    SECTION("whose first one cannot be read") {
        head.next = Word{1} << 40;
        CHECK_FALSE(is_on_stack());
    }
    head.next = head.previous = address_of(&head);
    CHECK_FALSE(is_on_stack());
}

TEST_CASE("an empty list is none, whatever lies behind its head") {
    struct alignas(16) {
        Head head;
        Word references = 1;
        const void* type = &collected_type;
    } empty;
    CHECK(empty.head.next == address_of(&empty));
    CHECK(empty.type == &collected_type);
    CHECK_FALSE(is_on_stack());
}

TEST_CASE("a list of the program's own is none of the collector's") {
    const std::list<std::array<const void*, 2>> list(5, {nullptr, &other_type});
    CHECK_FALSE(is_on_stack());
    CHECK(list.size() == 5);
}
