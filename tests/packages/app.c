/* A program for old distributions: allocates 1 MiB and 2 MiB by the driver that it finds at run
 * time, frees the first and leaves the second. Nothing but dlopen is needed to build it. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

typedef int (*Init)(unsigned);
typedef int (*Get)(int*, int);
typedef int (*Retain)(void**, int);
typedef int (*SetCurrent)(void*);
typedef int (*Allocate)(unsigned long long*, size_t);
typedef int (*Free)(unsigned long long);

int main(void) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        printf("no driver: %s\n", dlerror());
        return 2;
    }
    Init init = (Init)dlsym(driver, "cuInit");
    Get get = (Get)dlsym(driver, "cuDeviceGet");
    Retain retain = (Retain)dlsym(driver, "cuDevicePrimaryCtxRetain");
    SetCurrent set_current = (SetCurrent)dlsym(driver, "cuCtxSetCurrent");
    Allocate allocate = (Allocate)dlsym(driver, "cuMemAlloc_v2");
    Free release = (Free)dlsym(driver, "cuMemFree_v2");
    int device = 0;
    void* context = NULL;
    unsigned long long first = 0;
    unsigned long long second = 0;
    if (init(0) != 0 || get(&device, 0) != 0 || retain(&context, device) != 0 ||
        set_current(context) != 0 || allocate(&first, 1 << 20) != 0 ||
        allocate(&second, 2 << 20) != 0 || release(first) != 0) {
        printf("a call failed\n");
        return 1;
    }
    printf("allocated\n");
    return 0;
}
