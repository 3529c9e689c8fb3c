#include "interpose/driver/loader.hpp"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string_view>

#include "interpose/driver/hooked_names.hpp"
#include "interpose/driver/reentrancy.hpp"
#include "interpose/driver/work_clock.hpp"
#include "profiler/unwind/object_table.hpp"

// Compiled without instrumentation: runs inside other libraries' lookups, sanitizer runtimes'
// included, before anything is initialized. So what every lookup runs calls no function that such a
// runtime intercepts, as those of strings.

extern "C" {

// Jump targets of dlfcn_stubs.S, set before its first jump.
#pragma GCC visibility push(hidden)
void* (*memlab_next_dlsym)(void*, const char*) = nullptr;
void* (*memlab_next_dlvsym)(void*, const char*, const char*) = nullptr;
void* (*memlab_next_dlopen)(const char*, int) = nullptr;
void* (*memlab_next_dlmopen)(Lmid_t, const char*, int) = nullptr;
#pragma GCC visibility pop
}

namespace memlab::interpose {
namespace {

constinit DlsymFunction found_libc_dlsym = nullptr;
constinit const link_map* memlabs_object = nullptr;

void* not_there(void* /*handle*/, const char* /*name*/) {
    return nullptr;
}

void* no_dlvsym(void* /*handle*/, const char* /*name*/, const char* /*version*/) {
    return nullptr;
}

void* no_dlopen(const char* /*file*/, int /*mode*/) {
    return nullptr;
}

void* no_dlmopen(Lmid_t /*space*/, const char* /*file*/, int /*mode*/) {
    return nullptr;
}

const link_map* object_of(const void* address) {
    Dl_info info{};
    void* object = nullptr;
    return dladdr1(address, &info, &object, RTLD_DL_LINKMAP) != 0
               ? static_cast<const link_map*>(object)
               : nullptr;
}

const link_map* own_object() {
    static const char here = 0;
    return object_of(&here);
}

void* definition(const link_map* object, const char* name) {
    return object == nullptr ? nullptr
                             : profiler::ObjectSymbols(object->l_ld, object->l_addr).find(name);
}

const char* file_name_in(const char* path) {
    const char* name = path;
    for (; *path != '\0'; ++path) {
        name = *path == '/' ? path + 1 : name;
    }
    return name;
}

bool begins_with(const char* text, const char* prefix) {
    for (; *prefix != '\0'; ++text, ++prefix) {
        if (*text != *prefix) {
            return false;
        }
    }
    return true;
}

bool is_libdl(const link_map& object) {
    return begins_with(file_name_in(object.l_name), "libdl.so.2");
}

/// The object that has glibc's own function: libc, before glibc 2.34 libdl.
const link_map* home_of(const char* name) {
    const link_map* const libc = object_of(reinterpret_cast<const void*>(&gnu_get_libc_version));
    if (libc == nullptr || definition(libc, name) != nullptr) {
        return libc;
    }
    const link_map* object = libc;
    while (object->l_prev != nullptr) {
        object = object->l_prev;
    }
    while (object != nullptr && !is_libdl(*object)) {
        object = object->l_next;
    }
    return object;
}

/// The first definition behind memlab. Libraries after the C library in the list were loaded after
/// the program's start; no call is bound to them.
void* next_definition_of(const char* name) {
    const link_map* const home = home_of(name);
    const link_map* const own = own_object();
    void* first = nullptr;
    for (const link_map* object = own == nullptr ? nullptr : own->l_next; object != nullptr;
         object = object->l_next) {
        if (first == nullptr) {
            first = definition(object, name);
        }
        if (object == home) {
            return first;
        }
    }
    return definition(home, name);  // memlab itself came later
}

template <class Function>
void set_target(Function* target, const char* name, Function otherwise) {
    void* const found = next_definition_of(name);
    __atomic_store_n(target, found != nullptr ? reinterpret_cast<Function>(found) : otherwise,
                     __ATOMIC_RELEASE);
}

bool precedes_memlab(const link_map* given) {
    const link_map* const own = __atomic_load_n(&memlabs_object, __ATOMIC_RELAXED);
    const link_map* object = own;
    while (object != nullptr && object != given) {
        object = object->l_prev;
    }
    return object != nullptr && object != own;
}

// Idempotent: threads may do it at the same time. memlab_next_dlsym is set last.
void find_functions() {
    if (__atomic_load_n(&memlab_next_dlsym, __ATOMIC_ACQUIRE) != nullptr) {
        return;
    }
    __atomic_store_n(&memlabs_object, own_object(), __ATOMIC_RELAXED);
    void* const libc = definition(home_of("dlsym"), "dlsym");
    __atomic_store_n(&found_libc_dlsym,
                     libc != nullptr ? reinterpret_cast<DlsymFunction>(libc) : not_there,
                     __ATOMIC_RELEASE);
    set_target(&memlab_next_dlvsym, "dlvsym", no_dlvsym);
    set_target(&memlab_next_dlopen, "dlopen", no_dlopen);
    set_target(&memlab_next_dlmopen, "dlmopen", no_dlmopen);
    set_target(&memlab_next_dlsym, "dlsym", not_there);
}

// Libraries that are opened with RTLD_DEEPBIND and use no CUDA: oneTBB's.
bool is_harmless(const char* file) {
    const char* const name = file_name_in(file);
    return begins_with(name, "libtbb") || begins_with(name, "libirml");
}

}  // namespace

DlsymFunction next_dlsym() {
    find_functions();
    return __atomic_load_n(&memlab_next_dlsym, __ATOMIC_RELAXED);
}

DlsymFunction libc_dlsym() {
    find_functions();
    return __atomic_load_n(&found_libc_dlsym, __ATOMIC_RELAXED);
}

bool stands_before_memlab(const void* code) {
    return code != nullptr &&
           precedes_memlab(static_cast<const link_map*>(containing_object(code)));
}

bool dlsym_is_wrapped() {
    return next_dlsym() != libc_dlsym();
}

// Other libraries' names may have the same prefix.
void note_unknown(const char* name) {
    void* library = loaded_libcuda();
    if (library != nullptr && libc_dlsym()(library, name) != nullptr) {
        on_unknown_function(name);
    }
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
    return libc_dlsym()(RTLD_NEXT, name);
}

void* containing_object(const void* address) {
    dl_find_object found{};
    return _dl_find_object(const_cast<void*>(address), &found) == 0 ? found.dlfo_link_map : nullptr;
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

const void* loaded_library_of(const char* name) {
    void* const library =
        dlopen(is_nvml_name(name) ? "libnvidia-ml.so.1" : "libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
    if (library != nullptr) {
        real_dlclose()(library);
    }
    return library;
}

namespace {

/// What dlsym finds with an object's handle, or null.
void* definition_seen_by(const link_map* object, const char* name) {
    void* const handle =
        dlopen(object->l_name[0] == '\0' ? nullptr : object->l_name, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) {
        return nullptr;
    }
    void* const found = libc_dlsym()(handle, name);
    real_dlclose()(handle);
    return found;
}

/// The definition in `object` itself, or null.
void* definition_in(const link_map* object, const char* name) {
    void* const found = definition_seen_by(object, name);
    return containing_object(found) == object ? found : nullptr;
}

/// The library with the real function of this name, if it was opened for its users alone; or null.
const void* object_not_global(const char* name) {
    if (!is_nvml_name(name) && !is_nccl_name(name)) {
        return libcuda_is_global() ? nullptr : loaded_libcuda();
    }
    const void* const library = loaded_library_of(name);
    return library == containing_object(find_without_memlab(name)) ? nullptr : library;
}

}  // namespace

void* definition_for(const void* object, const char* name) {
    if (object == nullptr) {
        return nullptr;
    }
    void* const found = definition_seen_by(static_cast<const link_map*>(object), name);
    return is_own_export(found) ? nullptr : found;
}

// Follows the loader's search order for objects of the program's start, then later ones. A libcuda,
// NVML or NCCL, that is not globally visible is skipped.
void* next_definition(const void* caller, const char* name) {
    static const char here = 0;
    const void* const own = containing_object(&here);
    const auto* const callers = static_cast<const link_map*>(containing_object(caller));
    if (callers == nullptr || callers == own) {
        return find_without_memlab(name);
    }
    const void* const hidden = object_not_global(name);
    for (const link_map* object = callers->l_next; object != nullptr; object = object->l_next) {
        if (object == hidden || (object == own && find_without_memlab(name) == nullptr)) {
            continue;
        }
        if (void* const found = definition_in(object, name)) {
            return found;
        }
    }
    return libc_dlsym()(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD),
                        name);  // not found: sets dlerror
}

DlcloseFunction real_dlclose() {
    static constinit std::atomic<DlcloseFunction> found{nullptr};
    return find_once(found, "dlclose");
}

}  // namespace memlab::interpose

// Called by dlfcn_stubs.S, which jumps to the targets afterwards.
extern "C" {

/// Whether the name that dlsym is asked for is memlab's.
__attribute__((visibility("hidden"))) int memlab_dlsym_route(const char* name) {
    memlab::interpose::next_dlsym();
    // What dlopen has just loaded is rarely entered otherwise.
    memlab::profiler::unwind::update_object_table();
    if (name == nullptr) {
        return 0;
    }
    if (memlab::interpose::is_interposed_name(name)) {
        return 1;
    }
    // Names like cuda..., curl_..., cublas... are ignored; an unknown function of the driver is
    // not.
    if (name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z' &&
        !memlab::interpose::is_known_symbol(name)) {
        memlab::interpose::note_unknown(name);
    }
    return 0;
}

/// Whether dlvsym asks for a dlsym on behalf of code that stands before memlab: of another library
/// that wraps dlsym, which would bypass memlab. `caller` is a return address.
__attribute__((visibility("hidden"))) int memlab_dlvsym_route(const char* name,
                                                              const void* caller) {
    memlab::interpose::find_functions();
    return name != nullptr && memlab::interpose::begins_with(name, "dlsym") && name[5] == '\0' &&
                   memlab::interpose::precedes_memlab(memlab::interpose::object_of(caller))
               ? 1
               : 0;
}

/// dlvsym for such code: memlab's dlsym where it would get the next one.
__attribute__((visibility("hidden"))) void* memlab_dlvsym_of_dlsym(void* handle, const char* name,
                                                                   const char* version) {
    void* const found = memlab_next_dlvsym(handle, name, version);
    const bool is_next = found == reinterpret_cast<void*>(memlab::interpose::libc_dlsym()) ||
                         (found != nullptr && handle == RTLD_NEXT);
    return is_next ? reinterpret_cast<void*>(&dlsym) : found;
}

/// Before dlopen, and dlmopen, which passes its namespace.
__attribute__((visibility("hidden"))) void memlab_before_dlopen(Lmid_t space, const char* file,
                                                                int mode) {
    memlab::interpose::find_functions();
    const bool unseen = (mode & RTLD_DEEPBIND) != 0 || space != LM_ID_BASE;
    if (unseen && (mode & RTLD_NOLOAD) == 0 && file != nullptr &&
        !memlab::interpose::is_harmless(file)) {
        memlab::interpose::on_unseen_library();
    }
}
}
