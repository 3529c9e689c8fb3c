// Checks a restored state of the scopes: with one that passes, no later operation reads out of
// bounds or loops forever.
#include <algorithm>

#include "trace/aggregate/scopes.hpp"

namespace memlab::trace {
namespace {

bool sites_are_below(const SiteTable& table, std::size_t sites) {
    return std::all_of(table.items().begin(), table.items().end(),
                       [sites](const SiteTable::Item& item) { return item.site < sites; });
}

}  // namespace

bool ScopeStats::restored(std::size_t sites) {
    if (!rows_are_valid(sites) || !entries_are_valid(sites)) {
        return false;
    }
    // Which unused number is used next makes no difference.
    std::vector<bool> entry_used(entries_.size());
    for (const Stack& stack : stacks_) {
        for (const std::uint32_t entry : stack.open) {
            entry_used[entry] = true;
        }
    }
    unused_entries_.reserve(entries_.size());
    for (std::uint32_t entry = 0; entry < entries_.size(); ++entry) {
        if (!entry_used[entry]) {
            unused_entries_.push_back(entry);
        }
    }
    std::vector<bool> stack_used(stacks_.size());
    for (const auto& [thread, stack] : stack_of_thread_) {
        stack_used[stack] = true;
        threads_xor_ ^= stack;
    }
    unused_stacks_.reserve(stacks_.size());
    for (std::uint32_t stack = 1; stack < stacks_.size(); ++stack) {
        if (!stack_used[stack]) {
            unused_stacks_.push_back(stack);
        }
    }
    return true;
}

bool ScopeStats::rows_are_valid(std::size_t sites) const {
    const std::size_t rows = scopes_.size();
    const auto is_root = [](std::uint32_t at) { return at >= range_root; };
    if (rows > max_scopes) {
        return false;
    }
    // Each chain of rows that were merged, and of parents, must end.
    for (const Scope& scope : scopes_) {
        const std::uint32_t parent = scope.totals.parent;
        if ((parent >= rows && !is_root(parent)) ||
            (scope.merged_into >= rows && scope.merged_into != none) ||
            (scope.family >= families_.size()) || scope.path >= paths_.size() ||
            !scope.totals.escaped_from.empty() || !sites_are_below(scope.escaped, sites)) {
            return false;
        }
    }
    for (std::uint32_t row = 0; row < rows; ++row) {
        std::size_t steps = 0;
        for (std::uint32_t at = row; at < rows && steps <= 2 * rows; ++steps) {
            at = scopes_[at].merged_into != none ? scopes_[at].merged_into
                                                 : scopes_[at].totals.parent;
        }
        if (steps > 2 * rows) {
            return false;
        }
    }
    for (std::uint32_t path = 0; path < paths_.size(); ++path) {
        if ((paths_[path].parent >= path && !is_root(paths_[path].parent)) ||
            paths_[path].family >= families_.size()) {
            return false;
        }
    }
    return std::all_of(children_.begin(), children_.end(),
                       [rows](const auto& child) { return child.second < rows; }) &&
           std::all_of(path_index_.begin(), path_index_.end(),
                       [this](const auto& path) { return path.second < paths_.size(); }) &&
           std::all_of(variants_.begin(), variants_.end(), [rows](const auto& family) {
               return family.second.merged == none || family.second.merged < rows;
           });
}

bool ScopeStats::entries_are_valid(std::size_t sites) const {
    for (const Entry& entry : entries_) {
        if (!sites_are_below(entry.live_sites, sites)) {
            return false;
        }
    }
    if (stacks_.empty()) {
        return false;
    }
    std::vector<bool> open(entries_.size());
    std::uint64_t count = 0;
    for (const Stack& stack : stacks_) {
        for (const std::uint32_t entry : stack.open) {
            if (entry >= entries_.size() || open[entry] ||
                entries_[entry].scope >= scopes_.size()) {
                return false;
            }
            open[entry] = true;
            ++count;
        }
    }
    if (count != open_count_) {
        return false;
    }
    // The list of open entries has each of them once.
    std::uint32_t later = none;
    for (std::uint32_t at = newest_; at != none; at = entries_[at].earlier) {
        if (at >= entries_.size() || !open[at] || entries_[at].later != later) {
            return false;
        }
        open[at] = false;
        later = at;
        --count;
    }
    std::vector<bool> owned(stacks_.size());
    for (const auto& [thread, stack] : stack_of_thread_) {
        if (stack == 0 || stack >= stacks_.size() || owned[stack] || stacks_[stack].open.empty()) {
            return false;
        }
        owned[stack] = true;
    }
    // Only threads that are known have open scopes.
    for (std::uint32_t stack = 1; stack < stacks_.size(); ++stack) {
        if (!owned[stack] && !stacks_[stack].open.empty()) {
            return false;
        }
    }
    return count == 0;
}

}  // namespace memlab::trace
