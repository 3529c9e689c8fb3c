// The model of plain CUDA's memory: its rules, and every call of the transcripts of a GPU. The
// simulated driver's memory beside both.
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/support/plain_cuda.hpp"

using memlab::support::PlainCuda;

namespace {

constexpr std::uint64_t kib = 1ULL << 10;
constexpr std::uint64_t mib = 1ULL << 20;
constexpr std::uint64_t page = PlainCuda::page_bytes;

std::vector<std::string> lines_of(const std::string& command) {
    std::FILE* pipe = popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    std::vector<std::string> lines;
    char buffer[256];
    while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) {
        lines.emplace_back(buffer);
    }
    REQUIRE(pclose(pipe) == 0);
    return lines;
}

std::string transcript(const std::string& name) {
    return "gzip -dc '" MEMLAB_TRANSCRIPTS "/" + name + ".txt.gz'";
}

// Random calls on a simulated device with so many bytes, of which the last page is withheld.
std::string simulated(std::uint64_t bytes, const std::string& arguments) {
    return "LD_LIBRARY_PATH='" MEMLAB_SIMCUDA "' SIMCUDA_WITHHELD=2MiB SIMCUDA_MEMORY=" +
           std::to_string(bytes) + " '" MEMLAB_PLAIN_MEMORY "' random " + arguments;
}

std::int64_t change_of(const std::string& text) {
    return std::stoll(text) * (text.back() == 'B' ? 1 : static_cast<std::int64_t>(page));
}

bool request(PlainCuda& model, char kind, std::uint64_t id, const std::string& size) {
    if (kind == 'y') {
        unsigned long long row = 0;
        unsigned long long height = 0;
        unsigned long long depth = 0;
        REQUIRE(std::sscanf(size.c_str(), "%llux%llux%llu", &row, &height, &depth) == 3);
        return model.create_array(id, row, height, depth);
    }
    const std::uint64_t bytes = std::stoull(size);
    return kind == 'a' ? model.allocate(id, bytes) : model.create(id, bytes);
}

// The number of calls that the model answered as the GPU did. It stops at the first that it did
// not.
std::size_t replayed(const std::string& command, std::size_t& refused) {
    std::size_t calls = 0;
    std::uint64_t requests = 0;
    std::uint64_t free = 0;
    PlainCuda model(0);
    for (const std::string& line : lines_of(command)) {
        std::istringstream words(line);
        std::string kind;
        std::string what;
        std::string change;
        words >> kind >> what;
        if (kind == "#" || kind == "end") {
            continue;
        }
        if (kind == "free") {
            free = std::stoull(what);
            model = PlainCuda(free, page);
            continue;
        }
        if (kind == "f" || kind == "g") {
            words >> change;
            model.free(std::stoull(what));
        } else {
            int result = -1;
            words >> result >> change;
            const bool served = request(model, kind[0], requests++, what);
            refused += served ? 0 : 1;
            if (result != (served ? 0 : 2)) {
                FAIL_CHECK(command << ": call " << calls << ": " << line << "served " << served);
                return calls;
            }
        }
        free += static_cast<std::uint64_t>(change_of(change));
        if (free != model.free_bytes()) {
            FAIL_CHECK(command << ": call " << calls << ": " << line << "free " << free
                               << ", the model's " << model.free_bytes());
            return calls;
        }
        ++calls;
    }
    return calls;
}

