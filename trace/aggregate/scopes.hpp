// What happened to memory inside the program's scopes; docs/scopes.md defines the figures.
//
// A thread's scopes nest. An allocation belongs to the innermost open scope of its thread and to
// all around it; one of a thread without scopes (PyTorch's autograd threads) to those of the only
// thread that has any, where there is only one. Ranges of the process may overlap: an allocation of
// any thread belongs to all that are open. Scopes with the same path of names are one row.
//
// How that stays O(1) an event: a thread's allocations and frees are counted in one place, and a
// scope's are the difference between its end and its begin. What it holds is in a table of its own
// until it ends, and then goes to the scope around it; a free finds the table by the number of the
// allocation, since an open scope that began before it holds it. The highest level since each begin
// is kept in the order of the begins, over all threads: only the newest open scope needs to look.
// The end of a scope costs as much as the sites that it leaves behind; that of a range also as much
// as there are scopes begun after it and still open.
//
// Memory is bounded: so many rows, sites in a row, scopes in scopes, open ranges. Names that differ
// in their numbers alone are rows of their own until there are too many; then they are one.
//
// Only device memory counts: the kinds that are in the curves, of all devices together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/aggregate/name_families.hpp"
#include "trace/aggregate/site_table.hpp"

namespace memlab::trace {

/// A row of the table of scopes.
struct ScopeTotals {
    static constexpr std::uint32_t no_parent = std::numeric_limits<std::uint32_t>::max();

    std::uint32_t parent = no_parent;  ///< index of the scope around it, always before it
    bool range = false;                ///< of the process, not of a thread
    std::string name = {};
    std::uint64_t entries = 0;
    std::uint64_t open = 0;  ///< of the entries, those that have not ended
    std::uint64_t duration_ns = 0;
    std::uint64_t allocated_count = 0;
    std::uint64_t allocated_bytes = 0;
    std::uint64_t other_threads_count = 0;  ///< of allocated: by threads without scopes
    std::uint64_t other_threads_bytes = 0;
    std::uint64_t freed_count = 0;
    std::uint64_t freed_bytes = 0;
    std::uint64_t peak_bytes = 0;         ///< the allocated curve's highest while one was open
    std::uint64_t peak_growth_bytes = 0;  ///< the most that it rose above an entry's begin
    std::uint64_t escaped_count = 0;      ///< allocated inside and alive at the end of the entry
    std::uint64_t escaped_bytes = 0;
    std::uint64_t most_escaped_bytes = 0;            ///< of one entry
    std::vector<SiteTable::Item> escaped_from = {};  ///< largest first; not all, see max_sites
};

/// Signs that begins and ends do not match.
struct UnbalancedScopes {
    std::uint64_t ends_without_begin = 0;
    std::uint64_t ended_with_thread = 0;
    std::uint64_t too_many_open = 0;  ///< begins that were not followed: too deep, too many ranges
};

class ScopeFigures {
  public:
    static constexpr std::size_t max_scopes = 2048;
    static constexpr std::size_t max_sites = 256;    ///< in ScopeTotals::escaped_from
    static constexpr std::size_t max_variants = 64;  ///< of one family in one scope
    static constexpr std::size_t max_depth = 64;     ///< of one thread
    static constexpr std::size_t max_ranges = 4096;  ///< open at a time

    /// A scope that ended, as a step of the program.
    struct Ended {
        bool happened = false;
        bool range = false;
        bool outermost = false;  ///< no scope around it has been entered twice
        std::uint32_t path = 0;  ///< of name families
    };

    ScopeFigures();

    /// True while allocated() and freed() must be told.
    bool any_open() const { return open_count_ != 0; }
    bool any() const { return !scopes_.empty(); }

    /// Which scope begins or ends.
    struct Place {
        std::uint32_t thread = 0;
        std::uint64_t domain = 0;  ///< ends are those of the innermost scope of their domain
        std::uint64_t range = 0;   ///< a range of the process, else 0
    };

    /// `level` is the allocated curve, all devices together; `serial` the number of the latest
    /// allocation. May throw std::bad_alloc.
    void begin(const Place& place, std::uint32_t name, const std::string& text,
               std::uint64_t now_ns, std::uint64_t level, std::uint64_t serial);
    Ended end(const Place& place, std::uint64_t now_ns);
    void end_thread(std::uint32_t thread, std::uint64_t now_ns);

    /// Returns what freed() wants to know of the allocation. May throw std::bad_alloc, and then has
    /// counted nothing.
    std::uint32_t allocated(std::uint32_t thread, std::uint32_t site, std::uint64_t bytes);
    /// `freeing` is the thread that gave it back; none: it is gone for another reason. `serial` is
    /// the allocation's number.
    void freed(std::optional<std::uint32_t> freeing, std::uint32_t owner, std::uint32_t site,
               std::uint64_t bytes, std::uint64_t serial);

