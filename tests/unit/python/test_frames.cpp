// Reads frames of a synthetic interpreter, sound and damaged: a thread state may be anything.
#include "profiler/python/frames.hpp"

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "profiler/python/frame_interner.hpp"
#include "profiler/python/line_table.hpp"
#include "profiler/python/python_stacks.hpp"
#include "tests/catch.hpp"
#include "tests/unit/python/synthetic_interpreter.hpp"

using namespace memlab::profiler;
using namespace memlab::profiler::python;
using namespace memlab::test;

namespace {

class Collected final : public StackDefinitions {
  public:
    std::uint32_t string_id(std::string_view text) override {
        strings.emplace_back(text);
        return static_cast<std::uint32_t>(strings.size());
    }
    void define(const memlab::trace::ModuleDef&) override {}
    void define(const memlab::trace::PythonFrameDef& frame) override { frames.push_back(frame); }
    void define(const memlab::trace::StackDef&) override {}
    void report_limitation(std::string_view) override {}

    std::vector<std::string> strings;
    std::vector<memlab::trace::PythonFrameDef> frames;
};

std::uint32_t number_of(const World& world, FrameInterner& interner, RawFrame frame) {
    REQUIRE(interner.assign_ids(world.interpreter, true, &frame, 1));
    return frame.id;
}

const CodeLocationCache& nothing_known() {
    static const CodeLocationCache none;
    return none;
}

}  // namespace

TEST_CASE("activations are read with their frames and stack addresses") {
    World world(11);
    const void* code = world.code("f", "a.py", 10);
    Record records[3];  // innermost first: lower addresses
    void* outer = world.frame(code, 15, nullptr);
    world.set(outer, world.layout().frame_is_entry, 1);
    void* entry = world.frame(code, 5, outer);
    world.set(entry, world.layout().frame_is_entry, 1);
    void* inner = world.frame(code, 3, entry);
    world.activation(&records[0], inner, &records[1]);
    world.activation(&records[1], outer, &records[2]);
    world.activation(&records[2], nullptr, nullptr);  // the thread's own: the end
    world.root(&records[0]);
    FrameBuffer<256> frames;
    read_frames(world.interpreter, 100, nothing_known(), frames);
    REQUIRE(frames.frame_count == 3);
    REQUIRE(frames.activation_count == 2);
    CHECK(frames.activations[0].end == 2);
    CHECK(frames.activations[1].end == 3);
    CHECK(frames.activations[0].stack_address == reinterpret_cast<std::uintptr_t>(&records[0]));
    CHECK(frames.frames()[2].offset == 30);
    CHECK_FALSE(frames.truncated);
    CHECK(frames.in_main_interpreter);
    CHECK(read_location(world.interpreter, frames.frames()[0]) ==
          SourceLocation{"f", "a.py", 10, 10});
    CHECK(read_location(world.interpreter, frames.frames()[2]) ==
          SourceLocation{"f", "a.py", 11, 10});

    SECTION("a limit") {
        read_frames(world.interpreter, 1, nothing_known(), frames);
        CHECK(frames.frame_count == 1);
        CHECK(frames.activation_count == 1);
        CHECK(frames.truncated);
    }
    SECTION("a frame that is being set up is not there yet") {
        void* begun = world.frame(code, 1, inner);
        world.activation(&records[0], begun, &records[1]);
        read_frames(world.interpreter, 100, nothing_known(), frames);
        CHECK(frames.frame_count == 3);
    }
    SECTION("the interpreter has begun to end while the root was read") {
        initialized_reads_left = 1;
        read_frames(world.interpreter, 100, nothing_known(), frames);
        CHECK(frames.frame_count == 0);
        CHECK(frames.thread_state == nullptr);
    }
    SECTION("a thread that is not Python's") {
        thread = nullptr;
        read_frames(world.interpreter, 100, nothing_known(), frames);
        CHECK(frames.frame_count == 0);
    }
    SECTION("records that do not lie further up this stack end it") {
        Record elsewhere;
        world.activation(&records[0], inner, &elsewhere);  // maybe below, maybe above
        world.activation(&elsewhere, outer, &records[0]);  // a ring
        read_frames(world.interpreter, 100, nothing_known(), frames);
        CHECK(frames.activation_count <= 2);
        static Record heap;
        world.activation(&heap, inner, &records[1]);
        world.root(&heap);
        read_frames(world.interpreter, 100, nothing_known(), frames);
        CHECK(frames.frame_count == 0);
    }
    SECTION("a frame without a code object is no frame") {
        Memory nothing(400);
        put(nothing, object_type, static_cast<const void*>(&other_object));
        world.activation(&records[0], world.frame(nothing.data(), 3, inner), &records[1]);
        read_frames(world.interpreter, 100, nothing_known(), frames);
        CHECK(frames.implausible);
        CHECK(frames.frame_count == 0);
        CHECK(frames.activation_count == 0);
    }
}

