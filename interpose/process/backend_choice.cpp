#include "interpose/process/backend_choice.hpp"

#include <algorithm>
#include <string_view>

#include "interpose/driver/loaded_objects.hpp"

namespace memlab::interpose {
namespace {

constexpr std::string_view always[] = {
    "libibverbs.so", "libfabric.so",          "libucp.so", "libuct.so", "libgdrapi.so",
    "libmooncake",   "libtransfer_engine.so",
};
constexpr std::string_view not_beside_pytorch[] = {"libnvshmem", "libcufile.so"};

template <std::size_t count>
bool is_one_of(std::string_view name, const std::string_view (&prefixes)[count]) {
    return std::any_of(std::begin(prefixes), std::end(prefixes),
                       [name](std::string_view prefix) { return name.starts_with(prefix); });
}

bool has_option_of_segments(const allocator::PoolOptions& options) {
    return options.max_split_size != allocator::PoolOptions::no_limit ||
           options.garbage_collection_threshold > 0;
}

}  // namespace

bool segments_are_needed() {
    bool needed = false;
    bool needed_without_pytorch = false;
    bool pytorch = false;
    unsigned long long loads = 0;
    find_loaded_object(&loads, [&](const char* name) {
        needed = is_one_of(name, always);
        needed_without_pytorch = needed_without_pytorch || is_one_of(name, not_beside_pytorch);
        pytorch = pytorch || std::string_view(name).starts_with("libc10_cuda.so");
        return needed;
    });
    return needed || (needed_without_pytorch && !pytorch);
}

void choose_backend(LoadedSettings* loaded, bool segments_needed) {
    Settings& settings = loaded->settings;
    if (!settings.choose_backend) {
        return;
    }
    settings.pool_options.expandable =
        !segments_needed && !has_option_of_segments(settings.pool_options);
    for (auto& [name, value] : loaded->values) {
        if (name == "MEMLAB_BACKEND") {
            value = settings.pool_options.expandable ? "vmm" : "classic";
        }
    }
}

}  // namespace memlab::interpose