    /// The table as of now, entries that are open included. May throw std::bad_alloc.
    std::vector<ScopeTotals> totals(std::uint64_t now_ns) const;
    const UnbalancedScopes& unbalanced() const { return unbalanced_; }
    std::uint64_t open_count() const { return open_count_; }

    NameFamilies& families() { return families_; }
    /// "epoch #/step #": a path of Ended's.
    std::string path_text(std::uint32_t path) const;
    const std::string& family_text(std::uint32_t family) const { return families_.text(family); }

  private:
    static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

    struct Counts {
        std::uint64_t allocated = 0;
        std::uint64_t allocated_bytes = 0;
        std::uint64_t others = 0;
        std::uint64_t others_bytes = 0;
        std::uint64_t freed = 0;
        std::uint64_t freed_bytes = 0;
    };
    struct Scope {
        ScopeTotals totals;  ///< of the entries that ended; parent is a root or not merged away
        std::uint32_t merged_into = none;
        std::uint32_t name = none;  ///< string id; none: the row of a whole family
        std::uint32_t family = 0;
        std::uint32_t path = 0;
        SiteTable escaped;
    };
    /// One entry that is open.
    struct Entry {
        std::uint32_t scope = 0;
        std::uint64_t domain = 0;
        std::uint64_t range = 0;
        std::uint64_t serial = 0;  ///< allocations with a greater number were made inside
        std::uint64_t begin_ns = 0;
        std::uint64_t level = 0;
        Counts at_begin;
        /// The highest level since the begin and before the begin of `later`.
        std::uint64_t highest = 0;
        std::uint32_t earlier = none;  ///< open entries in the order of their begins
        std::uint32_t later = none;
        SiteTable held;
    };
    /// Of one thread, or the ranges of the process.
    struct Stack {
        std::uint32_t thread = 0;
        Counts counts;
        std::vector<std::uint32_t> open;  ///< entries, in the order of their begins
        std::uint64_t too_deep = 0;
    };
    struct Family {
        std::uint32_t variants = 0;
        std::uint32_t merged = none;  ///< the row of all of them
    };
    struct PathPart {
        std::uint32_t parent = none;
        std::uint32_t family = 0;
    };

    static std::uint64_t key(std::uint32_t high, std::uint32_t low) {
        return (std::uint64_t{high} << 32) | low;
    }
    /// Roots: threads' scopes and ranges are apart, also where their names are equal.
    static constexpr std::uint32_t thread_root = none;
    static constexpr std::uint32_t range_root = none - 1;

    std::uint32_t resolve(std::uint32_t scope) const;
    std::uint32_t scope_of(std::uint32_t parent, std::uint32_t name, const std::string& text);
    std::uint32_t add_scope(std::uint32_t parent, std::uint32_t name, std::uint32_t family,
                            const std::string& text);
    std::uint32_t path_of(std::uint32_t parent_path, std::uint32_t family);
    void merge_family(std::uint32_t parent, std::uint32_t family, std::uint32_t into);
    void merge(std::uint32_t from, std::uint32_t into);
    bool entered_once_around(std::uint32_t scope) const;
    static void add_escaped(Scope& scope, const SiteTable& table, std::uint64_t& count,
                            std::uint64_t& bytes);

    std::uint32_t stack_of(std::uint32_t thread, bool create);
    std::uint32_t owner_of(std::uint32_t thread) const;
    void close(std::uint32_t stack, std::size_t position, std::uint64_t now_ns);
    void retire(std::uint32_t thread, std::uint32_t stack);
    std::uint64_t highest_since(std::uint32_t entry) const;
    static void add_open(ScopeTotals& totals, const Entry& entry, const Counts& now,
                         std::uint64_t highest, std::uint64_t now_ns);
    void hold(Stack& stack, std::uint32_t site, std::uint64_t bytes);
    void release(Stack& stack, std::uint32_t site, std::uint64_t bytes, std::uint64_t serial);

    NameFamilies families_;
    std::vector<Scope> scopes_;
    std::unordered_map<std::uint64_t, std::uint32_t> children_;  ///< (scope, name): a scope
    std::unordered_map<std::uint64_t, Family> variants_;         ///< by (scope, family)
    std::vector<PathPart> paths_;
    std::unordered_map<std::uint64_t, std::uint32_t> path_index_;

    std::vector<Entry> entries_;
    std::vector<std::uint32_t> unused_entries_;
    std::uint32_t newest_ = none;
    std::uint64_t open_count_ = 0;
    std::uint64_t level_ = 0;  ///< while any is open

    std::vector<Stack> stacks_;  ///< the first: ranges of the process
    std::vector<std::uint32_t> unused_stacks_;
    std::unordered_map<std::uint32_t, std::uint32_t> stack_of_thread_;  ///< with open scopes
    std::uint32_t threads_xor_ = 0;  ///< of their stacks: the stack itself where there is one
    std::uint64_t ranges_not_followed_ = 0;
    UnbalancedScopes unbalanced_;
};

}  // namespace memlab::trace
