// Lock-free lookup in the dynamic symbol table of one loaded object.
//
// dlsym, dladdr and dlopen take the loader's lock. dlopen holds it while it runs constructors, and
// a constructor may wait for a thread that allocates. So during an allocation symbols are looked up
// here: in the object's mapped hash table, without a lock.
#pragma once

#include <link.h>

#include <cstdint>

namespace memlab::profiler {

/// The object must stay loaded while this is used. Thread-safe.
class ObjectSymbols {
  public:
    /// Of no object: every lookup fails.
    ObjectSymbols() = default;

    /// Of the object with this dynamic section. `bias`: its load bias (link_map::l_addr).
    ObjectSymbols(const ElfW(Dyn) * dynamic, std::uintptr_t bias);

    /// Of the object that contains `address`, if any.
    static ObjectSymbols at(std::uintptr_t address);

    /// Of the main program.
    static ObjectSymbols of_program();

    /// The address of a function or variable; null if the object does not define it.
    void* find(const char* name) const;

    struct Extent {
        std::uintptr_t begin = 0;
        std::uintptr_t bytes = 0;
    };
    /// Where a function or variable lies; no bytes if the object does not define it.
    Extent extent_of(const char* name) const;

    /// Calls `visit` with the name of each function and variable that the object defines.
    template <class Visit>
    void for_each_defined(const Visit& visit) const {
        const std::uint32_t count = symbols_ == nullptr || strings_ == nullptr ? 0 : symbol_count();
        for (std::uint32_t i = 0; i < count; ++i) {
            if (symbols_[i].st_shndx != SHN_UNDEF) {
                visit(strings_ + symbols_[i].st_name);
            }
        }
    }

    /// Whether the object refers to a symbol of that name that it does not define. O(symbols it
    /// does not define) with a GNU hash table; false without one.
    bool refers_to(const char* name) const;

    struct Symbol {
        const char* name = nullptr;  ///< null: none
        std::uintptr_t address = 0;
    };
    /// The function or variable that contains `address`. O(symbols).
    Symbol containing(std::uintptr_t address) const;

  private:
    struct GnuHash {
        std::uint32_t buckets;
        std::uint32_t first_symbol;
        std::uint32_t filter_words;
        std::uint32_t filter_shift;
    };

    const ElfW(Sym) * lookup(const char* name) const;
    bool is(std::uint32_t symbol, const char* name) const;
    std::uint32_t symbol_count() const;
    const std::uint32_t* buckets() const;

    const ElfW(Sym) * symbols_ = nullptr;
    const char* strings_ = nullptr;
    const GnuHash* gnu_hash_ = nullptr;
    const std::uint32_t* hash_ = nullptr;  ///< System V hash table (DT_HASH)
    std::uintptr_t bias_ = 0;
};

}  // namespace memlab::profiler