TEST_CASE("3.10: each activation runs one frame of the thread's list") {
    World world(10);
    const void* code = world.code("f", "a.py", 10);
    Record records[3];
    void* outer = world.frame(code, 15, nullptr);
    void* inner = world.frame(code, -1, outer);
    world.activation(&records[0], nullptr, &records[1]);
    world.activation(&records[1], nullptr, &records[2]);
    world.activation(&records[2], nullptr, nullptr);  // the thread's own: the end
    world.root(&records[0]);
    world.frame_object(inner);
    FrameBuffer<256> frames;
    read_frames(world.interpreter, 100, nothing_known(), frames);
    REQUIRE(frames.frame_count == 2);
    REQUIRE(frames.activation_count == 2);
    CHECK(frames.activations[0].end == 1);
    CHECK(frames.activations[1].stack_address == reinterpret_cast<std::uintptr_t>(&records[1]));
    CHECK(frames.frames()[0].offset == -1);
    CHECK(frames.frames()[1].offset == 30);
    CHECK_FALSE(frames.truncated);

    SECTION("a limit") {
        read_frames(world.interpreter, 1, nothing_known(), frames);
        CHECK(frames.frame_count == 1);
        CHECK(frames.truncated);
        read_frames(world.interpreter, 2, nothing_known(), frames);
        CHECK(frames.frame_count == 2);
        CHECK_FALSE(frames.truncated);
    }
    SECTION("a frame without a code object is no frame") {
        Memory nothing(400);
        put(nothing, object_type, static_cast<const void*>(&other_object));
        world.frame_object(world.frame(nothing.data(), 3, outer));
        read_frames(world.interpreter, 100, nothing_known(), frames);
        CHECK(frames.implausible);
        CHECK(frames.activation_count == 0);
    }
    SECTION("more records than frames, and fewer") {
        world.frame_object(outer);
        read_frames(world.interpreter, 100, nothing_known(), frames);
        CHECK(frames.frame_count == 1);
        world.frame_object(world.frame(code, 2, inner));
        read_frames(world.interpreter, 100, nothing_known(), frames);
        CHECK(frames.frame_count == 2);
    }
}

TEST_CASE("3.9: each frame is an activation without a record") {
    World world(9);
    const void* code = world.code("f", "a.py", 10);
    void* outer = world.frame(code, 40, nullptr);
    void* inner = world.frame(code, -1, outer);
    world.root(inner);
    FrameBuffer<256> frames;
    read_frames(world.interpreter, 100, nothing_known(), frames);
    REQUIRE(frames.frame_count == 2);
    REQUIRE(frames.activation_count == 2);
    CHECK(frames.activations[0].end == 1);
    CHECK(frames.activations[1].end == 2);
    CHECK(frames.frames()[0].offset == -1);
    CHECK(frames.frames()[1].offset == 40);  // in bytes
    CHECK_FALSE(frames.truncated);

    SECTION("a limit") {
        read_frames(world.interpreter, 1, nothing_known(), frames);
        CHECK(frames.frame_count == 1);
        CHECK(frames.truncated);
    }
    SECTION("a frame without a code object is no frame") {
        Memory nothing(400);
        put(nothing, object_type, static_cast<const void*>(&other_object));
        world.root(world.frame(nothing.data(), 3, outer));
        read_frames(world.interpreter, 100, nothing_known(), frames);
        CHECK(frames.implausible);
        CHECK(frames.activation_count == 0);
    }
}

