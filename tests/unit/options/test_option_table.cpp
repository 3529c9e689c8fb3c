// The option table: every default parses, what is set wins, what is wrong is named and ignored.
#include "interpose/options/option_table.hpp"

#include <cstring>
#include <set>

#include "tests/catch.hpp"

using namespace memlab::interpose;

namespace {

const std::string* value_of(const LoadedSettings& loaded, const std::string& name) {
    for (const auto& [key, value] : loaded.values) {
        if (key == name) {
            return &value;
        }
    }
    return nullptr;
}

}  // namespace

TEST_CASE("every option has a unique name, a meaning and a default that its parser takes") {
    std::set<std::string> names;
    for (const OptionDef& option : option_table()) {
        INFO(option.name);
        CHECK(std::strncmp(option.name, "MEMLAB_", 7) == 0);
        CHECK(names.insert(option.name).second);
        CHECK(std::strlen(option.meaning) > 10);
        Settings settings;
        CHECK(option.parse(settings, option.default_value));
    }
}

TEST_CASE("defaults without an environment") {
    const char* const environment[] = {nullptr};
    const LoadedSettings loaded = load_settings(environment);
    CHECK(loaded.problems.empty());
    CHECK(loaded.settings.pool);
    CHECK(loaded.settings.record);
    CHECK_FALSE(loaded.settings.disabled);
    CHECK(loaded.settings.log_limit == 1ULL << 30);
    CHECK(loaded.settings.stack_depth == 64);
    CHECK(loaded.settings.output == "memlab.%e.%p.json");
    CHECK(loaded.values.size() == option_table().size());
}

TEST_CASE("what is set is in force and reported as written") {
    const char* const environment[] = {"MEMLAB_POOL=off", "HOME=/", "MEMLAB_LOG_LIMIT=64 MiB",
                                       "MEMLAB_FREE_SYNC=never", nullptr};
    const LoadedSettings loaded = load_settings(environment);
    CHECK(loaded.problems.empty());
    CHECK_FALSE(loaded.settings.pool);
    CHECK(loaded.settings.log_limit == 64ULL << 20);
    CHECK(loaded.settings.pool_options.free_sync == memlab::allocator::FreeSync::never);
    REQUIRE(value_of(loaded, "MEMLAB_LOG_LIMIT") != nullptr);
    CHECK(*value_of(loaded, "MEMLAB_LOG_LIMIT") == "64 MiB");
}

TEST_CASE("a wrong value and an unknown name are named, and the default stays in force") {
    const char* const environment[] = {"MEMLAB_POOL=perhaps", "MEMLAB_STACK_DEPTH=1000",
                                       "MEMLAB_OUTPUT=a%q", "MEMLAB_POOOL=1", nullptr};
    const LoadedSettings loaded = load_settings(environment);
    REQUIRE(loaded.problems.size() == 4);
    CHECK(loaded.settings.pool);
    CHECK(loaded.settings.stack_depth == 64);
    CHECK(loaded.settings.output == "memlab.%e.%p.json");
    CHECK(loaded.problems[3].find("MEMLAB_POOOL") != std::string::npos);
}

TEST_CASE("bytes with units") {
    std::uint64_t bytes = 0;
    CHECK((parse_bytes("0", &bytes) && bytes == 0));
    CHECK((parse_bytes("17", &bytes) && bytes == 17));
    CHECK((parse_bytes("17B", &bytes) && bytes == 17));
    CHECK((parse_bytes("64k", &bytes) && bytes == 65536));
    CHECK((parse_bytes("1GiB", &bytes) && bytes == 1ULL << 30));
    CHECK((parse_bytes("512 MiB", &bytes) && bytes == 512ULL << 20));
    CHECK((parse_bytes("2T", &bytes) && bytes == 2ULL << 40));
    for (const char* bad :
         {"", "MiB", "-1", "1.5G", "1GB", "1GiBs", "18446744073709551616", "99999999T"}) {
        INFO(bad);
        CHECK_FALSE(parse_bytes(bad, &bytes));
    }
}
