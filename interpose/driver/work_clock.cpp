#include "interpose/driver/work_clock.hpp"

#include <algorithm>

#include "interpose/driver/hooked_names.hpp"

namespace memlab::interpose {

namespace {

constexpr auto hooked_bases = sorted_names({
#define MEMLAB_HOOK(symbol, base, version, per_thread) #base,
#include "interpose/driver/hooked_functions.inc"
#undef MEMLAB_HOOK
});

constexpr auto known_bases = sorted_names({
#define MEMLAB_KNOWN(base) #base,
#include "interpose/driver/known_functions.inc"
#undef MEMLAB_KNOWN
});

}  // namespace

constinit WorkClock work_clock;

std::string_view without_version(std::string_view symbol) {
    if (symbol.ends_with("_ptsz") || symbol.ends_with("_ptds")) {
        symbol.remove_suffix(5);
    }
    const std::size_t version = symbol.rfind("_v");
    if (version != std::string_view::npos && version + 2 < symbol.size() &&
        symbol.find_first_not_of("0123456789", version + 2) == std::string_view::npos) {
        symbol = symbol.substr(0, version);
    }
    return symbol;
}

bool is_hooked_function(std::string_view base) {
    return std::binary_search(hooked_bases.begin(), hooked_bases.end(), base);
}

bool is_known_function(std::string_view base) {
    return is_hooked_function(base) ||
           std::binary_search(known_bases.begin(), known_bases.end(), base);
}

bool is_known_symbol(std::string_view symbol) {
    return std::binary_search(hooked_names.begin(), hooked_names.end(), symbol) ||
           std::binary_search(known_bases.begin(), known_bases.end(), without_version(symbol));
}

}  // namespace memlab::interpose
