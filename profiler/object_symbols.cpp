#include "profiler/object_symbols.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <sys/auxv.h>

namespace memlab::profiler {
namespace {

// The loader relocates the values in a dynamic section if it is writable (the vDSO's is not).
template <class Pointer>
void set_pointer(Pointer& pointer, std::uintptr_t value, std::uintptr_t bias) {
    pointer = reinterpret_cast<Pointer>(value < bias ? value + bias : value);
}

std::uint32_t hash_gnu(const char* name) {
    std::uint32_t hash = 5381;
    for (; *name != '\0'; ++name) {
        hash = hash * 33 + static_cast<unsigned char>(*name);
    }
    return hash;
}

// strcmp is a sanitizer runtime's in programs that have one, and lookups happen before that is
// initialized.
bool same_text(const char* one, const char* other) {
    for (; *one == *other; ++one, ++other) {
        if (*one == '\0') {
            return true;
        }
    }
    return false;
}

// A function or variable that the object defines.
bool is_defined(const ElfW(Sym) & symbol) {
    const unsigned type = ELF64_ST_TYPE(symbol.st_info);
    return symbol.st_shndx != SHN_UNDEF && symbol.st_value != 0 &&
           (type == STT_NOTYPE || type == STT_FUNC || type == STT_OBJECT);
}

}  // namespace

ObjectSymbols::ObjectSymbols(const ElfW(Dyn) * dynamic, std::uintptr_t bias) : bias_(bias) {
    for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
        const std::uintptr_t value = dynamic->d_un.d_ptr;
        switch (dynamic->d_tag) {
            case DT_SYMTAB:
                set_pointer(symbols_, value, bias);
                break;
            case DT_STRTAB:
                set_pointer(strings_, value, bias);
                break;
            case DT_GNU_HASH:
                set_pointer(gnu_hash_, value, bias);
                break;
            case DT_HASH:
                set_pointer(hash_, value, bias);
                break;
            default:
                break;
        }
    }
}

ObjectSymbols ObjectSymbols::at(std::uintptr_t address) {
    dl_find_object found{};
    if (_dl_find_object(reinterpret_cast<void*>(address), &found) != 0) {
        return {};
    }
    return {found.dlfo_link_map->l_ld, found.dlfo_link_map->l_addr};
}

ObjectSymbols ObjectSymbols::of_program() {
    return at(getauxval(AT_ENTRY));
}

bool ObjectSymbols::is(std::uint32_t symbol, const char* name) const {
    return is_defined(symbols_[symbol]) && same_text(strings_ + symbols_[symbol].st_name, name);
}

const std::uint32_t* ObjectSymbols::buckets() const {
    const auto* const filter = reinterpret_cast<const ElfW(Addr)*>(gnu_hash_ + 1);
    return reinterpret_cast<const std::uint32_t*>(filter + gnu_hash_->filter_words);
}

const ElfW(Sym) * ObjectSymbols::lookup(const char* name) const {
    if (symbols_ == nullptr || strings_ == nullptr) {
        return nullptr;
    }
    if (gnu_hash_ != nullptr && gnu_hash_->buckets != 0) {
        const std::uint32_t hash = hash_gnu(name);
        const std::uint32_t* const all = buckets();
        const std::uint32_t* const chains = all + gnu_hash_->buckets;
        std::uint32_t symbol = all[hash % gnu_hash_->buckets];
        if (symbol < gnu_hash_->first_symbol) {
            return nullptr;
        }
        // A chain holds its symbols' hashes; the lowest bit marks the last one.
        for (;; ++symbol) {
            const std::uint32_t entry = chains[symbol - gnu_hash_->first_symbol];
            if ((entry | 1U) == (hash | 1U) && is(symbol, name)) {
                return &symbols_[symbol];
            }
            if ((entry & 1U) != 0) {
                return nullptr;
            }
        }
    }
    for (std::uint32_t symbol = 0; symbol < symbol_count(); ++symbol) {
        if (is(symbol, name)) {
            return &symbols_[symbol];
        }
    }
    return nullptr;
}

void* ObjectSymbols::find(const char* name) const {
    const ElfW(Sym)* const symbol = lookup(name);
    return symbol == nullptr ? nullptr : reinterpret_cast<void*>(bias_ + symbol->st_value);
}

ObjectSymbols::Extent ObjectSymbols::extent_of(const char* name) const {
    const ElfW(Sym)* const symbol = lookup(name);
    return symbol == nullptr ? Extent{} : Extent{bias_ + symbol->st_value, symbol->st_size};
}

bool ObjectSymbols::refers_to(const char* name) const {
    if (symbols_ == nullptr || strings_ == nullptr || gnu_hash_ == nullptr) {
        return false;
    }
    // The table begins with the symbols that are not defined: the hash table has the others only.
    for (std::uint32_t symbol = 0; symbol < gnu_hash_->first_symbol; ++symbol) {
        if (symbols_[symbol].st_shndx == SHN_UNDEF &&
            same_text(strings_ + symbols_[symbol].st_name, name)) {
            return true;
        }
    }
    return false;
}

std::uint32_t ObjectSymbols::symbol_count() const {
    if (gnu_hash_ == nullptr || gnu_hash_->buckets == 0) {
        return hash_ == nullptr ? 0 : hash_[1];
    }
    // One past the last symbol of the last chain.
    const std::uint32_t* const all = buckets();
    std::uint32_t last = 0;
    for (std::uint32_t i = 0; i < gnu_hash_->buckets; ++i) {
        last = all[i] > last ? all[i] : last;
    }
    if (last < gnu_hash_->first_symbol) {
        return gnu_hash_->first_symbol;
    }
    const std::uint32_t* const chains = all + gnu_hash_->buckets;
    while ((chains[last - gnu_hash_->first_symbol] & 1U) == 0) {
        ++last;
    }
    return last + 1;
}

ObjectSymbols::Symbol ObjectSymbols::containing(std::uintptr_t address) const {
    Symbol nearest;
    if (symbols_ == nullptr || strings_ == nullptr) {
        return nearest;
    }
    const std::uint32_t count = symbol_count();
    for (std::uint32_t i = 0; i < count; ++i) {
        const ElfW(Sym)& symbol = symbols_[i];
        const std::uintptr_t start = bias_ + symbol.st_value;
        if (is_defined(symbol) && address >= start &&
            (address < start + symbol.st_size || (symbol.st_size == 0 && address == start)) &&
            start >= nearest.address) {
            nearest = {strings_ + symbol.st_name, start};
        }
    }
    return nearest;
}

}  // namespace memlab::profiler
