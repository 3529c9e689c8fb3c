// A preload library of somebody else: wraps puts and getpid by RTLD_NEXT, as such libraries do.
// RTLD_NEXT means "after the library that asks"; if a dlsym of ours asked instead of it, the
// wrapper would find itself again, or nothing.
#include <dlfcn.h>
#include <unistd.h>

extern "C" {

__attribute__((visibility("default"))) int puts(const char* text) {
    using Puts = int (*)(const char*);
    const auto next = reinterpret_cast<Puts>(::dlsym(RTLD_NEXT, "puts"));
    if (next == nullptr || next == &puts) {
        ::_exit(9);
    }
    next("the wrapper was here");
    return next(text);
}

__attribute__((visibility("default"))) pid_t getpid() {
    using Getpid = pid_t (*)();
    const auto next = reinterpret_cast<Getpid>(::dlsym(RTLD_NEXT, "getpid"));
    return next == nullptr || next == &getpid ? -1 : next();
}
}
