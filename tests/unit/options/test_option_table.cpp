// The option table: every default parses, set values win, invalid ones are reported and ignored.
#include "interpose/options/option_table.hpp"
#include "interpose/options/quantities.hpp"

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

TEST_CASE("a set value takes effect and is reported as written") {
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

TEST_CASE("what fresh memory is filled with, and whose") {
    const auto fill = [](const char* setting) {
        const char* const environment[] = {setting, nullptr};
        const LoadedSettings loaded = load_settings(environment);
        CHECK(loaded.problems.empty());
        return loaded.settings.fill;
    };
    CHECK_FALSE(fill("MEMLAB_FILL=off").pooled);
    CHECK(fill("MEMLAB_FILL=zero").pooled);
    CHECK_FALSE(fill("MEMLAB_FILL=zero").driver);
    CHECK(fill("MEMLAB_FILL=zero").value == 0);
    CHECK(fill("MEMLAB_FILL=0xa5").pooled);
    CHECK(fill("MEMLAB_FILL=0xa5").driver);
    CHECK(fill("MEMLAB_FILL=0xA5").value == 0xa5);
    CHECK(fill("MEMLAB_FILL=0x7").value == 7);
    for (const char* bad : {"MEMLAB_FILL=0x", "MEMLAB_FILL=0x100", "MEMLAB_FILL=0x1g",
                            "MEMLAB_FILL=0x-1", "MEMLAB_FILL=17", "MEMLAB_FILL="}) {
        const char* const environment[] = {bad, nullptr};
        const LoadedSettings loaded = load_settings(environment);
        CHECK(loaded.problems.size() == 1);
        CHECK_FALSE(loaded.settings.fill.pooled);
    }
}

TEST_CASE("invalid values and unknown names are reported, and the default is used") {
    const char* const environment[] = {"MEMLAB_POOL=perhaps", "MEMLAB_STACK_DEPTH=1000",
                                       "MEMLAB_OUTPUT=a%q", "MEMLAB_POOOL=1", nullptr};
    const LoadedSettings loaded = load_settings(environment);
    REQUIRE(loaded.problems.size() == 4);
    CHECK(loaded.settings.pool);
    CHECK(loaded.settings.stack_depth == 64);
    CHECK(loaded.settings.output == "memlab.%e.%p.json");
    CHECK(loaded.problems[3].find("MEMLAB_POOOL") != std::string::npos);
    const char* const no_default[] = {"MEMLAB_PASSTHROUGH=large", nullptr};
    CHECK(load_settings(no_default).problems.at(0).ends_with("; ignored"));
}

TEST_CASE("the pool's policy, in PyTorch's terms") {
    const char* const environment[] = {"MEMLAB_MAX_SPLIT_SIZE_MB=512",
                                       "MEMLAB_GC_THRESHOLD=0.85",
                                       "MEMLAB_ROUNDUP_POWER2_DIVISIONS=[256:1,>:8]",
                                       "MEMLAB_LARGE_SEGMENT_SIZE_MB=64",
                                       "MEMLAB_LARGE_ROUNDING_MB=8",
                                       "MEMLAB_FRAGMENTED_ROUNDING_MB=0",
                                       "MEMLAB_TRIM_AFTER=30s",
                                       "MEMLAB_TRIM_BACKOFF=on",
                                       nullptr};
    const LoadedSettings loaded = load_settings(environment);
    CHECK(loaded.problems.empty());
    const memlab::allocator::PoolOptions& pool = loaded.settings.pool_options;
    CHECK(pool.max_split_size == 512ULL << 20);
    CHECK(pool.garbage_collection_threshold == Approx(0.85));
    CHECK(pool.roundup_power2_divisions[7] == 1);
    CHECK(pool.roundup_power2_divisions[8] == 8);
    CHECK(pool.medium_segment == 64ULL << 20);
    CHECK(pool.large_rounding == 8ULL << 20);
    CHECK(pool.fragmented_rounding == 0);
    CHECK(pool.trim_after_ns == 30'000'000'000ULL);
    CHECK(pool.trim_backoff);
    CHECK_FALSE(load_settings(nullptr).settings.pool_options.trim_backoff);
}

TEST_CASE("a value inconsistent with the pool's other options is rejected with the reason") {
    const char* const environment[] = {"MEMLAB_LARGE_SEGMENT_SIZE_MB=7", "MEMLAB_GC_THRESHOLD=1.5",
                                       "MEMLAB_GC_THRESHOLD=0.1234567",  "MEMLAB_TRIM_AFTER=5",
                                       "MEMLAB_LARGE_ROUNDING_MB=3",     nullptr};
    const LoadedSettings loaded = load_settings(environment);
    REQUIRE(loaded.problems.size() == 4);
    CHECK(loaded.settings.pool_options.large_rounding == 2ULL << 20);
    CHECK(loaded.settings.pool_options.medium_segment == 20ULL << 20);
    CHECK(loaded.settings.pool_options.garbage_collection_threshold == 0);
    CHECK(loaded.settings.pool_options.trim_after_ns == 500'000'000);
}

TEST_CASE("PyTorch's settings apply if its cache is off, and memlab's override them") {
    const char* const cache_on[] = {"PYTORCH_ALLOC_CONF=max_split_size_mb:128", nullptr};
    CHECK(load_settings(cache_on).settings.pool_options.max_split_size ==
          memlab::allocator::PoolOptions::no_limit);
    const char* const cache_off[] = {"PYTORCH_NO_CUDA_MEMORY_CACHING=1",
                                     "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128", nullptr};
    const LoadedSettings from_pytorch = load_settings(cache_off);
    CHECK(from_pytorch.settings.pool_options.max_split_size == 128ULL << 20);
    CHECK(*value_of(from_pytorch, "MEMLAB_MAX_SPLIT_SIZE_MB") == "128");
    const char* const both[] = {"PYTORCH_NO_CUDA_MEMORY_CACHING=1",
                                "PYTORCH_ALLOC_CONF=max_split_size_mb:128",
                                "MEMLAB_MAX_SPLIT_SIZE_MB=256", nullptr};
    CHECK(load_settings(both).settings.pool_options.max_split_size == 256ULL << 20);
}

TEST_CASE("times with units") {
    std::uint64_t nanoseconds = 1;
    CHECK((memlab::interpose::parse_duration("0", &nanoseconds) && nanoseconds == 0));
    CHECK((memlab::interpose::parse_duration("500ms", &nanoseconds) && nanoseconds == 500'000'000));
    CHECK((memlab::interpose::parse_duration("2min", &nanoseconds) &&
           nanoseconds == 120'000'000'000ULL));
    for (const char* text : {"", "5", "s", "5 s", "-1s", "1h", "18446744073709551615s"}) {
        INFO(text);
        CHECK_FALSE(memlab::interpose::parse_duration(text, &nanoseconds));
    }
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
    for (const char* same : {"4GiB", "4GB", "4 gb", "4Gi", "4g", "4096M", "4.0GiB", "4.000000G"}) {
        INFO(same);
        CHECK((parse_bytes(same, &bytes) && bytes == 4ULL << 30));
    }
    CHECK((parse_bytes("1.5G", &bytes) && bytes == 3ULL << 29));
    CHECK((parse_bytes("0.1k", &bytes) && bytes == 102));
    CHECK((parse_bytes("16777215.999999TiB", &bytes) && bytes > 0xffffff0000000000));
    for (const char* bad : {"", "MiB", "-1", "1.5", "1.G", ".5G", "1.0000000G", "24XB", "1GiBs",
                            "1Gib/s", "1 G B", "18446744073709551616", "16777216T", "99999999T"}) {
        INFO(bad);
        CHECK_FALSE(parse_bytes(bad, &bytes));
    }
}