TEST_CASE("from 3.13 on an activation ends with the frame that lies on the stack") {
    const int minor = GENERATE(13, 14, 15);
    World world(minor);
    const void* code = world.code("f", "a.py", 10);
    alignas(8) unsigned char stack_address[2][128] = {};
    void* outer = world.frame(code, 15, stack_address[1]);
    void* entry = world.frame(code, 5, stack_address[0]);
    void* inner = world.frame(code, 3, entry);
    void* const thread_frame = world.frame(code, 0, nullptr);  // from 3.15 on: before all others
    world.set(thread_frame, world.layout().frame_owner, owned_by_c_stack);
    for (int i = 0; i < 2; ++i) {
        void* const next = i == 0 ? outer : minor == 15 ? thread_frame : nullptr;
        std::memcpy(stack_address[i] + world.layout().frame_previous, &next, sizeof(next));
        stack_address[i][world.layout().frame_owner] = owned_by_c_stack;
    }
    world.root(inner);
    FrameBuffer<256> frames;
    read_frames(world.interpreter, 100, nothing_known(), frames);
    CHECK(frames.frame_count == 3);
    REQUIRE(frames.activation_count == 2);
    CHECK(frames.activations[0].end == 2);
    CHECK(frames.activations[0].stack_address ==
          reinterpret_cast<std::uintptr_t>(stack_address[0]));
    CHECK_FALSE(frames.truncated);

    SECTION("a limit that is just enough") {
        read_frames(world.interpreter, 3, nothing_known(), frames);
        CHECK(frames.frame_count == 3);
        CHECK_FALSE(frames.truncated);
    }
    SECTION("a limit within an activation still finds its place") {
        read_frames(world.interpreter, 1, nothing_known(), frames);
        CHECK(frames.frame_count == 1);
        REQUIRE(frames.activation_count == 1);
        CHECK(frames.activations[0].stack_address ==
              reinterpret_cast<std::uintptr_t>(stack_address[0]));
        CHECK(frames.truncated);
    }
    SECTION("without an end it is of no use") {
        void* next = inner;
        for (int i = 0; i < 20000; ++i) {
            next = world.frame(code, 4, next);
        }
        void* const ring = next;
        std::memcpy(static_cast<unsigned char*>(entry) + world.layout().frame_previous, &ring,
                    sizeof(ring));
        read_frames(world.interpreter, 100, nothing_known(), frames);
        CHECK(frames.frame_count == 0);
        CHECK(frames.activation_count == 0);
    }
}

TEST_CASE("a place has one number, and another code object at its address has another") {
    for (const int minor : {11, 12, 14}) {
        World world(minor);
        const void* first = world.code("f", "a.py", 10);
        const void* second = world.code("g", "a.py", 10);
        Collected collected;
        FrameInterner interner(collected);
        for (int again = 0; again < 2; ++again) {
            RawFrame frames[] = {{first, 6, 0}, {first, 6, 0}, {second, 6, 0}, {first, 30, 0}};
            CHECK(interner.assign_ids(world.interpreter, true, frames, 4));
            CHECK(frames[0].id == 1);
            CHECK(frames[1].id == 1);
            CHECK(frames[2].id == 2);
            CHECK(frames[3].id == 3);
        }
        CHECK(collected.frames.size() == 3);
        // The first one is gone, and the second one's parts lie where its parts lay.
        const std::size_t part = world.layout().code_qualname;
        std::memcpy(const_cast<char*>(static_cast<const char*>(first)) + part,
                    static_cast<const char*>(second) + part, sizeof(void*));
        CHECK(number_of(world, interner, {first, 6, 0}) == 2);
        CHECK(collected.frames.size() == 3);
        CHECK(collected.strings[collected.frames[1].function - 1] == "g");
    }
}

TEST_CASE("what has no parts of a code object where they should be is no frame") {
    enum Fault { no_table, no_texts, unreadable_texts, outside, none };
    for (const int minor : {9, 10, 11, 12, 14}) {
        for (const Fault fault : {no_table, no_texts, unreadable_texts, outside, none}) {
            CAPTURE(minor, fault);
            World world(minor);
            const Layout& layout = world.layout();
            const void* code = world.code("f", "a.py", 10);
            const auto other = reinterpret_cast<std::uintptr_t>(world.code("g", "a.py", 10));
            const auto put_part = [code](std::size_t part, std::uintptr_t value) {
                std::memcpy(const_cast<char*>(static_cast<const char*>(code)) + part, &value,
                            sizeof value);
            };
            if (fault == no_table) {
                put_part(layout.code_line_table, other);
            } else if (fault == no_texts || fault == unreadable_texts) {
                put_part(layout.code_qualname, fault == no_texts ? 0 : 1);
                put_part(layout.code_filename, fault == no_texts ? other : std::uintptr_t{1} << 60);
            }
            Collected collected;
            FrameInterner interner(collected);
            RawFrame frame{code, fault == outside ? 80 : 6, 0};
            // Frame objects' instructions are not in the code object.
            const bool good = fault == none || (fault == outside && layout.has_frame_objects);
            CHECK(interner.assign_ids(world.interpreter, true, &frame, 1) == good);
            CHECK(collected.frames.empty() == !good);
        }
    }
}

