/* A preloaded quota manager of somebody else, of the kind that runs in containers: it exports
 * functions of the driver and a dlsym that returns them, under every handle, and finds the C
 * library's dlsym by its version. Its functions call libcuda's.
 *
 * QUOTA_BYTES: how much cuMemAlloc_v2 gives in all.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

typedef void* (*dlsym_function)(void*, const char*);

static dlsym_function real_dlsym;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void* driver;
static size_t used;
static int counts[5]; /* lookups, initializations, allocations, frees, resolutions */

static void start(void) {
    real_dlsym = (dlsym_function)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    driver = dlopen("libcuda.so.1", RTLD_NOW);
}

static void* of_driver(const char* name) {
    pthread_once(&once, start);
    return driver == NULL ? NULL : real_dlsym(driver, name);
}

static size_t quota(void) {
    const char* const bytes = getenv("QUOTA_BYTES");
    return bytes == NULL ? (size_t)-1 : strtoull(bytes, NULL, 10);
}

EXPORTED void quota_counts(int* all) {
    memcpy(all, counts, sizeof(counts));
}

EXPORTED CUresult cuInit(unsigned flags) {
    ++counts[1];
    return ((CUresult(*)(unsigned))of_driver("cuInit"))(flags);
}

EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
    ++counts[2];
    if (__atomic_add_fetch(&used, bytes, __ATOMIC_RELAXED) > quota()) {
        __atomic_sub_fetch(&used, bytes, __ATOMIC_RELAXED);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return ((CUresult(*)(CUdeviceptr*, size_t))of_driver("cuMemAlloc_v2"))(address, bytes);
}

EXPORTED CUresult cuMemFree_v2(CUdeviceptr address) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    ++counts[3];
    if (((CUresult(*)(CUdeviceptr*, size_t*, CUdeviceptr))of_driver("cuMemGetAddressRange_v2"))(
            &base, &bytes, address) == CUDA_SUCCESS) {
        __atomic_sub_fetch(&used, bytes, __ATOMIC_RELAXED);
    }
    return ((CUresult(*)(CUdeviceptr))of_driver("cuMemFree_v2"))(address);
}

static void* own(const char* name) {
    static const struct {
        const char* symbol;
        const char* base;
        void* function;
    } table[] = {{"cuInit", "cuInit", (void*)cuInit},
                 {"cuMemAlloc_v2", "cuMemAlloc", (void*)cuMemAlloc_v2},
                 {"cuMemFree_v2", "cuMemFree", (void*)cuMemFree_v2}};
    size_t i;
    for (i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        if (strcmp(table[i].symbol, name) == 0 || strcmp(table[i].base, name) == 0) {
            return table[i].function;
        }
    }
    return NULL;
}

EXPORTED CUresult cuGetProcAddress_v2(const char* name, void** function, int version,
                                      cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
    typedef CUresult (*resolver)(const char*, void**, int, cuuint64_t,
                                 CUdriverProcAddressQueryResult*);
    ++counts[4];
    const CUresult result =
        ((resolver)of_driver("cuGetProcAddress_v2"))(name, function, version, flags, status);
    if (result == CUDA_SUCCESS && own(name) != NULL) {
        *function = own(name);
    }
    return result;
}

EXPORTED void* dlsym(void* handle, const char* name) {
    __atomic_add_fetch(&counts[0], 1, __ATOMIC_RELAXED);
    pthread_once(&once, start);
    if (handle == RTLD_NEXT) {
        return real_dlsym(RTLD_NEXT, name);
    }
    if (name[0] == 'c' && name[1] == 'u') {
        void* const found =
            strcmp(name, "cuGetProcAddress_v2") == 0 ? (void*)cuGetProcAddress_v2 : own(name);
        if (found != NULL) {
            return found;
        }
    }
    return real_dlsym(handle, name);
}
