// The symbols that one loaded object exports, read where the loader mapped them.
//
// dlsym, dladdr and dlopen take the loader's lock. dlopen holds it while it runs constructors, and
// a constructor may wait for a thread that allocates. So on the way of an allocation symbols are
// looked up here: in the object's own hash table, without a lock.
#pragma once

#include <link.h>

#include <cstdint>

namespace memlab::profiler {

/// The object must stay loaded as long as this is used. Thread-safe.
class ObjectSymbols {
  public:
    /// Of no object: nothing is found.
    ObjectSymbols() = default;

    /// By its dynamic section; `bias`: its addresses less those in its file.
    ObjectSymbols(const ElfW(Dyn) * dynamic, std::uintptr_t bias);

    /// Of the object that `address` lies in; of none when there is no such object.
    static ObjectSymbols at(std::uintptr_t address);

    /// Of the program itself.
    static ObjectSymbols of_program();

    /// The address of the function or variable; null when the object does not define it.
    void* find(const char* name) const;

    struct Symbol {
        const char* name = nullptr;  ///< null: none
        std::uintptr_t address = 0;
    };
    /// The function or variable that `address` lies in. O(symbols).
    Symbol containing(std::uintptr_t address) const;

  private:
    struct GnuHash {
        std::uint32_t buckets;
        std::uint32_t first_symbol;
        std::uint32_t filter_words;
        std::uint32_t filter_shift;
    };

    bool is(std::uint32_t symbol, const char* name) const;
    std::uint32_t symbol_count() const;
    const std::uint32_t* buckets() const;

    const ElfW(Sym) * symbols_ = nullptr;
    const char* strings_ = nullptr;
    const GnuHash* gnu_hash_ = nullptr;
    const std::uint32_t* hash_ = nullptr;  ///< System V's, where there is no other
    std::uintptr_t bias_ = 0;
};

}  // namespace memlab::profiler
