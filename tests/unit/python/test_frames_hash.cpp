// The hash of a thread's Python frames: equal only where reading them gives the same.
#include <array>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "profiler/python/frames.hpp"
#include "tests/catch.hpp"
#include "tests/unit/python/synthetic_interpreter.hpp"

using namespace memlab::profiler::python;
using namespace memlab::test;

namespace {

/// A thread of 3.12 or later, laid out again and again: frames elsewhere in memory each time,
/// activations at a few places on this thread's stack.
class Thread {
  public:
    static constexpr std::size_t most_activations = 4;

    explicit Thread(int minor) : world(minor) {
        for (std::uint32_t i = 0; i < codes.size(); ++i) {
            codes[i] = world.code("f", "a.py", 10);
            set_version(codes[i], 7 + i);
        }
        if (minor >= 15) {
            before_all_ = world.frame(codes[0], 0, nullptr);
            set_owner(before_all_, owned_by_c_stack);
        }
        world.activation(&threads_own_, nullptr, nullptr);
    }

    void begin() {
        free_ = most_activations;
        frame_ = before_all_;
        record_ = &threads_own_;
    }
    /// The next one inwards.
    void begin_activation(bool elsewhere) {
        end_activation();
        place_ = places_[2 * --free_ + (elsewhere ? 1 : 0)].data();
        if (!world.layout().has_cframes) {
            std::memcpy(place_ + world.layout().frame_previous, &frame_, sizeof(frame_));
            set_owner(place_, owned_by_c_stack);
            frame_ = place_;
        }
    }
    void add_frame(const void* code, int instruction, std::uint8_t owner) {
        frame_ = world.frame(code, instruction, frame_);
        set_owner(frame_, owner);
    }
    /// Of the newest frame; its reference has a tag where references have.
    void set_first_local(std::uintptr_t object) {
        put_word(world.layout().first_local(), object | (world.layout().frame_tags & 1));
    }
    void end() {
        end_activation();
        world.root(world.layout().has_cframes ? record_ : frame_);
    }

    void set_version(const void* code, std::uint32_t version) const {
        std::memcpy(const_cast<char*>(static_cast<const char*>(code)) + world.layout().code_version,
                    &version, sizeof(version));
    }

    World world;
    std::array<const void*, 3> codes{};

  private:
    void put_word(std::size_t offset, std::uintptr_t word) {
        std::memcpy(static_cast<char*>(frame_) + offset, &word, sizeof(word));
    }
    void set_owner(void* frame, std::uint8_t owner) {
        world.set(frame, world.layout().frame_owner, owner);
    }
    void end_activation() {
        if (world.layout().has_cframes && place_ != nullptr) {
            world.activation(place_, frame_, record_);
            record_ = place_;
            frame_ = nullptr;
        }
        place_ = nullptr;
    }

    alignas(8) std::array<std::array<unsigned char, 128>, 2 * most_activations> places_{};
    Record threads_own_;
    void* before_all_ = nullptr;
    std::size_t free_ = 0;
    unsigned char* place_ = nullptr;
    void* frame_ = nullptr;
    void* record_ = nullptr;
};

/// All that a merge takes of the frames.
std::string read_text(const Interpreter& interpreter, std::size_t limit) {
    static const CodeLocationCache nothing_known;
    FrameBuffer<256> frames;
    read_frames(interpreter, limit, nothing_known, frames);
    std::string text = frames.truncated ? "truncated" : "";
    for (std::size_t i = 0; i < frames.frame_count; ++i) {
        const RawFrame& frame = frames.frames()[i];
        const auto version = read<std::uint32_t>(frame.code, interpreter.layout->code_version);
        text += " " + std::to_string(reinterpret_cast<std::uintptr_t>(frame.code)) + "." +
                std::to_string(version) + "+" + std::to_string(frame.offset);
    }
    for (std::size_t i = 0; i < frames.activation_count; ++i) {
        text += " " + std::to_string(frames.activations[i].stack_address) + ":" +
                std::to_string(frames.activations[i].end);
    }
    return text;
}

}  // namespace

TEST_CASE("equal hashes are of frames that read alike, whatever the limit") {
    const int minor = GENERATE(12, 13, 14, 15);
    Thread thread(minor);
    std::mt19937 random(17);
    const auto draw = [&](std::uint32_t below) {
        return static_cast<std::uint32_t>(random()) % below;
    };
    std::map<std::uint64_t, std::string> read_of;
    std::map<std::string, std::uint64_t> hash_of;
    constexpr int rounds = 30000;
    for (int round = 0; round < rounds; ++round) {
        std::string drawn;
        const auto choose = [&](std::uint32_t below) {
            drawn += std::to_string(draw(below));
            return static_cast<std::uint32_t>(drawn.back() - '0');
        };
        thread.set_version(thread.codes[0], 7 + 10 * choose(2));
        thread.begin();
        for (std::uint32_t activations = choose(3); activations > 0; --activations) {
            thread.begin_activation(choose(2) != 0);
            for (std::uint32_t frames = choose(4); frames > 0; --frames) {
                const void* const code = thread.codes[choose(3)];
                const int instruction = choose(2) != 0 ? 3 : 1;  // 1: while it is set up
                thread.add_frame(code, instruction, choose(2) != 0 ? owned_by_generator : 0);
            }
        }
        thread.end();
        const FramesHash hash = hash_frames(thread.world.interpreter);
        std::string text;
        for (const std::size_t limit : {1U, 2U, 100U}) {
            text += read_text(thread.world.interpreter, limit) + "; ";
        }
        if (hash.none) {
            CHECK(text == "; ; ; ");
            continue;
        }
        REQUIRE(hash.hash >= hashed_frames);
        CHECK(read_of.try_emplace(hash.hash, text).first->second == text);
        CHECK(hash_of.try_emplace(drawn, hash.hash).first->second == hash.hash);
    }
    CHECK(hash_of.size() > 1000);
    CHECK(hash_of.size() < rounds * 3 / 4);
}

