// Caches on top of memlab's pool, in recordings of the frameworks themselves.
#include "report/summary/framework_findings.hpp"

#include "report/reading/reader.hpp"
#include "tests/catch.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

Report recording(const char* name) {
    ReadResult read = read_report(std::string(MEMLAB_TEST_DATA) + "/" + name);
    REQUIRE(read.report);
    return std::move(*read.report);
}

bool has(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("PyTorch's cache on top is named, with the command that shows the tensors") {
    Report report = recording("h100/pytorch_own_cache.json");
    report.process.arguments = {"python3", "train.py", "--name", "two words"};
    const auto found = find_frameworks(report);
    REQUIRE(found.size() == 1);
    CHECK(std::string(found[0].cache->key) == "pytorch");
    CHECK_FALSE(found[0].switched_off);
    CHECK(found[0].peak_bytes == 120ULL << 20);
    CHECK(has(found[0].text, "PyTorch's own cache holds 120.00 MiB of the "));
    CHECK(found[0].command ==
          "memlab-run --replace=pytorch -- python3 train.py --name 'two words'");
}

TEST_CASE(
    "a framework whose cache is off is no cache on top, whether or not its switch was recorded") {
    for (const char* name :
         {"h100/pytorch_without_its_cache.json", "h100/cupy_without_its_cache.json",
          "h100/jax_platform_allocator.json"}) {
        INFO(name);
        CHECK(find_frameworks(recording(name)).empty());
    }
}

TEST_CASE("a switch that was in effect is said, with what it changes") {
    Report report = recording("h100/pytorch_without_its_cache.json");
    report.options["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "0";  // set is enough, whatever the value
    auto found = find_frameworks(report);
    REQUIRE(found.size() == 1);
    CHECK(found[0].switched_off);
    CHECK(found[0].command.empty());
    CHECK(has(found[0].text, "PYTORCH_NO_CUDA_MEMORY_CACHING=0 was in effect"));
    CHECK(has(found[0].text, "memory statistics read 0"));

    // The switch of a framework that was not used is ignored.
    report.options = {{"XLA_PYTHON_CLIENT_ALLOCATOR", "platform"}};
    CHECK(find_frameworks(report).empty());

    Report jax = recording("h100/jax_platform_allocator.json");
    jax.options["XLA_PYTHON_CLIENT_ALLOCATOR"] = "bfc";
    CHECK(find_frameworks(jax).empty());
    jax.options["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform";
    found = find_frameworks(jax);
    REQUIRE(found.size() == 1);
    CHECK(has(found[0].text, "memlab records each and pools none"));
    for (Site& site : jax.sites) {
        site.kind = "async_pool";
    }
    CHECK(find_frameworks(jax).size() == 1);
    jax.options = {};
    CHECK(find_frameworks(jax).empty());
}

TEST_CASE("one call of a library that only has the name of a framework is not enough") {
    Report report = recording("h100/pytorch_own_cache.json");
    for (Site& site : report.sites) {
        site.requested_bytes += 4;
    }
    CHECK(find_frameworks(report).empty());
}
