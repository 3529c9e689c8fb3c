// The numbers of places in Python code that were seen before, by code object and instruction.
//
// A table that is read without a lock: a line of the cache for each place that is looked up. It
// begins with a few pages, since each one that is touched costs time to translate its address, and
// grows where that is not enough; what it was copied from stays for whoever still reads it.
// Addresses are used again: a code object may be gone and another one lie there. So an entry also
// keeps an identity, and holds only for a code object that has the same one:
//  - where code objects are numbered (3.12 on), their number, which the interpreter gives out once,
//    and first line;
//  - else (3.11; numbers that have run out; other interpreters than the main one, which count for
//    themselves) a hash of what the answer is made of, that FrameNumbers makes. If it is equal, so
//    is the answer: a stale entry is either told apart or says the right thing, but for a collision
//    of 63 bits.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "profiler/python/objects.hpp"

namespace memlab::profiler::python {

/// What a code object is told apart by where they are numbered; 0 for one without a number, as all
/// are in 3.11. Reads two words that lie close to each other.
inline std::uint64_t numbered_identity(const Layout& layout, const void* code) {
    if (layout.code_version == 0) {
        return 0;
    }
    const auto version = read<std::uint32_t>(code, layout.code_version);
    const auto first_line = read<std::uint32_t>(code, layout.code_first_line);
    return version == 0 ? 0 : std::uint64_t{version} << 31 | (first_line & 0x7fffffff);
}
/// A hash as an identity, unlike that of any numbered one.
inline std::uint64_t hashed_identity(std::uint64_t hash) {
    return hash | std::uint64_t{1} << 63;
}

/// Thread-safety: find() from any number of threads, keep() from one at a time.
class KnownPlaces {
  public:
    struct Place {
        const void* code = nullptr;
        std::uint32_t offset = 0;       ///< of the instruction, in bytes
        std::uint32_t table_bytes = 0;  ///< of the line table, that decide about the line
        std::uint64_t identity = 0;
        std::uint32_t number = 0;
    };

    /// Throws std::bad_alloc.
    KnownPlaces() { add_table(first_bits); }

    /// The number of the place, where `is_same(identity, table_bytes)` agrees; 0: not known.
    template <class IsSame>
    std::uint32_t find(const void* code, std::uint32_t offset, const IsSame& is_same) const {
        const auto address = reinterpret_cast<std::uintptr_t>(code);
        const Table& table = *table_.load(std::memory_order_acquire);
        for (const Entry& entry : table.set_of(address, offset).entries) {
            const std::uint32_t version = entry.version.load(std::memory_order_acquire);
            const std::uint64_t known_code = entry.code.load(std::memory_order_acquire);
            const std::uint64_t known_offset =
                entry.offset_and_table_bytes.load(std::memory_order_acquire);
            const std::uint64_t identity = entry.identity.load(std::memory_order_acquire);
            const std::uint32_t number = entry.number.load(std::memory_order_acquire);
            if (known_code == address && known_offset >> 32 == offset && (version & 1) == 0 &&
                entry.version.load(std::memory_order_relaxed) == version &&
                is_same(identity, static_cast<std::uint32_t>(known_offset))) {
                return number;
            }
        }
        return 0;
    }

    /// May take the room of another place. What stood for the same code and offset goes first.
    /// Throws std::bad_alloc, and then has kept nothing.
    void keep(const Place& place);

  private:
    /// One place. Written by one thread at a time: `version` is odd meanwhile.
    struct Entry {
        std::atomic<std::uint32_t> version;
        std::atomic<std::uint32_t> number;
        std::atomic<std::uint64_t> code;
        std::atomic<std::uint64_t> offset_and_table_bytes;
        std::atomic<std::uint64_t> identity;
    };
    static constexpr std::size_t set_size = 2;
    static constexpr unsigned first_bits = 8;
    static constexpr unsigned most_bits = 14;
    struct alignas(64) Set {  // a cache line
        std::array<Entry, set_size> entries;
    };

    struct Table {
        explicit Table(unsigned wanted)
            : bits(wanted), sets(std::make_unique<Set[]>(std::size_t{1} << wanted)) {}
        Set& set_of(std::uintptr_t code, std::uint32_t offset) const {
            const std::uint64_t spread =
                (code ^ std::uint64_t{offset} << 48) * 0x9e3779b97f4a7c15ULL;
            return sets[spread >> (64 - bits)];
        }
        void keep(const Place& place);

        const unsigned bits;
        const std::unique_ptr<Set[]> sets;
        std::size_t lost = 0;  ///< places that others took the room of
    };

    void add_table(unsigned bits);

    std::atomic<const Table*> table_ = nullptr;  ///< the last one of `tables_`
    std::vector<std::unique_ptr<Table>> tables_;
};

}  // namespace memlab::profiler::python
