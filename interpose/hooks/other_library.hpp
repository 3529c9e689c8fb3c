// For hooks of libraries other than the driver, which programs open with dlopen or are linked with.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "interpose/driver/loader.hpp"

namespace memlab::interpose {

/// The loaded object of a function if its file's name begins so; else null.
inline const link_map* object_named(const void* function, std::string_view begin) {
    const auto* const object = static_cast<const link_map*>(containing_object(function));
    if (object == nullptr) {
        return nullptr;
    }
    const char* const slash = std::strrchr(object->l_name, '/');
    const std::string_view file = slash == nullptr ? object->l_name : slash + 1;
    return file.starts_with(begin) ? object : nullptr;
}

/// A function that is known must stay where it is: the library is never unloaded.
inline void keep_loaded(const link_map& object) {
    (void)dlopen(object.l_name, RTLD_LAZY | RTLD_NOLOAD);
}

/// The real functions of a library, by position in the list of their names; null: not found yet.
template <const auto& names>
using RealFunctions = std::array<std::atomic<void*>, names.size()>;

template <const auto& names>
constexpr std::size_t position_in(std::string_view name) {
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

/// For lookups through dlsym (hooks/resolve.cpp) that found a function of the library whose file's
/// name begins with `file`: stores it and returns the hook, Hook<position in the names>::opened().
template <const auto& names, template <std::size_t> class Hook>
void* hook_opened(RealFunctions<names>& opened, const char* symbol, void* found,
                  std::string_view file) {
    static constexpr auto hooks = []<std::size_t... at>(std::index_sequence<at...>) {
        return std::array{+[] { return reinterpret_cast<void*>(&Hook<at>::opened); }...};
    }
    (std::make_index_sequence<names.size()>());
    const std::size_t name = position_in<names>(symbol);
    const link_map* const object = object_named(found, file);
    if (object == nullptr) {
        return found;
    }
    void* known = nullptr;
    if (opened[name].compare_exchange_strong(known, found, std::memory_order_acq_rel)) {
        keep_loaded(*object);
    } else if (known != found) {
        return found;  // of a second copy of the library, whose devices or communicators are others
    }
    return hooks[name]();
}

}  // namespace memlab::interpose