TEST_CASE("a frame at a known place is not read again") {
    for (const int minor : {12, 13, 14, 15}) {
        World world(minor);
        const void* code = world.code("f", "a.py", 10);
        const auto set_version = [&](std::uint32_t version) {
            std::memcpy(
                const_cast<char*>(static_cast<const char*>(code)) + world.layout().code_version,
                &version, sizeof(version));
        };
        set_version(7);
        Collected collected;
        FrameInterner interner(collected);
        REQUIRE(number_of(world, interner, {code, 6, 0}) == 1);
        alignas(8) unsigned char end[128] = {};  // of the activation, on the stack
        end[world.layout().frame_owner] = owned_by_c_stack;
        void* const frame = world.frame(code, 3, end);
        Record records[2];
        world.activation(&records[0], frame, &records[1]);
        world.activation(&records[1], nullptr, nullptr);
        world.root(minor == 12 ? static_cast<void*>(&records[0]) : frame);
        FrameBuffer<256> frames;
        const auto number_read = [&] {
            read_frames(world.interpreter, 100, interner.cache(), frames);
            REQUIRE(frames.frame_count == 1);
            CHECK(frames.activation_count == 1);
            CHECK(frames.frames()[0].code == code);
            CHECK(frames.frames()[0].offset == 6);
            return frames.frames()[0].id;
        };
        CHECK(number_read() == 1);

        SECTION("another code object at its address, 3." + std::to_string(minor)) {
            set_version(8);
            CHECK(number_read() == 0);
        }
        SECTION("one without a number, 3." + std::to_string(minor)) {
            set_version(0);
            CHECK(number_read() == 0);
        }
        SECTION("numbers of another interpreter than the main one, 3." + std::to_string(minor)) {
            world.interpreter.main_interpreter = nullptr;
            CHECK(number_read() == 0);
        }
        SECTION("what is being set up is not there, 3." + std::to_string(minor)) {
            REQUIRE(number_of(world, interner, {code, 2, 0}) != 0);
            const char* const instruction =
                static_cast<const char*>(code) + world.layout().code_bytes + 2;
            std::memcpy(static_cast<char*>(frame) + world.layout().frame_instruction, &instruction,
                        sizeof(instruction));
            read_frames(world.interpreter, 100, interner.cache(), frames);
            CHECK(frames.frame_count == 0);
        }
        SECTION("a limit, 3." + std::to_string(minor)) {
            read_frames(world.interpreter, 0, interner.cache(), frames);
            CHECK(frames.frame_count == 0);
        }
    }
}

TEST_CASE("a code object without a version is identified by its contents") {
    World world(12);  // version 0: the interpreter has run out of numbers
    const void* code = world.code("f", "a.py", 10);
    Collected collected;
    FrameInterner interner(collected);
    const RawFrame frame{code, 6, 0};
    CHECK(number_of(world, interner, frame) == 1);
    // The same addresses throughout, another letter in the name.
    const auto* name = read<const char*>(code, world.layout().code_qualname);
    const_cast<char*>(name)[world.layout().ascii_size] = 'h';
    CHECK(number_of(world, interner, frame) == 2);
    // Another line, further down the table than the instruction: the same place.
    auto* table = const_cast<unsigned char*>(
        read<const unsigned char*>(code, world.layout().code_line_table));
    table[bytes_data + 5] = 8;
    CHECK(number_of(world, interner, frame) == 2);
    table[bytes_data + 1] = 2;
    CHECK(number_of(world, interner, frame) == 3);
    CHECK(collected.frames[2].line == 11);
}

TEST_CASE("threads agree on the numbers of more places than the table holds") {
    World world(11);
    constexpr std::size_t functions = 6000;  // two places each: more than there are entries
    std::vector<const void*> codes;
    codes.reserve(functions);
    for (std::size_t i = 0; i < functions; ++i) {
        codes.push_back(world.code(("f" + std::to_string(i)).c_str(), "a.py", 10));
    }
    Collected collected;
    FrameInterner interner(collected);
    constexpr std::size_t threads = 4;
    std::vector<std::vector<std::uint32_t>> ids(threads, std::vector<std::uint32_t>(functions * 2));
    std::vector<std::thread> workers;
    workers.reserve(threads);
    for (std::size_t t = 0; t < threads; ++t) {
        workers.emplace_back([&, t] {
            for (std::size_t round = 0; round < 3; ++round) {
                for (std::size_t i = 0; i < functions * 2; ++i) {
                    const std::size_t place = t % 2 == 0 ? i : functions * 2 - 1 - i;
                    ids[t][place] =
                        number_of(world, interner, {codes[place / 2], place % 2 == 0 ? 6 : 30, 0});
                }
            }
        });
    }
    for (std::thread& worker : workers) {
        worker.join();
    }
    REQUIRE(collected.frames.size() == functions * 2);
    std::size_t wrong = 0;
    for (std::size_t place = 0; place < functions * 2; ++place) {
        const std::uint32_t id = ids[0][place];
        for (std::size_t t = 1; t < threads; ++t) {
            wrong += ids[t][place] != id ? 1 : 0;
        }
        const memlab::trace::PythonFrameDef& frame = collected.frames.at(id - 1);
        wrong += collected.strings[frame.function - 1] == "f" + std::to_string(place / 2) ? 0 : 1;
        wrong += frame.line == 10 + place % 2 ? 0 : 1;
    }
    CHECK(wrong == 0);
}
