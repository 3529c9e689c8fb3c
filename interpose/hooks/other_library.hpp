// For hooks of libraries other than the driver, which programs open with dlopen or are linked with.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <string_view>

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

}  // namespace memlab::interpose
