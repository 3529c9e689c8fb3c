// The table of symbols: every one is exported, and cuGetProcAddress finds exactly it.
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "tests/simcuda/driver_fixture.hpp"

namespace {

struct Symbol {
    const char* name;
    const char* base;
    int since;
    bool per_thread;
};

constexpr bool legacy = false;
constexpr bool per_thread = true;

const Symbol symbols[] = {
#define SIMCUDA_FUNCTION(symbol, base, since, flavor, body, parameters, arguments) \
    {#symbol, #base, since, flavor},
#include "tests/simcuda/driver_functions.inc"
#undef SIMCUDA_FUNCTION
};

void* resolve(const Symbol& symbol, int version, int& status) {
    void* address = nullptr;
    CUdriverProcAddressQueryResult found{};
    cuGetProcAddress(symbol.base, &address, version,
                     symbol.per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                       : CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                     &found);
    status = found;
    return address;
}

}  // namespace

TEST_CASE("each symbol is exported and is what cuGetProcAddress gives", "[simcuda]") {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(library != nullptr);
    int checked = 0;
    for (const Symbol& symbol : symbols) {
        CAPTURE(symbol.name);
        if (symbol.since > 13000) {
            REQUIRE(dlsym(library, symbol.name) == nullptr);
            continue;
        }
        void* exported = dlsym(library, symbol.name);
        REQUIRE(exported != nullptr);
        int status = -1;
        REQUIRE(resolve(symbol, symbol.since, status) == exported);
        REQUIRE(status == CU_GET_PROC_ADDRESS_SUCCESS);
        ++checked;
    }
    CHECK(checked > 600);
}

TEST_CASE("before its first version a function is not there", "[simcuda]") {
    std::map<std::string, int> first;
    for (const Symbol& symbol : symbols) {
        if (!symbol.per_thread && symbol.since <= 13000) {
            auto [it, is_new] = first.emplace(symbol.base, symbol.since);
            it->second = std::min(it->second, symbol.since);
        }
    }
    for (const auto& [base, since] : first) {
        CAPTURE(base);
        int status = -1;
        const Symbol symbol{"", base.c_str(), since, false};
        REQUIRE(resolve(symbol, since - 10, status) == nullptr);
        REQUIRE(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    }
}

TEST_CASE("a function without a per-thread form is found with its flag too", "[simcuda]") {
    void* with_flag = nullptr;
    void* without = nullptr;
    REQUIRE(cuGetProcAddress("cuMemAlloc", &with_flag, 13000,
                             CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                             nullptr) == CUDA_SUCCESS);
    REQUIRE(cuGetProcAddress("cuMemAlloc", &without, 13000, 0, nullptr) == CUDA_SUCCESS);
    CHECK(with_flag == without);
}
