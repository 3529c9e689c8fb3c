// What a driver function does, judged by its name alone: for functions that memlab does not know.
#pragma once

#include <string_view>

namespace memlab::interpose {

/// In the order in which a name that could mean several is taken: the one with more consequences.
enum class Purpose { other, submits, allocates, maps, frees, captures };

/// What the purpose is in a sentence: "it seems to free memory".
constexpr const char* describe(Purpose purpose) {
    switch (purpose) {
        case Purpose::submits:
            return "submit work";
        case Purpose::allocates:
            return "allocate memory";
        case Purpose::maps:
            return "map or share memory";
        case Purpose::frees:
            return "free memory or what uses it";
        case Purpose::captures:
            return "capture work or make a graph of it";
        default:
            return "do something else";
    }
}

/// `name` is an exported symbol or a name for cuGetProcAddress; versions and variants of a function
/// have one purpose. Handles that are given out for sharing count as mapped memory, the ends of
/// contexts and streams as frees.
Purpose purpose_of(std::string_view name);

/// Whether memory of a pool must not be given out any more once such a function is in use. Work is
/// ordered by fences of the whole context, whoever submits it.
constexpr bool ends_pooling(Purpose purpose) {
    return purpose > Purpose::submits;
}

}  // namespace memlab::interpose
