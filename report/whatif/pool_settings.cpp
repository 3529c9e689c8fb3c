#include "report/whatif/pool_settings.hpp"

#include <charconv>
#include <cstdint>
#include <optional>

#include "model/parse_size.hpp"

namespace memlab::report::whatif {

namespace {

using allocator::PoolOptions;

struct SizeSetting {
    std::string_view name;
    std::uint64_t PoolOptions::*field;
};

constexpr SizeSetting sizes[] = {
    {"rounding", &PoolOptions::rounding},
    {"coarse_alignment", &PoolOptions::coarse_alignment},
    {"small_size", &PoolOptions::small_size},
    {"small_segment", &PoolOptions::small_segment},
    {"medium_size", &PoolOptions::medium_size},
    {"medium_segment", &PoolOptions::medium_segment},
    {"large_rounding", &PoolOptions::large_rounding},
    {"fragmented_rounding", &PoolOptions::fragmented_rounding},
    {"max_non_split_rounding", &PoolOptions::max_non_split_rounding},
};

bool parse_megabytes(std::string_view value, std::uint64_t* bytes) {
    std::uint64_t megabytes = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), megabytes);
    if (error != std::errc() || end != value.data() + value.size() || megabytes == 0 ||
        megabytes > (std::uint64_t{1} << 40)) {
        return false;
    }
    *bytes = megabytes << 20;
    return true;
}

}  // namespace

bool set_pool_option(std::string_view name, std::string_view value, PoolOptions* options,
                     std::string* problem) {
    const auto takes = [&](const char* what) {
        *problem = std::string(name) + " takes " + what + ", not " + std::string(value);
        return false;
    };
    if (name == "max_split_size_mb") {
        return parse_megabytes(value, &options->max_split_size) || takes("a number of MiB");
    }
    if (name == "roundup_power2_divisions") {
        *problem = allocator::parse_roundup_divisions(value, &options->roundup_power2_divisions);
        return problem->empty();
    }
    if (name == "garbage_collection_threshold") {
        double threshold = 0;
        const auto [end, error] =
            std::from_chars(value.data(), value.data() + value.size(), threshold);
        if (error != std::errc() || end != value.data() + value.size() || !(threshold > 0) ||
            !(threshold < 1)) {
            return takes("a number between 0 and 1");
        }
        options->garbage_collection_threshold = threshold;
        return true;
    }
    if (name == "expandable_segments") {
        if (value != "True" && value != "False") {
            return takes("True or False");
        }
        options->expandable = value == "True";
        return true;
    }
    for (const SizeSetting& setting : sizes) {
        if (name == setting.name) {
            const std::optional<std::uint64_t> size = model::parse_size(value);
            options->*setting.field = size.value_or(options->*setting.field);
            return size || takes("a size like 64MiB");
        }
    }
    *problem = "the pool has no option " + std::string(name) + "; it has " + pool_option_names();
    return false;
}

std::string pool_option_names() {
    std::string names = "roundup_power2_divisions, max_split_size_mb, garbage_collection_threshold";
    for (const SizeSetting& setting : sizes) {
        names += ", " + std::string(setting.name);
    }
    return names + " and the MEMLAB_... options of the pool";
}

}  // namespace memlab::report::whatif
