// What the library does when it is run as a program (`ld.so libmemlab.so`), as memlab-run --doctor
// runs it: prints which libc and which CUDA driver a program gets here, as lines of "name value".
// With the argument "nvml", as memlab-top runs it, it lists what NVML says (nvml_listing.hpp); with
// "helper" it serves a process that steps aside (moving/helper_program.hpp).
//
// The tools have no libc of their own that could load a driver, so the library asks: as a program's
// CUDA runtime would, in a process that may hang or crash with it. That it runs at all shows that
// this libc can load it. No constructor has run then: only what needs none is used.
#include <dlfcn.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <optional>
#include <string_view>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/driver/hooked_names.hpp"
#include "interpose/driver/loader.hpp"
#include "interpose/driver/work_clock.hpp"
#include "interpose/ledger/cgroup.hpp"
#include "interpose/ledger/nvml_limits.hpp"
#include "interpose/moving/helper_program.hpp"
#include "interpose/process/function_purpose.hpp"
#include "interpose/process/nvml_listing.hpp"
#include "own_version.hpp"

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

/// The limits of this process's cgroup on a GPU's memory: "limit dmem 8 4 GPU CGROUP", bytes, or
/// "max" for none.
void print_limit(const char* source, int device, const std::optional<CgroupLimit>& limit) {
    if (limit && limit->limit == CgroupLimit::unlimited) {
        dprintf(STDOUT_FILENO, "limit %s max %llu %d %s\n", source,
                static_cast<unsigned long long>(limit->used), device, limit->path.c_str());
    } else if (limit) {
        dprintf(STDOUT_FILENO, "limit %s %llu %llu %d %s\n", source,
                static_cast<unsigned long long>(limit->limit),
                static_cast<unsigned long long>(limit->used), device, limit->path.c_str());
    }
}

void print_limits(void* library) {
    auto* const count_of = driver_function<CUresult(int*)>(library, "cuDeviceGetCount");
    auto* const get = driver_function<CUresult(CUdevice*, int)>(library, "cuDeviceGet");
    auto* const uuid_of =
        driver_function<CUresult(CUuuid*, CUdevice)>(library, "cuDeviceGetUuid_v2");
    auto* const pci_of =
        driver_function<CUresult(char*, int, CUdevice)>(library, "cuDeviceGetPCIBusId");
    int count = 0;
    if (count_of == nullptr || get == nullptr || uuid_of == nullptr || pci_of == nullptr ||
        count_of(&count) != CUDA_SUCCESS) {
        return;
    }
    const CgroupPlace place = own_cgroup();
    void* const nvml = open_nvml(libc_dlsym());
    const NvmlLimits limits = nvml == nullptr ? NvmlLimits() : NvmlLimits(nvml, libc_dlsym());
    dprintf(STDOUT_FILENO, "cgroup %s\nnvml_limits %d\n", place.path.c_str(),
            limits.known() ? 1 : 0);
    for (int i = 0; i < count; ++i) {
        CUdevice device = 0;
        CUuuid uuid{};
        char pci[32] = "";
        if (get(&device, i) == CUDA_SUCCESS && uuid_of(&uuid, device) == CUDA_SUCCESS &&
            pci_of(pci, sizeof pci, device) == CUDA_SUCCESS) {
            print_limit("dmem", i, dmem_limit(place, pci));
            print_limit("nvml", i, limits.of(uuid_text(uuid), place));
        }
    }
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
        print_limits(library);
    }
}

/// Whether the command line ends in this argument. The loader's start left no other way to it.
bool is_last_argument(std::string_view argument) {
    static std::array<char, 8192> line{};
    const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    const ssize_t length = file < 0 ? -1 : read(file, line.data(), line.size());
    if (file >= 0) {
        close(file);
    }
    if (length <= 0) {
        return false;
    }
    std::string_view text(line.data(), static_cast<std::size_t>(length) - 1);
    return text.size() > argument.size() && text.ends_with(argument) &&
           text[text.size() - argument.size() - 1] == '\0';
}

}  // namespace
}  // namespace memlab::interpose

extern "C" {

/// The entry point of libmemlab.so (-e), where the stack is as the kernel left it.
[[noreturn, gnu::used, gnu::force_align_arg_pointer, gnu::visibility("hidden")]] void
memlab_run_as_program() {
    if (memlab::interpose::is_last_argument("nvml")) {
        memlab::interpose::list_by_nvml();
        _exit(0);
    }
    if (memlab::interpose::is_last_argument("helper")) {
        memlab::interpose::serve_as_helper();
        _exit(0);
    }
    dprintf(STDOUT_FILENO, "memlab %s\nglibc %s\nknows_cuda %d\n", memlab::own_version,
            gnu_get_libc_version(), memlab::interpose::newer_cuda::newest_known);
    memlab::interpose::print_driver();
    dprintf(STDOUT_FILENO, "end\n");
    _exit(0);
}
}
