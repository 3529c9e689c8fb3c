// The numbers of places in Python code that were seen before, by code object and instruction.
//
// A table that is read without a lock: a line of the cache for each place that is looked up. It
// begins with a few pages, since each one that is touched costs time to translate its address, and
// grows where that is not enough; what it was copied from stays for whoever still reads it. An
// entry's first word is made of the place and of the other two words: a reader that sees parts of
// two writes finds neither's place.
// Addresses are used again: a code object may be gone and another one lie there. So an entry also
// keeps an identity, and holds only for a code object that has the same one:
//  - where code objects are numbered (3.12 on), their number, which the interpreter gives out once,
//    and first line;
//  - else (3.11; numbers that have run out; other interpreters than the main one, which count for
//    themselves) a hash of what the answer is made of, that FrameInterner makes. If it is equal, so
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
#include "profiler/word_mix.hpp"

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

/// Thread-safety: view() and find() from any number of threads, keep() from one at a time.
class CodeLocationCache {
    /// One place.
    struct Entry {
        std::atomic<std::uint64_t> check;
        std::atomic<std::uint64_t> identity;
        std::atomic<std::uint64_t> answer;  ///< number, and in the lower half the table's bytes
    };
    static constexpr std::size_t set_size = 2;
    struct alignas(64) Set {  // a cache line
        std::array<Entry, set_size> entries;
    };

  public:
    struct Place {
        const void* code = nullptr;
        std::uint32_t offset = 0;       ///< of the instruction, in bytes
        std::uint32_t table_bytes = 0;  ///< of the line table, that decide about the line
        std::uint64_t identity = 0;     ///< not 0
        std::uint32_t number = 0;       ///< not 0
    };

    /// What is known at a moment, and some of what is added later. As long as the CodeLocationCache
    /// live.
    class View {
      public:
        /// The number of the place, where `is_same(identity, table_bytes)` agrees; 0: not known.
        /// `is_same` is asked of places that were kept alone: `code` need not be one for others.
        template <class IsSame>
        [[gnu::always_inline]] std::uint32_t find(const void* code, std::uint32_t offset,
                                                  const IsSame& is_same) const {
            const std::uint64_t key = key_of(code, offset);
            const std::array<Entry, set_size>& entries = sets_[key >> shift_].entries;
#pragma GCC unroll 2
            for (const Entry& entry : entries) {
                const std::uint64_t identity = entry.identity.load(std::memory_order_relaxed);
                const std::uint64_t answer = entry.answer.load(std::memory_order_relaxed);
                if ((entry.check.load(std::memory_order_relaxed) ^ mixed(identity, answer)) ==
                        key &&
                    is_same(identity, static_cast<std::uint32_t>(answer))) {
                    return static_cast<std::uint32_t>(answer >> 32);
                }
            }
            return 0;
        }

      private:
        friend CodeLocationCache;
        View(const Set* sets, unsigned shift) : sets_(sets), shift_(shift) {}
        const Set* sets_;
        unsigned shift_;
    };

    /// Throws std::bad_alloc.
    CodeLocationCache() {
        add_table(first_bits);
    }

    View view() const {
        const Table& table = *table_.load(std::memory_order_acquire);
        return {table.sets.get(), 64 - table.bits};
    }
    template <class IsSame>
    std::uint32_t find(const void* code, std::uint32_t offset, const IsSame& is_same) const {
        return view().find(code, offset, is_same);
    }

    /// May take the room of another place. What stood for the same code and offset goes first.
    /// Throws std::bad_alloc, and then has kept nothing.
    void keep(const Place& place);

  private:
    static constexpr unsigned first_bits = 8;
    static constexpr unsigned max_bits = 14;

    /// Of two places in one code object never the same; of two objects it hardly ever is, and then
    /// their identities differ. Its upper bits are the good ones.
    static std::uint64_t key_of(const void* code, std::uint32_t offset) {
        return reinterpret_cast<std::uintptr_t>(code) * mix_factor +
               offset * 0xd1342543de82ef95U;  // odd
    }
    static std::uint64_t mixed(std::uint64_t identity, std::uint64_t answer) {
        return mix(identity ^ mix_factor, answer);
    }

    struct Table {
        explicit Table(unsigned wanted)
            : bits(wanted), sets(std::make_unique<Set[]>(std::size_t{1} << wanted)) {}
        void keep(std::uint64_t key, std::uint64_t identity, std::uint64_t answer);

        const unsigned bits;
        const std::unique_ptr<Set[]> sets;
        std::size_t lost = 0;  ///< places that others took the room of
    };

    void add_table(unsigned bits);

    std::atomic<const Table*> table_ = nullptr;  ///< the last one of `tables_`
    std::vector<std::unique_ptr<Table>> tables_;
};

}  // namespace memlab::profiler::python
