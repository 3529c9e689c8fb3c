// What the environment does to the simulated driver, seen from programs run under it; and what no
// environment has room for.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/simcuda/driver_fixture.hpp"

namespace {

struct Result {
    int code;
    std::string output;  // of both streams
};

Result run(const std::string& environment, const std::string& arguments) {
    const std::string command = "env " + environment + " " SIMCUDA_PROBE " " + arguments + " 2>&1";
    std::FILE* pipe = popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    std::string output;
    char buffer[512];
    while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) {
        output += buffer;
    }
    const int status = pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

}  // namespace

TEST_CASE("devices and memory", "[simcuda]") {
    CHECK(run("", "devices").output == "0 1 8192\n");
    CHECK(run("SIMCUDA_DEVICES=3 SIMCUDA_MEMORY=64MiB", "devices").output == "0 3 64\n");
    CHECK(run("SIMCUDA_DEVICES=0", "devices").output == "100 -1 0\n");
}

TEST_CASE("memory runs out", "[simcuda]") {
    CHECK(run("SIMCUDA_MEMORY=8MiB", "allocations 4 3145728").output == "0 0 2 2 \n");
    CHECK(run("SIMCUDA_MEMORY=8MiB SIMCUDA_CONTEXT_MEMORY=4MiB", "allocations 2 3145728").output ==
          "0 2 \n");
    CHECK(run("SIMCUDA_MEMORY=8MiB SIMCUDA_WITHHELD=2MiB", "allocations 4 2097152").output ==
          "0 0 0 2 \n");
}

// Ten times the buffers take ten times the time or so: a call that looked at all of them would take
// a hundred times.
TEST_CASE("a call costs the same beside many buffers", "[simcuda]") {
    for (const char* kind : {"buffers", "small", "mappings", "pool"}) {
        CAPTURE(kind);
        const auto microseconds = [&](const char* count) {
            const Result result =
                run("SIMCUDA_MEMORY=1024GiB", std::string("many ") + kind + " " + count);
            REQUIRE(result.code == 0);
            return std::stod(result.output);
        };
        const double few = microseconds("10000");
        const double many = microseconds("100000");
        CAPTURE(few, many);
        CHECK(many < 35 * few);
    }
}

TEST_CASE("failures on demand", "[simcuda]") {
    CHECK(run("SIMCUDA_OOM_AT=2", "allocations 3 100").output == "0 2 0 \n");
    CHECK(run("SIMCUDA_OOM_ABOVE=99B", "allocations 2 100").output == "2 2 \n");
    CHECK(run("SIMCUDA_OOM_ABOVE=100", "allocations 2 100").output == "0 0 \n");
    CHECK(run("SIMCUDA_FAIL=cuMemAlloc:3:719", "allocations 4 100").output == "0 0 719 0 \n");
    CHECK(run("SIMCUDA_FAIL=cuMemAlloc_v2:1:CUDA_ERROR_UNKNOWN,cuMemAlloc:2:1", "allocations 3 100")
              .output == "999 1 0 \n");
}

TEST_CASE("an older driver lacks what came later", "[simcuda]") {
    CHECK(run("SIMCUDA_DRIVER_VERSION=12050", "version").output == "12050 0 1 0 0\n");
    CHECK(run("SIMCUDA_DRIVER_VERSION=12040", "version").output == "12040 0 0 1 500\n");
}

