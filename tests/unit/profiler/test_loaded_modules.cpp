// An address's object, found without the loader's lock, against what the loader itself says.
#include "profiler/loaded_modules.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <climits>
#include <memory>
#include <string>

#include "tests/catch.hpp"

using memlab::profiler::find_loaded_module;
using memlab::profiler::LoadedModule;

namespace {

std::uintptr_t address_of(const void* symbol) {
    return reinterpret_cast<std::uintptr_t>(symbol);
}

}  // namespace

TEST_CASE("a function of libc has the path and the bias that the loader knows") {
    void* function = dlsym(RTLD_DEFAULT, "qsort");
    REQUIRE(function != nullptr);
    Dl_info info{};
    link_map* map = nullptr;
    REQUIRE(dladdr1(function, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0);
    LoadedModule module;
    REQUIRE(find_loaded_module(address_of(function), &module));
    CHECK(module.path == map->l_name);
    CHECK(module.bias == map->l_addr);
    CHECK(module.start <= address_of(function));
    CHECK(module.end > address_of(function));
}

TEST_CASE("the program itself has its path and a build id of hexadecimal digits") {
    LoadedModule module;
    REQUIRE(find_loaded_module(address_of(reinterpret_cast<const void*>(&address_of)), &module));
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
    REQUIRE(length > 0);
    CHECK(module.path == std::string(path, static_cast<std::size_t>(length)));
    CHECK(module.build_id.find_first_not_of("0123456789abcdef") == std::string::npos);
}

TEST_CASE("addresses of the heap, of the stack and null are in no object") {
    LoadedModule module;
    int on_stack = 0;
    const auto on_heap = std::make_unique<int>(0);
    CHECK_FALSE(find_loaded_module(address_of(&on_stack), &module));
    CHECK_FALSE(find_loaded_module(address_of(on_heap.get()), &module));
    CHECK_FALSE(find_loaded_module(0, &module));
}
