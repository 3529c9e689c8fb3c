// What the library does when it is run as a program (`ld.so libmemlab.so`), as memlab-run --doctor
// runs it: prints which libc and which CUDA driver a program gets here, as lines of "name value".
//
// The tools have no libc of their own that could load a driver, so the library asks: as a program's
// CUDA runtime would, in a process that may hang or crash with it. That it runs at all shows that
// this libc can load it. No constructor has run then: only what needs none is used.
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/driver/hooked_names.hpp"
#include "interpose/driver/loader.hpp"
#include "interpose/driver/work_clock.hpp"
#include "interpose/process/function_purpose.hpp"
#include "memlab_version.hpp"

namespace memlab::interpose {
namespace {

template <class Function>
Function* driver_function(void* library, const char* name) {
    return reinterpret_cast<Function*>(libc_dlsym()(library, name));
}

void print_devices(void* library) {
    auto* const count_of = driver_function<CUresult(int*)>(library, "cuDeviceGetCount");
    auto* const get = driver_function<CUresult(CUdevice*, int)>(library, "cuDeviceGet");
    auto* const name_of =
        driver_function<CUresult(char*, int, CUdevice)>(library, "cuDeviceGetName");
    auto* const bytes_of =
        driver_function<CUresult(std::size_t*, CUdevice)>(library, "cuDeviceTotalMem_v2");
    int count = 0;
    if (count_of == nullptr || get == nullptr || name_of == nullptr || bytes_of == nullptr ||
        count_of(&count) != CUDA_SUCCESS) {
        return;
    }
    dprintf(STDOUT_FILENO, "devices %d\n", count);
    for (int i = 0; i < count; ++i) {
        CUdevice device = 0;
        char name[256] = "";
        std::size_t bytes = 0;
        if (get(&device, i) == CUDA_SUCCESS && name_of(name, sizeof name, device) == CUDA_SUCCESS &&
            bytes_of(&bytes, device) == CUDA_SUCCESS) {
            dprintf(STDOUT_FILENO, "device %zu %s\n", bytes, name);
        }
    }
}

/// The driver's exported functions that memlab does not know and that by their names do more than
/// ask. Read from the driver's symbol table: nothing is called.
void print_unknown_functions(const link_map& driver) {
    profiler::ObjectSymbols(driver.l_ld, driver.l_addr).for_each_defined([](const char* name) {
        if (name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z' &&
            !is_interposed_name(name) && !is_known_symbol(name) &&
            purpose_of(name) != Purpose::other) {
            dprintf(STDOUT_FILENO, "unknown_function %s\n", name);
        }
    });
}

void print_driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* const error = dlerror();
        dprintf(STDOUT_FILENO, "no_libcuda %s\n", error == nullptr ? "" : error);
        return;
    }
    link_map* map = nullptr;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) {
        dprintf(STDOUT_FILENO, "libcuda %s\n", map->l_name);
        print_unknown_functions(*map);
    }
    auto* const version_of = driver_function<CUresult(int*)>(library, "cuDriverGetVersion");
    auto* const init = driver_function<CUresult(unsigned)>(library, "cuInit");
    int version = 0;
    if (version_of != nullptr && version_of(&version) == CUDA_SUCCESS) {
        dprintf(STDOUT_FILENO, "cuda %d\n", version);
    }
    const CUresult result = init == nullptr ? CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND : init(0);
    dprintf(STDOUT_FILENO, "cuInit %d\n", static_cast<int>(result));
    if (result == CUDA_SUCCESS) {
        print_devices(library);
    }
}

}  // namespace
}  // namespace memlab::interpose

extern "C" {

/// The entry point of libmemlab.so (-e), where the stack is as the kernel left it.
[[noreturn, gnu::used, gnu::force_align_arg_pointer, gnu::visibility("hidden")]] void
memlab_run_as_program() {
    dprintf(STDOUT_FILENO, "memlab %s\nglibc %s\nknows_cuda %d\n", MEMLAB_VERSION,
            gnu_get_libc_version(), memlab::interpose::newer_cuda::newest_known);
    memlab::interpose::print_driver();
    dprintf(STDOUT_FILENO, "end\n");
    _exit(0);
}
}