struct Recorded {
    const char* name;
    std::size_t calls;
    const char* arguments;  // of plain_memory
    std::uint64_t left;     // and what was free before the first call
};
constexpr Recorded recorded[] = {{"h100_mapped", 100'000, "2 100000 acvg 4096", 4'295'163'904},
                                 {"h100_arrays", 40'000, "3 40000 acvyg 4096", 4'295'163'904},
                                 {"h100_tight", 30'000, "4 30000 ac 200", 209'911'808}};

}  // namespace

TEST_CASE("a GPU's answers and free memory, call by call", "[plain_cuda]") {
    for (const Recorded& one : recorded) {
        std::size_t refused = 0;
        CHECK(replayed(transcript(one.name), refused) == one.calls);
        CHECK(refused > 1000);
    }
}

TEST_CASE("the simulated driver answers as the GPU, call by call", "[plain_cuda]") {
    constexpr std::uint64_t ballast = 1ULL << 30;
    for (const Recorded& one : recorded) {
        const auto expected = lines_of(transcript(one.name));
        auto seen = lines_of(simulated(one.left + ballast, one.arguments));
        REQUIRE(expected.size() > one.calls);
        REQUIRE(seen.size() == expected.size() + 1);  // its last line says that it is the last
        for (std::size_t i = 1; i < expected.size(); ++i) {
            if (expected[i] != seen[i]) {
                FAIL_CHECK(one.name << ": call " << i - 2 << ": " << expected[i]
                                    << "simulated: " << seen[i]);
                break;
            }
        }
    }
}

// Other seeds than those that a GPU ran, and more and less left.
TEST_CASE("the simulated driver's memory is the model's", "[plain_cuda]") {
    for (unsigned seed = 10; seed < 20; ++seed) {
        const std::uint64_t left = 100ULL << (seed % 5);
        const std::string arguments = std::to_string(seed) + " 10000 " +
                                      (seed % 2 == 0 ? "acvyg " : "ag ") + std::to_string(left);
        std::size_t refused = 0;
        CHECK(replayed(simulated(left * mib + seed * 100 * kib, arguments), refused) >= 10'000);
        CHECK(refused > 50);
    }
}

TEST_CASE("large memory takes whole pages", "[plain_cuda]") {
    PlainCuda model(10 * page + 5);
    CHECK(model.allocate(1, page));
    CHECK(model.free_bytes() == 9 * page + 5);
    CHECK(model.allocate(2, 3 * page + 1));
    CHECK(model.free_bytes() == 5 * page + 5);
    CHECK_FALSE(model.allocate(3, 5 * page + 1));
    CHECK_FALSE(model.create(3, 6 * page));
    CHECK_FALSE(model.create(3, UINT64_MAX));
    CHECK(model.create(3, 5 * page));
    CHECK(model.free_bytes() == 5);
    CHECK_FALSE(model.allocate(4, 1));
    model.free(2);
    CHECK(model.free_bytes() == 4 * page + 5);
    model.free(1);
    model.free(3);
    model.free(3);
    CHECK(model.free_bytes() == 10 * page + 5);
}

TEST_CASE("the last page is free and withheld", "[plain_cuda]") {
    PlainCuda model(2 * page + 5, page);
    CHECK_FALSE(model.allocate(1, page + 1));
    CHECK(model.allocate(1, 1));
    CHECK(model.free_bytes() == page + 5);
    CHECK_FALSE(model.allocate(2, page));
    CHECK_FALSE(model.create_array(2, 1, 1, 0));
    CHECK(model.allocate(2, page - 512));
}

TEST_CASE("small memory shares pages until the last is freed", "[plain_cuda]") {
    PlainCuda model(3 * page);
    for (std::uint64_t id = 0; id < page / 512; ++id) {
        REQUIRE(model.allocate(id, 1 + id % 512));
    }
    CHECK(model.free_bytes() == 2 * page);
    const std::uint64_t large = page;
    CHECK(model.allocate(large, mib + 1));
    CHECK(model.allocate(large + 1, mib));
    CHECK(model.free_bytes() == 0);
    CHECK_FALSE(model.allocate(large + 2, mib + 1));
    CHECK(model.allocate(large + 2, mib - 512));
    model.free(large);
    CHECK(model.free_bytes() == 0);
    model.free(large + 2);
    CHECK(model.free_bytes() == page);
}

// Holes of 64 KiB and of 32 KiB in two pages: the first is taken whole by what fits the second.
TEST_CASE("the smallest hole is taken", "[plain_cuda]") {
    PlainCuda model(2 * page);
    CHECK(model.allocate(1, 64 * kib));
    CHECK(model.allocate(2, page - 64 * kib));
    CHECK(model.allocate(3, 32 * kib));
    CHECK(model.allocate(4, page - 32 * kib));
    model.free(1);
    model.free(3);
    CHECK(model.allocate(5, 32 * kib));
    CHECK(model.allocate(6, 64 * kib));
    CHECK(model.free_bytes() == 0);
}

// Of two holes of one size the older: what then stays alone in its page keeps the other page.
TEST_CASE("the oldest of holes is taken", "[plain_cuda]") {
    PlainCuda model(2 * page);
    CHECK(model.allocate(1, 64 * kib));
    CHECK(model.allocate(2, page - 64 * kib));
    CHECK(model.allocate(3, 64 * kib));
    CHECK(model.allocate(4, page - 64 * kib));
    model.free(3);
    model.free(1);
    CHECK(model.allocate(5, 64 * kib));
    model.free(2);
    CHECK(model.free_bytes() == page);
}

TEST_CASE("arrays are padded, and share pages with arrays only", "[plain_cuda]") {
    CHECK(PlainCuda::array_bytes(1, 0, 0) == 64 * 8);
    CHECK(PlainCuda::array_bytes(40'000, 100, 0) == 40'000 * 128);
    CHECK(PlainCuda::array_bytes(4000, 1000, 0) == 4032 * 1024);
    CHECK(PlainCuda::array_bytes(64, 8, 33) == 64 * 8 * 64);
    PlainCuda model(3 * page);
    CHECK(model.create_array(1, 4, 1, 0));
    CHECK(model.create_array(2, 4, 1, 0));
    CHECK(model.free_bytes() == 2 * page);
    CHECK(model.allocate(3, 1));
    CHECK(model.free_bytes() == page);
    model.free(1);
    CHECK(model.free_bytes() == page);
    model.free(2);
    CHECK(model.free_bytes() == 2 * page);
}
