#include "interpose/driver/loaded_objects.hpp"

#include <link.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace memlab::interpose {
namespace {

const char* file_name(const dl_phdr_info& info) {
    const char* const slash = std::strrchr(info.dlpi_name, '/');
    return slash == nullptr ? info.dlpi_name : slash + 1;
}

struct ObjectSearch {
    unsigned long long last_loads;
    unsigned long long loads;
    FunctionRef<bool(const char*)> wanted;
    bool found;
};

int visit(dl_phdr_info* info, std::size_t /*size*/, void* data) {
    auto& search = *static_cast<ObjectSearch*>(data);
    search.loads = info->dlpi_adds;
    if (info->dlpi_adds == search.last_loads) {
        return 1;  // nothing loaded since
    }
    search.found = search.wanted(file_name(*info));
    return search.found ? 1 : 0;
}

struct SymbolSearch {
    const char* prefix;
    FunctionRef<bool(const profiler::ObjectSymbols&)> wanted;
};

int visit_symbols(dl_phdr_info* info, std::size_t /*size*/, void* data) {
    const auto& search = *static_cast<const SymbolSearch*>(data);
    if (std::strncmp(file_name(*info), search.prefix, std::strlen(search.prefix)) != 0) {
        return 0;
    }
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)& header = info->dlpi_phdr[i];
        if (header.p_type == PT_DYNAMIC) {
            const auto* const dynamic =
                reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + header.p_vaddr);
            return search.wanted(profiler::ObjectSymbols(dynamic, info->dlpi_addr)) ? 1 : 0;
        }
    }
    return 0;
}

struct PathSearch {
    const char* prefix;
    std::string path;  // of as many bytes as a path may have
};

// Copies: the name is the loader's, and nothing may be thrown through its code.
int visit_paths(dl_phdr_info* info, std::size_t /*size*/, void* data) {
    auto& search = *static_cast<PathSearch*>(data);
    if (std::strncmp(file_name(*info), search.prefix, std::strlen(search.prefix)) != 0 ||
        std::strlen(info->dlpi_name) > search.path.size()) {
        return 0;
    }
    std::memcpy(search.path.data(), info->dlpi_name, std::strlen(info->dlpi_name) + 1);
    return 1;
}

struct AddressSearch {
    std::uintptr_t address;
    const char* name;
};

int visit_ranges(dl_phdr_info* info, std::size_t /*size*/, void* data) {
    auto& search = *static_cast<AddressSearch*>(data);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)& header = info->dlpi_phdr[i];
        if (header.p_type == PT_LOAD &&
            search.address - (info->dlpi_addr + header.p_vaddr) < header.p_memsz) {
            search.name = info->dlpi_name;
            return 1;
        }
    }
    return 0;
}

}  // namespace

std::string loaded_object_at(const void* address) {
    AddressSearch search{reinterpret_cast<std::uintptr_t>(address), nullptr};
    // The name is the loader's: it may go with the object, which the caller's image keeps.
    if (address == nullptr || dl_iterate_phdr(visit_ranges, &search) == 0) {
        return {};
    }
    if (*search.name != 0) {
        return search.name;
    }
    std::string path(4096, 0);
    const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
    path.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
    return path;
}

std::string loaded_object_path(const char* prefix) {
    PathSearch search{prefix, std::string(4096, '\0')};
    dl_iterate_phdr(visit_paths, &search);
    search.path.resize(std::strlen(search.path.c_str()));
    return search.path;
}

bool find_loaded_symbols(const char* prefix,
                         FunctionRef<bool(const profiler::ObjectSymbols&)> wanted) {
    SymbolSearch search{prefix, wanted};
    return dl_iterate_phdr(visit_symbols, &search) != 0;
}

bool find_loaded_object(unsigned long long* loads, FunctionRef<bool(const char*)> wanted) {
    ObjectSearch search{*loads, 0, wanted, false};
    dl_iterate_phdr(visit, &search);
    *loads = search.loads;
    return search.found;
}

}  // namespace memlab::interpose
