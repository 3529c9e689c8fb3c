/* A preloaded layer of somebody else that takes over dlsym for names that have nothing to do with
 * CUDA, as fakers of graphics libraries do, and counts who asks. Its dlsym has no version; it finds
 * the next one as LAYER_FINDS says: "version" (dlvsym behind itself), "default" (dlvsym from the
 * global scope) or "libc" (dlvsym in the C library).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define EXPORTED __attribute__((visibility("default")))

static int lookups;

static pid_t layers_getppid(void) {
    return 4711;
}

EXPORTED int layer_lookups(void) {
    return lookups;
}

static void* find_next(void) {
    const char* const how = getenv("LAYER_FINDS");
    if (how != NULL && strcmp(how, "libc") == 0) {
        return dlvsym(dlopen("libc.so.6", RTLD_LAZY), "dlsym", "GLIBC_2.2.5");
    }
    return dlvsym(how != NULL && strcmp(how, "default") == 0 ? RTLD_DEFAULT : RTLD_NEXT, "dlsym",
                  "GLIBC_2.2.5");
}

EXPORTED void* dlsym(void* handle, const char* name) {
    static void* (*next)(void*, const char*);
    if (next == NULL) {
        next = (void* (*)(void*, const char*))find_next();
    }
    ++lookups;
    if (strcmp(name, "getppid") == 0) {
        return (void*)layers_getppid;
    }
    return next(handle, name);
}
