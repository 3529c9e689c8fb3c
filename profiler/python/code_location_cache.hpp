// A 2-way set-associative cache of Python frame ids, by code object and instruction.
//
// Read without a lock: one cache line per lookup. It starts with a few pages, to save TLB misses,
// and grows when too much is evicted; earlier tables stay alive for concurrent readers. An entry's
// first word is a checksum of the key and the other two words: a reader that sees a torn write
// finds no match.
//
// Addresses are reused: another code object may be at a freed one's address. So an entry has an
// identity, and matches only a code object with the same one:
//  - for code objects with a version (3.12 on), the version, which the interpreter never reuses,
//    and the first line;
//  - else (3.11; versions exhausted; subinterpreters, which count versions on their own) a hash of
//    all that the id depends on, made by FrameInterner. An equal hash implies the same id, so a
//    stale entry is rejected or right, except for a collision of 63 bits.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "profiler/python/objects.hpp"
#include "profiler/word_mix.hpp"

namespace memlab::profiler::python {

/// The identity of a code object with a version; 0 for one without, as all are in 3.11. Reads two
/// words close to each other.
inline std::uint64_t versioned_identity(const Layout& layout, const void* code) {
    if (layout.code_version == 0) {
        return 0;
    }
    const auto version = read<std::uint32_t>(code, layout.code_version);
    const auto first_line = read<std::uint32_t>(code, layout.code_first_line);
    return version == 0 ? 0 : std::uint64_t{version} << 31 | (first_line & 0x7fffffff);
}
/// A hash as an identity, distinct from all versioned ones.
inline std::uint64_t hashed_identity(std::uint64_t hash) {
    return hash | std::uint64_t{1} << 63;
}

/// Thread-safety: view() and find() from any number of threads, insert() from one at a time.
class CodeLocationCache {
    struct Entry {
        std::atomic<std::uint64_t> check;
        std::atomic<std::uint64_t> identity;
        std::atomic<std::uint64_t> value;  ///< upper half: id; lower half: table_bytes
    };
    static constexpr std::size_t ways = 2;
    struct alignas(64) Set {
        std::array<Entry, ways> entries;
    };

  public:
    struct Location {
        const void* code = nullptr;
        std::uint32_t offset = 0;       ///< of the instruction, in bytes
        std::uint32_t table_bytes = 0;  ///< length of the line table's prefix that gives the line
        std::uint64_t identity = 0;     ///< not 0
        std::uint32_t id = 0;           ///< not 0
    };

    /// The current table. Sees some later insertions. Valid as long as the cache.
    class View {
      public:
        /// The id of the location if `is_same(identity, table_bytes)` is true; else 0. `is_same` is
        /// only called for a cached address: otherwise `code` need not be a code object.
        template <class IsSame>
        [[gnu::always_inline]] std::uint32_t find(const void* code, std::uint32_t offset,
                                                  const IsSame& is_same) const {
            const std::uint64_t key = make_key(code, offset);
            const std::array<Entry, ways>& entries = sets_[key >> shift_].entries;
            // Which of the ways has it cannot be predicted, that one has it can: no branches until
            // then. Torn writes apart it is in one way only.
            std::uint64_t found_identity = 0;
            std::uint64_t found = 0;
#pragma GCC unroll 2
            for (const Entry& entry : entries) {
                const std::uint64_t identity = entry.identity.load(std::memory_order_relaxed);
                const std::uint64_t value = entry.value.load(std::memory_order_relaxed);
                const std::uint64_t check = entry.check.load(std::memory_order_relaxed);
                const auto is_it = std::uint64_t{(check ^ checksum(identity, value)) == key};
                found_identity |= identity & (0 - is_it);
                found |= value & (0 - is_it);
            }
            return found != 0 && is_same(found_identity, static_cast<std::uint32_t>(found))
                       ? static_cast<std::uint32_t>(found >> 32)
                       : 0;
        }

      private:
        friend CodeLocationCache;
        View(const Set* sets, unsigned shift) : sets_(sets), shift_(shift) {}
        const Set* sets_;
        unsigned shift_;
    };

    /// Throws std::bad_alloc.
    CodeLocationCache() {
        add_table(initial_bits);
    }

    View view() const {
        const Table& table = *table_.load(std::memory_order_acquire);
        return {table.sets.get(), 64 - table.bits};
    }
    template <class IsSame>
    std::uint32_t find(const void* code, std::uint32_t offset, const IsSame& is_same) const {
        return view().find(code, offset, is_same);
    }

    /// Replaces an entry of the same code and offset; else may evict another one. Strong exception
    /// guarantee; throws std::bad_alloc.
    void insert(const Location& location);

  private:
    static constexpr unsigned initial_bits = 8;
    static constexpr unsigned max_bits = 14;

    /// Unique within one code object; on a rare collision of two objects their identities differ.
    /// The upper bits are well mixed.
    static std::uint64_t make_key(const void* code, std::uint32_t offset) {
        return reinterpret_cast<std::uintptr_t>(code) * mix_factor +
               offset * 0xd1342543de82ef95U;  // odd
    }
    static std::uint64_t checksum(std::uint64_t identity, std::uint64_t value) {
        return mix(identity ^ mix_factor, value);
    }

    struct Table {
        explicit Table(unsigned set_bits)
            : bits(set_bits), sets(std::make_unique<Set[]>(std::size_t{1} << set_bits)) {}
        void insert(std::uint64_t key, std::uint64_t identity, std::uint64_t value);

        const unsigned bits;
        const std::unique_ptr<Set[]> sets;
        std::size_t evictions = 0;
    };

    void add_table(unsigned bits);

    std::atomic<const Table*> table_ = nullptr;  ///< tables_.back()
    std::vector<std::unique_ptr<Table>> tables_;
};

}  // namespace memlab::profiler::python
