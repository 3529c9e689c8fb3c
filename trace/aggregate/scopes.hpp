// Memory statistics per scope of the program; docs/scopes.md defines the figures.
//
// A thread's scopes nest. An allocation belongs to the innermost open scope of its thread and to
// all scopes around that. If its thread has no scopes (PyTorch's autograd threads) and exactly one
// other thread has some, it belongs to those. Ranges of the process may overlap: an allocation of
// any thread belongs to all open ones. Scopes with the same path of names share a row.
//
// O(1) per event: allocations and frees are counted per thread, and a scope's counts are the
// difference between its end and its start. The live allocations of a scope are in its own table
// until it ends, then they move to the enclosing scope's; a free finds the table by the serial
// number of the allocation, since the innermost open scope that began before it holds it. The
// highest level is kept per interval between two begins, over all threads, so that only the newest
// open scope is updated. Ending a scope costs O(sites with live allocations in it), and for a range
// also O(open scopes that began after it).
//
// Memory is bounded by limits on rows, sites per row, nesting depth and open ranges. Names that
// differ only in numbers have rows of their own up to a limit, then they are merged into one.
//
// Only device memory counts: the kinds in the curves, of all devices together.
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

    std::uint32_t parent = no_parent;  ///< index of the enclosing scope, always a lower one
    bool range = false;                ///< of the process, not of a thread
    std::string name = {};
    std::uint64_t entries = 0;
    std::uint64_t open = 0;  ///< entries that have not ended
    std::uint64_t duration_ns = 0;
    std::uint64_t allocated_count = 0;
    std::uint64_t allocated_bytes = 0;
    std::uint64_t other_threads_count = 0;  ///< of allocated: by threads without scopes
    std::uint64_t other_threads_bytes = 0;
    std::uint64_t freed_count = 0;
    std::uint64_t freed_bytes = 0;
    std::uint64_t peak_bytes = 0;         ///< maximum of the allocated curve while one was open
    std::uint64_t peak_growth_bytes = 0;  ///< maximum rise above the level at an entry's begin
    std::uint64_t escaped_count = 0;      ///< allocated inside and live at the end of the entry
    std::uint64_t escaped_bytes = 0;
    std::uint64_t most_escaped_bytes = 0;            ///< maximum of one entry
    std::vector<SiteTable::Item> escaped_from = {};  ///< largest first; at most max_sites

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.parent, self.range, self.name, self.entries, self.open, self.duration_ns,
                self.allocated_count, self.allocated_bytes, self.other_threads_count,
                self.other_threads_bytes, self.freed_count, self.freed_bytes, self.peak_bytes,
                self.peak_growth_bytes, self.escaped_count, self.escaped_bytes,
                self.most_escaped_bytes, self.escaped_from);
    }
};

/// Unmatched begins and ends.
struct UnbalancedScopes {
    std::uint64_t ends_without_begin = 0;
    std::uint64_t ended_with_thread = 0;
    std::uint64_t too_many_open = 0;  ///< begins beyond max_depth or max_ranges, which are ignored

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.ends_without_begin, self.ended_with_thread, self.too_many_open);
    }
};

/// Thread-safety: none.

class ScopeStats {
  public:
    static constexpr std::size_t max_scopes = 2048;
    static constexpr std::size_t max_sites = 256;    ///< in ScopeTotals::escaped_from
    static constexpr std::size_t max_variants = 64;  ///< of one family in one scope
    static constexpr std::size_t max_depth = 64;     ///< of one thread
    static constexpr std::size_t max_ranges = 4096;  ///< open at a time

    /// A scope that ended, as a candidate for a step of the program.
    struct Ended {
        bool happened = false;
        bool range = false;
        bool outermost = false;  ///< no scope around it has been entered twice
        std::uint32_t path = 0;  ///< of name families
    };

    ScopeStats();

    /// True while allocated() and freed() must be called.
    bool any_open() const { return open_count_ != 0; }
    bool any() const { return !scopes_.empty(); }

    /// Identifies the scope that begins or ends.
    struct ScopeKey {
        std::uint32_t thread = 0;
        std::uint64_t domain = 0;  ///< an end is of the innermost scope of its domain
        std::uint64_t range = 0;   ///< id of a range of the process, else 0
    };

    /// `level` is the allocated curve, all devices together; `serial` the number of the latest
    /// allocation. May throw std::bad_alloc.
    void begin(const ScopeKey& key, std::uint32_t name, const std::string& text,
               std::uint64_t now_ns, std::uint64_t level, std::uint64_t serial);
    Ended end(const ScopeKey& key, std::uint64_t now_ns);
    void end_thread(std::uint32_t thread, std::uint64_t now_ns);

    /// Returns the `owner` to pass to freed(). May throw std::bad_alloc, without a change.
    std::uint32_t allocated(std::uint32_t thread, std::uint32_t site, std::uint64_t bytes);
    /// `freeing` is the thread that freed it; none: it ended for another reason. `serial` is the
    /// allocation's number.
    void freed(std::optional<std::uint32_t> freeing, std::uint32_t owner, std::uint32_t site,
               std::uint64_t bytes, std::uint64_t serial);

    /// The table as of now, including open entries. May throw std::bad_alloc.
    std::vector<ScopeTotals> totals(std::uint64_t now_ns) const;
    const UnbalancedScopes& unbalanced() const { return unbalanced_; }
    std::uint64_t open_count() const { return open_count_; }

