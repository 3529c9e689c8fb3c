#include "interpose/loader.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstring>

#include "interpose/hooked_names.hpp"
#include "interpose/one_stream.hpp"
#include "interpose/work_clock.hpp"

// Runs inside other libraries' look-ups, sanitizer runtimes' included, before anything is set up:
// this file is compiled without instrumentation.

namespace memlab::interpose {
static void note_unknown(const char* name);
}

extern "C" {

// What the assembly stub jumps to.
__attribute__((visibility("hidden"))) void* (*memlab_real_dlsym)(void*, const char*) = nullptr;

__attribute__((visibility("hidden"))) int memlab_dlsym_route(const char* name) {
    if (memlab_real_dlsym == nullptr) {
        memlab::interpose::real_dlsym();
    }
    if (name == nullptr || name[0] != 'c' || name[1] != 'u') {
        return 0;
    }
    if (memlab::interpose::is_hooked_name(name) || memlab::interpose::is_seat_name(name)) {
        return 1;
    }
    // cuda..., curl_..., cublas... are nobody's concern; an unknown function of the driver is.
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

// Only what libcuda itself exports counts: others' names may begin alike.
static void note_unknown(const char* name) {
    void* library = loaded_libcuda();
    if (library != nullptr && real_dlsym()(library, name) != nullptr) {
        work_goes_unseen();
    }
}

DlsymFunction real_dlsym() {
    DlsymFunction found = __atomic_load_n(&memlab_real_dlsym, __ATOMIC_ACQUIRE);
    if (found == nullptr) {
        // glibc 2.34 moved dlsym from libdl into libc; both versions exist there since.
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

// By its file: whoever opened it under another name has another library.
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

bool visible_without_us(const char* name) {
    return real_dlsym()(RTLD_NEXT, name) != nullptr;
}

}  // namespace memlab::interpose
