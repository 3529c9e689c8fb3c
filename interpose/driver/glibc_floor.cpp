// Keeps libmemlab.so loadable on glibc 2.28, wherever it is built: what newer headers and the
// compiler's static libraries call and that glibc lacks. The definitions are hidden; those of a
// newer glibc are used where they do more.
//
// Each is declared here by hand under a name of our own, since headers declare some of them in
// another way.
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdint>

#include "profiler/object_symbols.hpp"
#include "profiler/unwind/object_table.hpp"

extern "C" {
// What glibc 2.28 has.
unsigned long memlab_old_strtoul(const char* text, char** end, int base) __asm__("strtoul");
int memlab_old_stat(int version, const char* path, struct stat* status) __asm__("__xstat");
int memlab_old_fstat(int version, int descriptor, struct stat* status) __asm__("__fxstat");
int memlab_old_lstat(int version, const char* path, struct stat* status) __asm__("__lxstat");

// What it lacks.
unsigned long memlab_strtoul(const char* text, char** end, int base) __asm__("__isoc23_strtoul");
int memlab_stat(const char* path, struct stat* status) __asm__("stat");
int memlab_fstat(int descriptor, struct stat* status) __asm__("fstat");
int memlab_lstat(const char* path, struct stat* status) __asm__("lstat");
int memlab_find_object(void* address, dl_find_object* result) __asm__("_dl_find_object");
extern char memlab_single_threaded __asm__("__libc_single_threaded");
}

namespace {

using FindObject = int (*)(void*, dl_find_object*);

// A look-up without the loader's lock, done once. 1 stands for "not there": no function has that
// address.
template <class Search>
std::uintptr_t find_once(std::atomic<std::uintptr_t>& known, const Search& search) {
    std::uintptr_t found = known.load(std::memory_order_acquire);
    if (found == 0) {
        void* const function = search();
        found = function == nullptr ? 1 : reinterpret_cast<std::uintptr_t>(function);
        known.store(found, std::memory_order_release);
    }
    return found == 1 ? 0 : found;
}

// libc.so.6's, found without the lock of the loader's list. What precedes the C library in that
// list was loaded at the program's start, and is never unloaded; it is what memlab was linked with,
// so it is there. The function is lock-free, async-signal-safe, and answers from the start on;
// before the loader has made its table, from the list.
void* newer_find_object() {
#ifdef MEMLAB_WITHOUT_DL_FIND_OBJECT
    return nullptr;
#else
    const auto known = reinterpret_cast<void*>(&gnu_get_libc_version);
    for (const link_map* each = _r_debug.r_map; each != nullptr; each = each->l_next) {
        const memlab::profiler::ObjectSymbols symbols(each->l_ld, each->l_addr);
        if (symbols.find("gnu_get_libc_version") == known) {
            return symbols.find("_dl_find_object");
        }
    }
    return nullptr;
#endif
}

constexpr int old_stat_version = 1;  // of struct stat on x86-64

}  // namespace

// Differs from strtoul only in that C23 accepts "0b10". The static libstdc++ of Ubuntu 24.04 parses
// GLIBCXX_TUNABLES with it (glibc 2.38).
unsigned long memlab_strtoul(const char* text, char** end, int base) {
    return memlab_old_strtoul(text, end, base);
}

// glibc 2.33.
int memlab_stat(const char* path, struct stat* status) {
    return memlab_old_stat(old_stat_version, path, status);
}

int memlab_fstat(int descriptor, struct stat* status) {
    return memlab_old_fstat(old_stat_version, descriptor, status);
}

int memlab_lstat(const char* path, struct stat* status) {
    return memlab_old_lstat(old_stat_version, path, status);
}

// glibc 2.32. "Several threads", which is always right; libstdc++ then counts references
// atomically.
char memlab_single_threaded = 0;

// glibc 2.35. Also what the exceptions in libmemlab.so are thrown with (libgcc_eh).
int memlab_find_object(void* address, dl_find_object* result) {
    static constinit std::atomic<std::uintptr_t> known{0};
    if (const auto found = find_once(known, newer_find_object)) {
        return reinterpret_cast<FindObject>(found)(address, result);
    }
    return memlab::profiler::unwind::find_in_object_table(reinterpret_cast<std::uintptr_t>(address),
                                                          result);
}
