/* memlab's optional C API. Header only: include it, link nothing. Under memlab the calls reach the
 * preloaded libmemlab.so; without it the symbols are weak and undefined and every call is a no-op,
 * so instrumented programs run everywhere. Usable from C and C++, from any thread.
 *
 * A program needs none of this to be recorded. */
#ifndef MEMLAB_MEMLAB_H
#define MEMLAB_MEMLAB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The symbols that libmemlab.so exports; call the functions below instead. */
__attribute__((weak)) void memlab_api_mark(const char* name);
__attribute__((weak)) uint64_t memlab_api_empty_cache(void);

/* Puts a named mark on the timeline; the report shows allocated and reserved bytes at each mark.
 * `name` is copied (at most 255 bytes of UTF-8). */
static inline void memlab_mark(const char* name) {
    if (memlab_api_mark) {
        memlab_api_mark(name);
    }
}

/* Gives every wholly unused cached segment of every device back to the driver, after waiting for
 * the device work that still uses freed memory. Returns the bytes released; 0 without memlab. */
static inline uint64_t memlab_empty_cache(void) {
    return memlab_api_empty_cache ? memlab_api_empty_cache() : 0;
}

#ifdef __cplusplus
}
#endif

#endif
