// Hooked names match exactly: prefix matching would also catch curl's functions.
#include "interpose/driver/hooked_names.hpp"

#include "tests/catch.hpp"

using memlab::interpose::is_hooked_name;

TEST_CASE("exact names only") {
    CHECK(is_hooked_name("cuInit"));
    CHECK(is_hooked_name("cuMemAlloc_v2"));
    CHECK(is_hooked_name("cuGetProcAddress_v2"));
    CHECK(is_hooked_name("cuMemAllocAsync_ptsz"));
    for (const char* other :
         {"", "cu", "cuIni", "cuInitX", "curl_easy_init", "cudaMalloc", "cuMemAlloc_v3",
          "cuMemcpyHtoD_v3", "cuEventCreate_v2", "CuInit", "cuinit"}) {
        INFO(other);
        CHECK_FALSE(is_hooked_name(other));
    }
}

TEST_CASE("the names are sorted and unique") {
    const auto& names = memlab::interpose::hooked_names;
    for (std::size_t i = 1; i < names.size(); ++i) {
        CHECK(names[i - 1] < names[i]);
    }
}