    NameFamilies& families() { return families_; }
    /// The text of Ended::path: "epoch #/step #".
    std::string path_text(std::uint32_t path) const;
    bool is_of_library(std::uint32_t path) const {
        return is_name_of_library(families_.text(paths_[path].family));
    }
    /// The path of the scope around it; none: there is no such scope.
    std::optional<std::uint32_t> parent_path(std::uint32_t path) const {
        const std::uint32_t parent = paths_[path].parent;
        return parent < paths_.size() ? std::optional(parent) : std::nullopt;
    }
    const std::string& family_text(std::uint32_t family) const { return families_.text(family); }

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.families_, self.scopes_, self.children_, self.variants_, self.paths_,
                self.path_index_, self.entries_, self.newest_, self.open_count_, self.level_,
                self.stacks_, self.stack_of_thread_, self.ranges_not_followed_, self.unbalanced_);
    }
    /// Completes a restored state. False when it is not consistent with `sites` call sites. May
    /// throw std::bad_alloc.
    bool restored(std::size_t sites);
    /// Numbers of what others refer to: owners of allocations, Ended::path, name families.
    std::size_t owner_count() const { return stacks_.size(); }
    std::size_t path_count() const { return paths_.size(); }
    std::size_t family_count() const { return families_.size(); }

  private:
    static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

    struct Counts {
        std::uint64_t allocated = 0;
        std::uint64_t allocated_bytes = 0;
        std::uint64_t others = 0;
        std::uint64_t others_bytes = 0;
        std::uint64_t freed = 0;
        std::uint64_t freed_bytes = 0;

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive(self.allocated, self.allocated_bytes, self.others, self.others_bytes,
                    self.freed, self.freed_bytes);
        }
    };
    struct Scope {
        ScopeTotals totals;  ///< of the entries that ended; parent is a root or an unmerged row
        std::uint32_t merged_into = none;
        std::uint32_t name = none;  ///< string id; none: the row of a whole family
        std::uint32_t family = 0;
        std::uint32_t path = 0;
        SiteTable escaped;

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive(self.totals, self.merged_into, self.name, self.family, self.path, self.escaped);
        }
    };
    /// An open entry.
    struct Entry {
        std::uint32_t scope = 0;
        std::uint64_t domain = 0;
        std::uint64_t range = 0;
        std::uint64_t serial = 0;  ///< allocations with a greater number are inside
        std::uint64_t begin_ns = 0;
        std::uint64_t level = 0;
        Counts at_begin;
        /// The highest level between this begin and that of `later`.
        std::uint64_t highest = 0;
        std::uint32_t earlier = none;  ///< list of open entries in the order of their begins
        std::uint32_t later = none;
        SiteTable live_sites;

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive(self.scope, self.domain, self.range, self.serial, self.begin_ns, self.level,
                    self.at_begin, self.highest, self.earlier, self.later, self.live_sites);
        }
    };
    /// The open scopes of one thread, or the open ranges of the process.
    struct Stack {
        std::uint32_t thread = 0;
        Counts counts;
        std::vector<std::uint32_t> open;  ///< entries, in the order of their begins
        std::uint64_t too_deep = 0;

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive(self.thread, self.counts, self.open, self.too_deep);
        }
    };
    struct Family {
        std::uint32_t count = 0;      ///< of rows with a number in their name
        std::uint32_t merged = none;  ///< the common row, once they are merged

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive(self.count, self.merged);
        }
    };
    struct PathPart {
        std::uint32_t parent = none;
        std::uint32_t family = 0;

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive(self.parent, self.family);
        }
    };

    static std::uint64_t pack_key(std::uint32_t high, std::uint32_t low) {
        return (std::uint64_t{high} << 32) | low;
    }
    /// Roots: scopes of threads and ranges have separate rows, even with equal names.
    static constexpr std::uint32_t thread_root = none;
    static constexpr std::uint32_t range_root = none - 1;

    std::uint32_t resolve(std::uint32_t scope) const;
    std::uint32_t find_or_add_scope(std::uint32_t parent, std::uint32_t name,
                                    const std::string& text);
    std::uint32_t add_scope(std::uint32_t parent, std::uint32_t name, std::uint32_t family,
                            const std::string& text);
    std::uint32_t find_or_add_path(std::uint32_t parent_path, std::uint32_t family);
    void merge_family(std::uint32_t parent, std::uint32_t family, std::uint32_t into);
    void merge(std::uint32_t from, std::uint32_t into);
    bool ancestors_entered_once(std::uint32_t scope) const;
    static void add_escaped(Scope& scope, const SiteTable& table, std::uint64_t& count,
                            std::uint64_t& bytes);

    std::uint32_t find_stack(std::uint32_t thread, bool create);
    std::uint32_t find_owner(std::uint32_t thread) const;
    void close(std::uint32_t stack, std::size_t position, std::uint64_t now_ns);
    void retire(std::uint32_t thread, std::uint32_t stack);
    std::uint64_t highest_since(std::uint32_t entry) const;
    static void add_open(ScopeTotals& totals, const Entry& entry, const Counts& now,
                         std::uint64_t highest, std::uint64_t now_ns);
    void hold(Stack& stack, std::uint32_t site, std::uint64_t bytes);
    void release(Stack& stack, std::uint32_t site, std::uint64_t bytes, std::uint64_t serial);
    bool rows_are_valid(std::size_t sites) const;
    bool entries_are_valid(std::size_t sites) const;

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
    std::uint64_t level_ = 0;  ///< valid while any is open

    std::vector<Stack> stacks_;  ///< [0]: ranges of the process
    std::vector<std::uint32_t> unused_stacks_;
    std::unordered_map<std::uint32_t, std::uint32_t> stack_of_thread_;  ///< with open scopes
    std::uint32_t threads_xor_ = 0;  ///< XOR of the threads' stacks: the only one if there is one
    std::uint64_t ranges_not_followed_ = 0;
    UnbalancedScopes unbalanced_;
};

}  // namespace memlab::trace
