// Weak references to the driver's and CUPTI's functions, by which a program finds out whether it
// was linked or preloaded with them. Where neither is, memlab's own exports would answer, and the
// program would call a driver that is not there.
//
// The loader binds weak references as any others, and there is no telling it otherwise: an indirect
// function (IFUNC) could answer null, but the loader warns of each library that refers to one
// before memlab is relocated. So what it bound to memlab is taken back when all is relocated and
// before any of the program's own code runs, where nobody else defines the name. What was found
// missing at the start stays missing, as it does without memlab.
//
// It runs in every process, so it must cost nothing: the symbols that an object refers to come
// before those that it defines, and few of them are weak. Only where one is ours are relocations
// looked at. Of a library that is loaded later references stay: nothing of ours runs between its
// relocation and its code. Nor can the exports be hidden from the loader until there is a driver
// (with null for their values in our own symbol table): one dlopen may load a driver together with
// what is linked with it, and relocates both before anything runs, past us then.
//
// Compiled without instrumentation: it runs before anything is set up.
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

namespace memlab::interpose {
namespace {

constinit bool there_first = false;
constinit bool wrapped = false;

/// What the dynamic section of a loaded object says.
struct DynamicTables {
    const ElfW(Sym) * symbols = nullptr;
    const char* names = nullptr;
    const std::uint32_t* gnu_hash = nullptr;
    const ElfW(Rela) * relocations[2] = {};
    std::size_t relocation_bytes[2] = {};
};

DynamicTables tables_of(const link_map& object) {
    DynamicTables tables;
    for (const ElfW(Dyn)* entry = object.l_ld; entry->d_tag != DT_NULL; ++entry) {
        // Made absolute by the loader, but for the kernel's own object, which it may not write.
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
    return name[0] == 'c' && name[1] == 'u' &&
           (is_hooked_name(name) || is_subscribing_name(name)) && found_without_us(name) == nullptr;
}

/// The loader may have made the place read-only after relocating it.
void clear(std::uintptr_t place) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    void* const begin = reinterpret_cast<void*>(place & ~(page - 1));
    if (mprotect(begin, page, PROT_READ | PROT_WRITE) == 0) {
        *reinterpret_cast<std::uintptr_t*>(place) = 0;
    }
}

/// After clear(): what lies in the range that is to be read-only becomes so again.
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

bool has_weak_reference_to_us(const DynamicTables& tables) {
    const std::uint32_t first_defined = tables.gnu_hash[1];
    for (std::uint32_t i = 1; i < first_defined; ++i) {
        if (is_weak_reference_to_us(tables, tables.symbols[i])) {
            return true;
        }
    }
    return false;
}

void take_back(const link_map& object, const dl_phdr_info& info) {
    const DynamicTables tables = tables_of(object);
    if (tables.symbols == nullptr || tables.names == nullptr || tables.gnu_hash == nullptr ||
        !has_weak_reference_to_us(tables)) {
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
            const std::uintptr_t place = object.l_addr + relocation.r_offset;
            if (is_weak_reference_to_us(tables, tables.symbols[ELF64_R_SYM(relocation.r_info)]) &&
                is_own_export(*reinterpret_cast<void* const*>(place))) {
                clear(place);
            }
        }
    }
    protect_again(object, info.dlpi_phdr, info.dlpi_phnum);
}

int visit(dl_phdr_info* info, std::size_t /*size*/, void* /*unused*/) {
    const auto* const object = static_cast<const link_map*>(object_of(info->dlpi_phdr));
    if (object != nullptr && object->l_addr == info->dlpi_addr && object->l_ld != nullptr) {
        take_back(*object, *info);
    }
    return 0;
}

__attribute__((constructor)) void take_back_weak_references() {
    real_dlsym();  // the search for it takes the loader's lock, which later may be held
    unsigned long long loads = 0;
    there_first = find_loaded_object(&loads, [](const char* file) {
        return std::strncmp(file, "libcuda.so", std::strlen("libcuda.so")) == 0;
    });
    if (!there_first) {
        dl_iterate_phdr(visit, nullptr);
        return;
    }
    // Asked now, when no other thread can hold the loader's lock.
    const void* const library = object_of(libcuda_symbols().find("cuInit"));
    wrapped =
        std::any_of(hooked_names.begin(), hooked_names.end(), [library](std::string_view name) {
            const void* const next = found_without_us(name.data());
            return next != nullptr && object_of(next) != library;
        });
}

}  // namespace

bool libcuda_was_there_first() {
    return there_first;
}

bool driver_is_wrapped() {
    return wrapped;
}

}  // namespace memlab::interpose