TEST_CASE("what is not understood is refused", "[simcuda]") {
    for (const char* wrong : {"SIMCUDA_DEVICES=many", "SIMCUDA_DEVICES=65", "SIMCUDA_MEMORY=8GB",
                              "SIMCUDA_MEMORY=", "SIMCUDA_OOM_AT=-1", "SIMCUDA_FAIL=cuMemAlloc",
                              "SIMCUDA_FAIL=cuNoSuch:1:2", "SIMCUDA_FAIL=cuMemAlloc:0:2",
                              "SIMCUDA_FAIL=cuMemAlloc:1:12345", "SIMCUDA_DRIVER_VERSION=12.4",
                              "SIMCUDA_DRIVER_VERSION=10080", "SIMCUDA_WITHHELD=page",
                              "SIMCUDA_TAKES=code:1MiB", "SIMCUDA_TAKES=module:1MB"}) {
        CAPTURE(wrong);
        const Result result = run(wrong, "devices");
        CHECK(result.code == 2);
        const std::string name = std::string(wrong).substr(0, std::string(wrong).find('='));
        CHECK(result.output.find("simcuda: " + name) == 0);
        CHECK(std::count(result.output.begin(), result.output.end(), '\n') == 1);
    }
}

TEST_CASE("a race is the exit code", "[simcuda]") {
    const Result result = run("", "race");
    CHECK(result.code == 86);
    CHECK(result.output.find("simcuda: race: owner 2 writes 0x") == 0);
}

TEST_CASE("statistics", "[simcuda]") {
    const std::string path = "simcuda_statistics_" + std::to_string(getpid()) + ".txt";
    CHECK(run("SIMCUDA_STATS=" + path, "allocations 3 100").code == 0);
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    std::remove(path.c_str());
    CHECK(text.str() ==
          "calls cuCtxSetCurrent 1\ncalls cuDevicePrimaryCtxRetain 1\ncalls cuInit 1\n"
          "calls cuMemAlloc_v2 3\nlive_bytes 300\npeak_bytes 300\nraces 0\n");
}

TEST_CASE("memory is shared between processes", "[simcuda]") {
    CHECK(run("", "ipc").code == 0);
}

TEST_CASE_METHOD(memlab::simcuda::DriverFixture, "sizes beyond the address space", "[simcuda]") {
    constexpr std::size_t page = std::size_t{2} << 20;
    CUdeviceptr range = 0;
    CHECK(cuMemAddressReserve(&range, ~std::size_t{0} - page + 1, 0, 0, 0) ==
          CUDA_ERROR_OUT_OF_MEMORY);
    char word = 0;
    CHECK(cuMemHostRegister(&word, ~std::size_t{0}, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemHostRegister(&word, 1, 0) == CUDA_SUCCESS);
    CHECK(cuMemHostUnregister(&word) == CUDA_SUCCESS);
}

// Of every size of pattern, some larger than the buffer that it is written from, none a power of
// two.
TEST_CASE_METHOD(memlab::simcuda::DriverFixture,
                 "memory is filled with a pattern, to the last byte", "[simcuda]") {
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{3}, std::size_t{4099}, std::size_t{700'001}}) {
        const std::size_t bytes = count * 4;
        const CUdeviceptr there = memory(bytes + 4);
        REQUIRE(cuMemsetD32(there, 0xffffffff, count + 1) == CUDA_SUCCESS);
        std::vector<unsigned char> read(bytes + 4);
        const auto holds = [&](std::uint32_t pattern, std::size_t width) {
            REQUIRE(cuMemcpyDtoH(read.data(), there, read.size()) == CUDA_SUCCESS);
            const std::size_t filled = count * width;
            for (std::size_t i = 0; i < read.size(); ++i) {
                const auto expected = static_cast<unsigned char>(pattern >> (i % width * 8));
                if (i < filled ? read[i] != expected : i >= bytes && read[i] != 0xff) {
                    return false;
                }
            }
            return true;
        };
        REQUIRE(cuMemsetD8(there, 0x12, count) == CUDA_SUCCESS);
        CHECK(holds(0x12, 1));
        REQUIRE(cuMemsetD16(there, 0x1234, count) == CUDA_SUCCESS);
        CHECK(holds(0x1234, 2));
        REQUIRE(cuMemsetD32(there, 0x12345678, count) == CUDA_SUCCESS);
        CHECK(holds(0x12345678, 4));
        CHECK(cuMemFree(there) == CUDA_SUCCESS);
    }
}
