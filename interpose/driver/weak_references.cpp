// What the references of the objects of a program's start say, before any of its code runs.
//
// Functions of the driver that memlab does not know, in objects that are linked with libcuda, are
// noted: dlsym is never called for them. References of libraries loaded later are not seen.
//
// Weak references to the driver's, CUPTI's and NVML's functions that the loader bound to memlab are
// reset. A program uses such references to find out whether the library is present, or whether it
// is new enough for a function; bound to memlab's exports, it would call what is not there.
//
// The loader binds weak references like any others. An indirect function (IFUNC) could resolve to
// null, but the loader then warns about each library that refers to it before memlab is relocated.
// So the references are reset after relocation and before any code of the program runs, if nothing
// else defines the name. As without memlab, what was missing at the start stays missing.
//
// This runs in every process and must be cheap: undefined symbols come first in an object's symbol
// table, and few are weak. Relocations are scanned only if one of them is hooked. References of
// libraries loaded later are not reset: no memlab code runs between their relocation and their
// code. Hiding the exports until there is a driver (null values in memlab's own symbol table) does
// not work either: one dlopen may load a driver together with its users and relocates both before
// anything runs, which would bypass memlab.
//
// Compiled without instrumentation: it runs before anything is initialized.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "interpose/driver/hooked_names.hpp"
#include "interpose/driver/loaded_objects.hpp"
#include "interpose/driver/loader.hpp"
#include "interpose/driver/reentrancy.hpp"
#include "interpose/driver/work_clock.hpp"

namespace memlab::interpose {
namespace {

constinit bool loaded_at_start = false;
constinit bool driver_wrapped = false;

/// The parts of an object's dynamic section that are needed here.
struct DynamicTables {
    const ElfW(Sym) * symbols = nullptr;
    const char* names = nullptr;
    const std::uint32_t* gnu_hash = nullptr;
    const ElfW(Rela) * relocations[2] = {};
    std::size_t relocation_bytes[2] = {};
};

DynamicTables read_dynamic_tables(const link_map& object) {
    DynamicTables tables;
    for (const ElfW(Dyn)* entry = object.l_ld; entry->d_tag != DT_NULL; ++entry) {
        // The loader makes these absolute, except in the vDSO, which is read-only.
        const ElfW(Addr) address = entry->d_un.d_ptr < object.l_addr
                                       ? object.l_addr + entry->d_un.d_ptr
                                       : entry->d_un.d_ptr;
        switch (entry->d_tag) {
            case DT_SYMTAB:
                tables.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
                break;
            case DT_STRTAB:
                tables.names = reinterpret_cast<const char*>(address);
                break;
            case DT_GNU_HASH:
                tables.gnu_hash = reinterpret_cast<const std::uint32_t*>(address);
                break;
            case DT_RELA:
                tables.relocations[0] = reinterpret_cast<const ElfW(Rela)*>(address);
                break;
            case DT_RELASZ:
                tables.relocation_bytes[0] = entry->d_un.d_val;
                break;
            case DT_JMPREL:
                tables.relocations[1] = reinterpret_cast<const ElfW(Rela)*>(address);
                break;
            case DT_PLTRELSZ:
                tables.relocation_bytes[1] = entry->d_un.d_val;
                break;
            default:
                break;
        }
    }
    return tables;
}

bool is_weak_reference_to_us(const DynamicTables& tables, const ElfW(Sym) & symbol) {
    if (ELF64_ST_BIND(symbol.st_info) != STB_WEAK || symbol.st_shndx != SHN_UNDEF) {
        return false;
    }
    const char* const name = tables.names + symbol.st_name;
    return is_interposed_name(name) && find_without_memlab(name) == nullptr;
}

/// Zeroes the slot, which RELRO may have made read-only.
void clear(std::uintptr_t slot) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    void* const begin = reinterpret_cast<void*>(slot & ~(page - 1));
    if (mprotect(begin, page, PROT_READ | PROT_WRITE) == 0) {
        *reinterpret_cast<std::uintptr_t*>(slot) = 0;
    }
}

/// After clear(): makes the RELRO range read-only again.
void protect_again(const link_map& object, const ElfW(Phdr) * headers, std::size_t count) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    for (std::size_t i = 0; i < count; ++i) {
        if (headers[i].p_type == PT_GNU_RELRO) {
            const std::uintptr_t begin = (object.l_addr + headers[i].p_vaddr) & ~(page - 1);
            const std::uintptr_t end =
                (object.l_addr + headers[i].p_vaddr + headers[i].p_memsz) & ~(page - 1);
            if (begin < end) {
                mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ);
            }
        }
    }
}

/// Whether the object is linked with libcuda.
bool needs_driver(const link_map& object, const DynamicTables& tables) {
    for (const ElfW(Dyn)* entry = object.l_ld; entry->d_tag != DT_NULL; ++entry) {
        constexpr std::string_view library = "libcuda.so";
        if (entry->d_tag == DT_NEEDED &&
            std::strncmp(tables.names + entry->d_un.d_val, library.data(), library.size()) == 0) {
            return true;
        }
    }
    return false;
}