TEST_CASE("what cannot be told by a hash must be read") {
    const int minor = GENERATE(12, 13, 14, 15);
    Thread thread(minor);
    const auto lay_out = [&](std::size_t frames) {
        thread.begin();
        thread.begin_activation(false);
        for (std::size_t i = 0; i < frames; ++i) {
            thread.add_frame(thread.codes[0], 3, 0);
        }
        thread.end();
    };
    const Interpreter& interpreter = thread.world.interpreter;
    lay_out(256);
    CHECK(hash_frames(interpreter).hash != 0);
    lay_out(257);
    CHECK(hash_frames(interpreter).hash == 0);
    CHECK_FALSE(hash_frames(interpreter).none);
    lay_out(2);

    SECTION("code without a version, 3." + std::to_string(minor)) {
        thread.set_version(thread.codes[0], 0);
        CHECK(hash_frames(interpreter).hash == 0);
        CHECK_FALSE(hash_frames(interpreter).none);
    }
    SECTION("another interpreter than the main one, 3." + std::to_string(minor)) {
        thread.world.interpreter.main_interpreter = nullptr;
        CHECK(hash_frames(interpreter).hash == 0);
        CHECK_FALSE(hash_frames(interpreter).none);
    }
    SECTION("what is no code object, 3." + std::to_string(minor)) {
        Memory nothing(400);
        put(nothing, object_type, static_cast<const void*>(&other_object));
        thread.begin();
        thread.begin_activation(false);
        thread.add_frame(nothing.data(), 3, 0);
        thread.end();
        CHECK(hash_frames(interpreter).hash == 0);
        CHECK_FALSE(hash_frames(interpreter).none);
    }
    SECTION("an interpreter that ends, or a thread that is not Python's, has no frames, 3." +
            std::to_string(minor)) {
        initialized_reads_left = 1;
        CHECK(hash_frames(interpreter).none);
        initialized = 1;
        CHECK_FALSE(hash_frames(interpreter).none);
        memlab::test::thread = nullptr;
        CHECK(hash_frames(interpreter).none);
    }
}

TEST_CASE("the nn.Modules that frames call are told beside the hash, whatever the limit") {
    const int minor = GENERATE(12, 13, 14, 15);
    CAPTURE(minor);
    Thread thread(minor);
    const Interpreter& interpreter = thread.world.interpreter;
    const void* const calling = thread.codes[1];
    const NnModuleCall call{calling, identity_of_nn_call(thread.world.layout(), calling)};
    const auto lay_out = [&](const std::vector<std::uintptr_t>& outermost_first) {
        thread.begin();
        thread.begin_activation(false);
        for (std::size_t i = 0; i < outermost_first.size(); ++i) {
            if (i == 1) {
                thread.begin_activation(false);
            }
            thread.add_frame(thread.codes[0], 3, 0);
            thread.set_first_local(0x7000);  // another function's
            thread.add_frame(calling, 3, 0);
            thread.set_first_local(outermost_first[i]);
        }
        thread.add_frame(thread.codes[2], 3, 0);
        thread.end();
    };
    const auto read = [&](const NnModuleCall& by) {
        std::array<std::uintptr_t, 3> found{};
        const std::size_t count = read_nn_modules(interpreter, by, found);
        return std::vector<std::uintptr_t>(found.begin(),
                                           found.begin() + static_cast<std::ptrdiff_t>(count));
    };
    lay_out({0x1000, 0x2000});
    const FramesHash first = hash_frames(interpreter, call);
    CHECK(first.nn_modules == hash_nn_module(hash_nn_module(0, 0x2000), 0x1000));
    CHECK(read(call) == std::vector<std::uintptr_t>{0x2000, 0x1000});
    CHECK(hash_frames(interpreter).nn_modules == 0);
    CHECK(read({}).empty());

    // Another code object that has got its address.
    const NnModuleCall reused{calling, call.identity + 1};
    CHECK(hash_frames(interpreter, reused).nn_modules == 0);
    CHECK(read(reused).empty());

    // All that differs is the objects, or their order.
    lay_out({0x1000, 0x3000});
    CHECK(hash_frames(interpreter, call).nn_modules != first.nn_modules);
    lay_out({0x2000, 0x1000});
    CHECK(hash_frames(interpreter, call).nn_modules != first.nn_modules);
    CHECK(read(call) == std::vector<std::uintptr_t>{0x1000, 0x2000});

    lay_out({0x1000, 0x2000, 0x3000, 0x4000});  // more than are asked for
    CHECK(read(call) == std::vector<std::uintptr_t>{0x4000, 0x3000, 0x2000});
    lay_out({});
    CHECK(hash_frames(interpreter, call).nn_modules == 0);
    CHECK(hash_frames(interpreter, call).hash != 0);
}

TEST_CASE("before 3.12 code objects have no versions: frames must be read") {
    World world(11);
    Record records[2];
    void* const frame = world.frame(world.code("f", "a.py", 10), 5, nullptr);
    world.set(frame, world.layout().frame_is_entry, 1);
    world.activation(&records[0], frame, &records[1]);
    world.activation(&records[1], nullptr, nullptr);
    world.root(&records[0]);
    CHECK(hash_frames(world.interpreter).hash == 0);
    CHECK_FALSE(hash_frames(world.interpreter).none);
}
