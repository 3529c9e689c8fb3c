#include "profiler/loaded_modules.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <unistd.h>

#include <cstring>

namespace memlab::profiler {
namespace {

constexpr char digits[] = "0123456789abcdef";

// The GNU build id from the notes of one mapped PT_NOTE segment.
std::string build_id_in_notes(const char* notes, std::size_t size) {
    std::size_t offset = 0;
    while (size - offset >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) header;
        std::memcpy(&header, notes + offset, sizeof(header));
        const std::size_t name_offset = offset + sizeof(header);
        const std::size_t value_offset = name_offset + ((header.n_namesz + 3U) & ~std::size_t{3});
        const std::size_t next = value_offset + ((header.n_descsz + 3U) & ~std::size_t{3});
        if (next > size || next <= offset) {
            break;
        }
        if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
            std::memcmp(notes + name_offset, "GNU", 4) == 0) {
            std::string id;
            for (std::size_t i = 0; i < header.n_descsz; ++i) {
                const auto byte = static_cast<unsigned char>(notes[value_offset + i]);
                id += digits[byte >> 4];
                id += digits[byte & 15];
            }
            return id;
        }
        offset = next;
    }
    return {};
}

// Reads the build id by the mapped program headers. Every linker puts the ELF header at the start
// of an object's first mapping; checked nevertheless.
std::string read_build_id(std::uintptr_t start, std::uintptr_t end, std::uintptr_t bias) {
    if (end - start < sizeof(ElfW(Ehdr))) {
        return {};
    }
    const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(start);
    if (std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_phentsize != sizeof(ElfW(Phdr)) ||
        header->e_phoff + header->e_phnum * sizeof(ElfW(Phdr)) > 4096) {
        return {};
    }
    const auto* segments = reinterpret_cast<const ElfW(Phdr)*>(start + header->e_phoff);
    for (int i = 0; i < header->e_phnum; ++i) {
        const ElfW(Phdr)& segment = segments[i];
        if (segment.p_type != PT_NOTE) {
            continue;
        }
        const std::uintptr_t notes = bias + segment.p_vaddr;
        if (notes < start || notes + segment.p_memsz > end) {
            continue;
        }
        std::string id = build_id_in_notes(reinterpret_cast<const char*>(notes), segment.p_memsz);
        if (!id.empty()) {
            return id;
        }
    }
    return {};
}

std::string executable_path() {
    std::string path(PATH_MAX, '\0');  // on the heap: the program's stack may be small
    const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
    path.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
    return path;
}

}  // namespace

bool find_loaded_module(std::uintptr_t address, LoadedModule* module) {
    dl_find_object found{};
    if (_dl_find_object(reinterpret_cast<void*>(address), &found) != 0) {
        return false;
    }
    module->start = reinterpret_cast<std::uintptr_t>(found.dlfo_map_start);
    module->end = reinterpret_cast<std::uintptr_t>(found.dlfo_map_end);
    module->bias = found.dlfo_link_map->l_addr;
    module->path = found.dlfo_link_map->l_name;
    module->is_program = module->path.empty();
    if (module->is_program) {
        module->path = executable_path();
    }
    module->build_id = read_build_id(module->start, module->end, module->bias);
    return true;
}

}  // namespace memlab::profiler
