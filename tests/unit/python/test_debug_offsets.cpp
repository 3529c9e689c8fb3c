// What real interpreters say of their own structures, and the same with one word changed.
#include "profiler/python/debug_offsets.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "profiler/python/layouts.hpp"
#include "tests/catch.hpp"

using namespace memlab::profiler::python;

namespace {

using Word = std::uint64_t;

// The words behind the cookie, the version and whether there is no GIL, of
// Debian's 3.13.18, 3.14.10 and 3.15.2.
constexpr Word offsets_of_3_13[] = {
    283408, 608,  632, 194984, 7272, 7264, 7344, 7400, 7656, 7640, 7648, 16,  7752, 0,
    7768,   7760, 312, 0,      8,    16,   72,   152,  160,  232,  32,   80,  8,    0,
    56,     72,   70,  208,    112,  120,  128,  136,  68,   52,   96,   104, 200,  16,
    8,      416,  24,  88,     168,  32,   24,   16,   40,   24,   16,   48,  32,   40,
    24,     16,   32,  16,     24,   40,   16,   32,   64,   32,   16,   40,  240,  200};
constexpr Word offsets_of_3_14[] = {
    316616, 784,  808,  225864, 7280, 7272, 7344, 7360, 7408, 7688, 7672, 7680, 16,  7784, 0,
    7800,   7792, 7992, 0,      832,  0,    8,    16,   72,   152,  160,  232,  32,  88,   8,
    0,      56,   80,   74,     64,   0,    216,  112,  120,  128,  136,  68,   52,  96,   104,
    208,    0,    16,   8,      416,  24,   88,   168,  40,   32,   16,   40,   24,  16,   200,
    24,     40,   32,   48,     32,   40,   24,   16,   32,   16,   24,   40,   16,  32,   64,
    32,     16,   40,   264,    192,  160,  24,   72,   67,   0,    8,    24,   304, 8076, 0};
constexpr Word offsets_of_3_15[] = {
    346568, 912,  936,  226240, 7272, 7264, 7336, 7352, 7400, 7592, 7576, 7584, 16,  7736, 0,
    7752,   7744, 7944, 0,      888,  0,    8,    16,   72,   80,   88,   96,   176, 184,  256,
    32,     36,   40,   136,    288,  0,    88,   8,    0,    56,   80,   74,   64,  0,    216,
    112,    120,  128,  136,    68,   52,   96,   104,  208,  0,    16,   8,    424, 24,   88,
    168,    32,   288,  944,    888,  40,   32,   16,   40,   24,   16,   200,  24,  40,   32,
    48,     32,   40,   24,     16,   32,   16,   24,   40,   16,   32,   64,   32,  16,   40,
    56,     176,  112,  120,    1120, 104,  160,  24,   72};

struct Runtime {
    Runtime(int version, std::span<const Word> offsets) : minor(version) {
        std::memcpy(words.data(), "xdebugpy", sizeof(Word));
        words[1] = (3U << 8 | static_cast<unsigned>(minor)) << 16 | 0x12f0U;
        std::copy(offsets.begin(), offsets.end(), words.begin() + 3);
    }
    std::span<const std::byte> bytes() const { return std::as_bytes(std::span(words)); }
    std::string difference() const { return difference_to(*find_layout(minor), bytes()); }

    int minor;
    std::vector<Word> words = std::vector<Word>(debug_offsets_bytes / sizeof(Word));
};

std::vector<Runtime> real_ones() {
    return {{13, offsets_of_3_13}, {14, offsets_of_3_14}, {15, offsets_of_3_15}};
}

}  // namespace

TEST_CASE("the offsets of real interpreters are those of the layouts") {
    for (const Runtime& runtime : real_ones()) {
        CAPTURE(runtime.minor);
        CHECK(runtime.difference().empty());
        CHECK_FALSE(says_free_threaded(runtime.bytes()));
    }
}

TEST_CASE("each offset that memlab uses is compared, and the others are not") {
    for (const Runtime& real : real_ones()) {
        std::vector<std::string> differences;
        for (std::size_t word = 0; word < real.words.size(); ++word) {
            Runtime runtime = real;
            runtime.words[word] ^= Word{1} << 20;
            if (const std::string difference = runtime.difference(); !difference.empty()) {
                differences.push_back(difference);
            }
        }
        CAPTURE(real.minor);
        REQUIRE(differences.size() == 20);
        CHECK(differences[0] == "does not say where it has its structures (_Py_DebugOffsets)");
        CHECK(differences[1] == "says of its structures that they are another version's");
        CHECK(differences[3] ==
              "has PyThreadState.current_frame at 1048648, not at 72 as memlab knows it");
    }
}

TEST_CASE("a build without the GIL says so, and one of another version is not compared") {
    Runtime runtime = real_ones().front();
    runtime.words[2] = 1;
    CHECK(says_free_threaded(runtime.bytes()));
    runtime.words[0] = 0;
    CHECK_FALSE(says_free_threaded(runtime.bytes()));
    CHECK_FALSE(says_free_threaded({}));
    CHECK_FALSE(difference_to(*find_layout(14), real_ones().front().bytes()).empty());
}

TEST_CASE("offsets that are not all there are none") {
    for (const Runtime& runtime : real_ones()) {
        CHECK_FALSE(difference_to(*find_layout(runtime.minor), {}).empty());
        CHECK_FALSE(difference_to(*find_layout(runtime.minor),
                                  runtime.bytes().first(debug_offsets_bytes - 1))
                        .empty());
    }
}