/// False only if there is none. In objects that were linked with libcuda such references stand
/// among the defined symbols, which are many.
bool may_refer_weakly_to_us(const link_map& object, const DynamicTables& tables) {
    if (needs_driver(object, tables)) {
        return true;
    }
    const std::uint32_t first_defined = tables.gnu_hash[1];
    for (std::uint32_t i = 1; i < first_defined; ++i) {
        if (is_weak_reference_to_us(tables, tables.symbols[i])) {
            return true;
        }
    }
    return false;
}

void clear_weak_references(const link_map& object, const dl_phdr_info& info) {
    const DynamicTables tables = read_dynamic_tables(object);
    if (tables.symbols == nullptr || tables.names == nullptr || tables.gnu_hash == nullptr ||
        !may_refer_weakly_to_us(object, tables)) {
        return;
    }
    for (std::size_t table = 0; table < 2; ++table) {
        const std::size_t count = tables.relocation_bytes[table] / sizeof(ElfW(Rela));
        for (std::size_t i = 0; tables.relocations[table] != nullptr && i < count; ++i) {
            const ElfW(Rela)& relocation = tables.relocations[table][i];
            const std::uint64_t type = ELF64_R_TYPE(relocation.r_info);
            if (type != R_X86_64_GLOB_DAT && type != R_X86_64_JUMP_SLOT && type != R_X86_64_64) {
                continue;
            }
            const std::uintptr_t slot = object.l_addr + relocation.r_offset;
            if (is_weak_reference_to_us(tables, tables.symbols[ELF64_R_SYM(relocation.r_info)]) &&
                is_own_export(*reinterpret_cast<void* const*>(slot))) {
                clear(slot);
            }
        }
    }
    protect_again(object, info.dlpi_phdr, info.dlpi_phnum);
}

const link_map* loaded_object_of(const dl_phdr_info& info) {
    const auto* const object = static_cast<const link_map*>(containing_object(info.dlpi_phdr));
    return object != nullptr && object->l_addr == info.dlpi_addr && object->l_ld != nullptr
               ? object
               : nullptr;
}

int clear_in_object(dl_phdr_info* info, std::size_t /*size*/, void* /*unused*/) {
    if (const link_map* const object = loaded_object_of(*info)) {
        clear_weak_references(*object, *info);
    }
    return 0;
}

/// A reference to a function that could be the driver's and that memlab does not know.
bool is_unknown_reference(const DynamicTables& tables, const ElfW(Sym) & symbol) {
    const char* const name = tables.names + symbol.st_name;
    return symbol.st_shndx == SHN_UNDEF && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' &&
           name[2] <= 'Z' && !is_interposed_name(name) && !is_known_symbol(name);
}

// Names are noted when the loader's lock is free: there are rarely any.
constexpr std::size_t max_unknown = 16;
struct UnknownReferences {
    const char* names[max_unknown] = {};
    std::size_t count = 0;
};

int find_unknown_in_object(dl_phdr_info* info, std::size_t /*size*/, void* found) {
    const link_map* const object = loaded_object_of(*info);
    const DynamicTables tables = object == nullptr ? DynamicTables() : read_dynamic_tables(*object);
    if (tables.symbols == nullptr || tables.names == nullptr || !needs_driver(*object, tables)) {
        return 0;
    }
    auto& unknown = *static_cast<UnknownReferences*>(found);
    for (std::size_t table = 0; table < 2; ++table) {
        const std::size_t count = tables.relocation_bytes[table] / sizeof(ElfW(Rela));
        for (std::size_t i = 0; tables.relocations[table] != nullptr && i < count; ++i) {
            const ElfW(Sym)& symbol =
                tables.symbols[ELF64_R_SYM(tables.relocations[table][i].r_info)];
            if (unknown.count < max_unknown && is_unknown_reference(tables, symbol)) {
                unknown.names[unknown.count++] = tables.names + symbol.st_name;
            }
        }
    }
    return 0;
}

__attribute__((constructor)) void clear_weak_references_at_start() {
    libc_dlsym();  // looked up now: it takes the loader's lock, which may be held later
    unsigned long long loads = 0;
    loaded_at_start = find_loaded_object(&loads, [](const char* file) {
        return std::strncmp(file, "libcuda.so", std::strlen("libcuda.so")) == 0;
    });
    dl_iterate_phdr(clear_in_object, nullptr);
    if (!loaded_at_start) {
        return;
    }
    UnknownReferences unknown;
    dl_iterate_phdr(find_unknown_in_object, &unknown);
    for (std::size_t i = 0; i < unknown.count; ++i) {
        note_unknown(unknown.names[i]);
    }
    // Determined now, while no other thread can hold the loader's lock.
    const void* const library = containing_object(libcuda_symbols().find("cuInit"));
    driver_wrapped =
        std::any_of(hooked_names.begin(), hooked_names.end(), [library](std::string_view name) {
            const void* const next = find_without_memlab(name.data());
            return next != nullptr && containing_object(next) != library;
        });
}

}  // namespace

bool libcuda_loaded_at_start() {
    return loaded_at_start;
}

bool driver_is_wrapped() {
    return driver_wrapped;
}

}  // namespace memlab::interpose
