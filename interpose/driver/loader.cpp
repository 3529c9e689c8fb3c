#include "interpose/driver/loader.hpp"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string_view>

#include "interpose/driver/hooked_names.hpp"
#include "interpose/driver/work_clock.hpp"
#include "profiler/unwind/object_table.hpp"

// Compiled without instrumentation: runs inside other libraries' lookups, sanitizer runtimes'
// included, before anything is initialized.

namespace memlab::interpose {
static void note_unknown(const char* name);
}

extern "C" {

// RTLD_NEXT depends on the caller, which is the loader where an LD_AUDIT library traces calls
// through the PLT (sotruss, latrace).
void* dlvsym(void* handle, const char* name, const char* version) noexcept __attribute__((noplt));

// Jump target of dlsym_stub.S.
__attribute__((visibility("hidden"))) void* (*memlab_real_dlsym)(void*, const char*) = nullptr;

__attribute__((visibility("hidden"))) int memlab_dlsym_route(const char* name) {
    if (memlab_real_dlsym == nullptr) {
        memlab::interpose::real_dlsym();
    }
    // What dlopen has just loaded is seldom entered otherwise.
    memlab::profiler::unwind::update_object_table();
    if (name == nullptr || name[0] != 'c' || name[1] != 'u') {
        return 0;
    }
    if (memlab::interpose::is_hooked_name(name) || memlab::interpose::is_subscribing_name(name)) {
        return 1;
    }
    // Names like cuda..., curl_..., cublas... are ignored; an unknown function of the driver is
    // not.
    if (name[2] >= 'A' && name[2] <= 'Z' && !memlab::interpose::is_known_symbol(name)) {
        memlab::interpose::note_unknown(name);
    }
    return 0;
}
}

namespace memlab::interpose {
namespace {

void* no_dlsym(void* /*handle*/, const char* /*name*/) {
    return nullptr;
}

}  // namespace

// Only names that libcuda exports: other libraries' names may have the same prefix.
static void note_unknown(const char* name) {
    void* library = loaded_libcuda();
    if (library != nullptr && real_dlsym()(library, name) != nullptr) {
        on_unknown_function(name);
    }
}

DlsymFunction real_dlsym() {
    DlsymFunction found = __atomic_load_n(&memlab_real_dlsym, __ATOMIC_ACQUIRE);
    if (found == nullptr) {
        // glibc 2.34 moved dlsym from libdl into libc; since then libc has both versions.
        void* symbol = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (symbol == nullptr) {
            symbol = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        }
        found = symbol != nullptr ? reinterpret_cast<DlsymFunction>(symbol) : no_dlsym;
        __atomic_store_n(&memlab_real_dlsym, found, __ATOMIC_RELEASE);
    }
    return found;
}

void* loaded_libcuda() {
    return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
}

// Found by file name: a library opened under another name is a different library.
profiler::ObjectSymbols libcuda_symbols() {
    profiler::ObjectSymbols symbols;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t /*size*/, void* result) {
            const char* const slash = std::strrchr(info->dlpi_name, '/');
            constexpr char name[] = "libcuda.so";
            if (std::strncmp(slash == nullptr ? info->dlpi_name : slash + 1, name,
                             sizeof name - 1) != 0) {
                return 0;
            }
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
                    *static_cast<profiler::ObjectSymbols*>(result) =
                        profiler::ObjectSymbols(reinterpret_cast<const ElfW(Dyn)*>(
                                                    info->dlpi_addr + info->dlpi_phdr[i].p_vaddr),
                                                info->dlpi_addr);
                }
            }
            return 1;
        },
        &symbols);
    return symbols;
}

void* find_without_memlab(const char* name) {
    return real_dlsym()(RTLD_NEXT, name);
}

void* containing_object(const void* address) {
    dl_find_object found{};
    return _dl_find_object(const_cast<void*>(address), &found) == 0 ? found.dlfo_link_map : nullptr;
}

bool dlsym_is_wrapped() {
    return containing_object(reinterpret_cast<const void*>(real_dlsym())) !=
           containing_object(reinterpret_cast<const void*>(&gnu_get_libc_version));
}

bool libcuda_is_global() {
    void* const library = loaded_libcuda();
    if (library == nullptr || find_without_memlab("cuInit") == nullptr) {
        return false;
    }
    // A wrapper in front of libcuda hides the functions that it wraps.
    return libcuda_loaded_at_start() ||
           std::any_of(hooked_names.begin(), hooked_names.end(), [library](std::string_view name) {
               return containing_object(find_without_memlab(name.data())) == library;
           });
}

namespace {

/// The definition in `object` itself, or null.
void* definition_in(const link_map* object, const char* name) {
    void* const handle =
        dlopen(object->l_name[0] == '\0' ? nullptr : object->l_name, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) {
        return nullptr;
    }
    void* const found = real_dlsym()(handle, name);
    real_dlclose()(handle);
    return containing_object(found) == object ? found : nullptr;
}

}  // namespace

// Follows the loader's search order for objects of the program's start, then later ones. A libcuda
// that is not globally visible is skipped.
void* next_definition(const void* caller, const char* name) {
    static const char here = 0;
    const void* const own = containing_object(&here);
    const auto* const callers = static_cast<const link_map*>(containing_object(caller));
    if (callers == nullptr || callers == own) {
        return find_without_memlab(name);
    }
    const void* const hidden = libcuda_is_global() ? nullptr : loaded_libcuda();
    for (const link_map* object = callers->l_next; object != nullptr; object = object->l_next) {
        if (object == hidden || (object == own && find_without_memlab(name) == nullptr)) {
            continue;
        }
        if (void* const found = definition_in(object, name)) {
            return found;
        }
    }
    return real_dlsym()(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD),
                        name);  // not found: sets dlerror
}

DlcloseFunction real_dlclose() {
    static constinit std::atomic<DlcloseFunction> found{nullptr};
    return find_once(found, "dlclose");
}

}  // namespace memlab::interpose
