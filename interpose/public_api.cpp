// What memlab.h calls.
#include <cstring>

#include "interpose/hook.hpp"
#include "interpose/include/memlab/memlab.h"

namespace mi = memlab::interpose;

namespace {

constexpr std::size_t max_mark_bytes = 255;

}  // namespace

extern "C" __attribute__((visibility("default"))) void memlab_api_mark(const char* name) {
    const mi::InsideMemlab inside;
    if (name != nullptr && !inside.nested()) {
        mi::Session::mark({name, strnlen(name, max_mark_bytes)});
    }
}

extern "C" __attribute__((visibility("default"))) uint64_t memlab_api_empty_cache(void) {
    const mi::InsideMemlab inside;
    mi::Session* session = inside.nested() ? nullptr : mi::Session::current_or_late();
    if (session == nullptr) {
        return 0;
    }
    return session->captures().capturing() ? 0 : session->contexts().release_cached(-1, nullptr);
}
