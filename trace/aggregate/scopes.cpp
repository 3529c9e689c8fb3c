#include "trace/aggregate/scopes.hpp"

#include <algorithm>

namespace memlab::trace {
namespace {

constexpr std::uint32_t process_stack = 0;

void add_totals(ScopeTotals& to, const ScopeTotals& from) {
    to.entries += from.entries;
    to.open += from.open;
    to.duration_ns += from.duration_ns;
    to.allocated_count += from.allocated_count;
    to.allocated_bytes += from.allocated_bytes;
    to.other_threads_count += from.other_threads_count;
    to.other_threads_bytes += from.other_threads_bytes;
    to.freed_count += from.freed_count;
    to.freed_bytes += from.freed_bytes;
    to.peak_bytes = std::max(to.peak_bytes, from.peak_bytes);
    to.peak_growth_bytes = std::max(to.peak_growth_bytes, from.peak_growth_bytes);
    to.escaped_count += from.escaped_count;
    to.escaped_bytes += from.escaped_bytes;
    to.most_escaped_bytes = std::max(to.most_escaped_bytes, from.most_escaped_bytes);
}

}  // namespace

ScopeStats::ScopeStats() : stacks_(1) {}

// ---- rows

std::uint32_t ScopeStats::resolve(std::uint32_t scope) const {
    while (scope < scopes_.size() && scopes_[scope].merged_into != none) {
        scope = scopes_[scope].merged_into;
    }
    return scope;
}

std::uint32_t ScopeStats::find_or_add_path(std::uint32_t parent_path, std::uint32_t family) {
    const auto [at, is_new] = path_index_.try_emplace(pack_key(parent_path, family),
                                                      static_cast<std::uint32_t>(paths_.size()));
    if (is_new) {
        paths_.push_back({parent_path, family});
    }
    return at->second;
}

std::string ScopeStats::path_text(std::uint32_t path) const {
    std::string text = families_.text(paths_[path].family);
    for (std::uint32_t up = paths_[path].parent; up < paths_.size(); up = paths_[up].parent) {
        text.insert(0, families_.text(paths_[up].family) + "/");
    }
    return text;
}

/// Adds a row. The last possible one stands for all scopes beyond the limit.
std::uint32_t ScopeStats::add_scope(std::uint32_t parent, std::uint32_t name, std::uint32_t family,
                                    const std::string& text) {
    const bool rest = scopes_.size() == max_scopes - 1;
    Scope scope;
    scope.totals.parent = rest ? thread_root : parent;
    scope.totals.range = !rest && parent == range_root;
    scope.totals.name = rest ? "(other scopes)" : text;
    scope.name = name;
    scope.family = family;
    scope.path = find_or_add_path(parent < scopes_.size() ? scopes_[parent].path : parent, family);
    scopes_.push_back(std::move(scope));
    return static_cast<std::uint32_t>(scopes_.size() - 1);
}

std::uint32_t ScopeStats::find_or_add_scope(std::uint32_t parent, std::uint32_t name,
                                            const std::string& text) {
    const auto known = children_.find(pack_key(parent, name));
    if (known != children_.end()) {
        return resolve(known->second);
    }
    const std::uint32_t family = families_.intern(name, text);
    const auto known_family = variants_.find(pack_key(parent, family));
    if (known_family != variants_.end() && known_family->second.merged != none) {
        return resolve(known_family->second.merged);
    }
    if (scopes_.size() == max_scopes) {
        return resolve(max_scopes - 1);
    }
    const std::string& folded = families_.text(family);
    Family& family_state = variants_[pack_key(parent, family)];
    const bool numbered = folded != text;
    if (numbered && family_state.count >= max_variants) {
        family_state.merged = add_scope(parent, none, family, folded);
        merge_family(parent, family, family_state.merged);
        return family_state.merged;
    }
    const std::uint32_t scope = add_scope(parent, name, family, text);
    children_.emplace(pack_key(parent, name), scope);
    if (numbered) {
        ++family_state.count;
    } else if (folded.find('#') != std::string::npos) {
        family_state.merged = scope;  // the name is folded already, so it stands for the family
    }
    return scope;
}

void ScopeStats::merge_family(std::uint32_t parent, std::uint32_t family, std::uint32_t into) {
    for (std::uint32_t scope = 0; scope < scopes_.size(); ++scope) {
        if (scope != into && scopes_[scope].family == family &&
            scopes_[scope].merged_into == none && scopes_[scope].totals.parent == parent) {
            merge(scope, into);
        }
    }
}

/// Merges the row `from` into the row `into`, and recursively the children of the same name.
void ScopeStats::merge(std::uint32_t from, std::uint32_t into) {
    add_totals(scopes_[into].totals, scopes_[from].totals);
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    add_escaped(scopes_[into], scopes_[from].escaped, count, bytes);
    scopes_[from].escaped = SiteTable();
    scopes_[from].merged_into = into;
    for (std::uint32_t child = 0; child < scopes_.size(); ++child) {
        if (scopes_[child].merged_into != none || scopes_[child].totals.parent != from) {
            continue;
        }
        const std::uint32_t name = scopes_[child].name;
        Family& family_state = variants_[pack_key(into, scopes_[child].family)];
        const auto twin = children_.find(pack_key(into, name));
        if (name != none && twin != children_.end()) {
            merge(child, resolve(twin->second));
        } else if (family_state.merged != none) {
            merge(child, resolve(family_state.merged));
        } else {
            scopes_[child].totals.parent = into;
            if (name == none) {
                family_state.merged = child;
            } else {
                children_.emplace(pack_key(into, name), child);
                family_state.count +=
                    families_.text(scopes_[child].family) != scopes_[child].totals.name ? 1 : 0;
            }
        }
    }
}

/// Adds the table to the scope's, and its sums to `count` and `bytes`. Sites beyond the limit are
/// in the sums only.
void ScopeStats::add_escaped(Scope& scope, const SiteTable& table, std::uint64_t& count,
                             std::uint64_t& bytes) {
    for (const SiteTable::Item& item : table.items()) {
        if (item.count == 0) {
            continue;
        }
        count += item.count;
        bytes += item.bytes;
        if (scope.escaped.items().size() < max_sites || scope.escaped.find(item.site) != nullptr) {
            scope.escaped.add(item.site, item.count, item.bytes);
        }
    }
}

bool ScopeStats::ancestors_entered_once(std::uint32_t scope) const {
    for (std::uint32_t up = scopes_[scope].totals.parent; up < scopes_.size();
         up = scopes_[resolve(up)].totals.parent) {
        if (scopes_[resolve(up)].totals.entries > 1) {
            return false;
        }
    }
    return true;
}

// ---- open scopes

std::uint32_t ScopeStats::find_stack(std::uint32_t thread, bool create) {
    const auto at = stack_of_thread_.find(thread);
    if (at != stack_of_thread_.end() || !create) {
        return at == stack_of_thread_.end() ? none : at->second;
    }
    if (unused_stacks_.empty()) {
        stacks_.emplace_back();
        unused_stacks_.reserve(stacks_.size());  // so that retire() cannot fail
        unused_stacks_.push_back(static_cast<std::uint32_t>(stacks_.size() - 1));
    }
    const std::uint32_t stack = unused_stacks_.back();
    stack_of_thread_.emplace(thread, stack);
    unused_stacks_.pop_back();
    stacks_[stack].thread = thread;
    threads_xor_ ^= stack;
    return stack;
}

/// The thread has no more open scopes.
void ScopeStats::retire(std::uint32_t thread, std::uint32_t stack) {
    stack_of_thread_.erase(thread);
    unused_stacks_.push_back(stack);
    threads_xor_ ^= stack;
}

/// The scope stack that the thread's allocations belong to; `none` if there is none.
std::uint32_t ScopeStats::find_owner(std::uint32_t thread) const {
    if (stack_of_thread_.size() == 1) {
        return threads_xor_;  // of this thread, or of the only one that has scopes
    }
    const auto at = stack_of_thread_.find(thread);
    return at != stack_of_thread_.end() ? at->second : none;
}

void ScopeStats::begin(const ScopeKey& key, std::uint32_t name, const std::string& text,
                       std::uint64_t now_ns, std::uint64_t level, std::uint64_t serial) {
    const bool is_range = key.range != 0;
    const std::uint32_t index = is_range ? process_stack : find_stack(key.thread, true);
    if (stacks_[index].open.size() >= (is_range ? max_ranges : max_depth)) {
        ++unbalanced_.too_many_open;
        ++(is_range ? ranges_not_followed_ : stacks_[index].too_deep);
        return;
    }
    const bool outer = is_range || stacks_[index].open.empty();
    const std::uint32_t parent = is_range ? range_root
                                 : outer  ? thread_root
                                          : resolve(entries_[stacks_[index].open.back()].scope);
    const std::uint32_t scope = find_or_add_scope(parent, name, text);
    if (unused_entries_.empty()) {
        unused_entries_.reserve(entries_.size() + 1);  // so that close() cannot fail
        entries_.emplace_back();
        unused_entries_.push_back(static_cast<std::uint32_t>(entries_.size() - 1));
    }
    const std::uint32_t number = unused_entries_.back();
    stacks_[index].open.push_back(number);
    unused_entries_.pop_back();

    Entry& entry = entries_[number];
    entry.scope = scope;
    entry.domain = key.domain;
    entry.range = key.range;
    entry.serial = serial;
    entry.begin_ns = now_ns;
    entry.level = level;
    entry.at_begin = stacks_[index].counts;
    entry.highest = level;
    entry.earlier = newest_;
    entry.later = none;
    if (newest_ != none) {
        entries_[newest_].later = number;
    }
    newest_ = number;
    level_ = level;
    ++open_count_;
    ++scopes_[scope].totals.entries;
}

ScopeStats::Ended ScopeStats::end(const ScopeKey& key, std::uint64_t now_ns) {
    const bool is_range = key.range != 0;
    const std::uint32_t index = is_range ? process_stack : find_stack(key.thread, false);
    std::uint64_t* const not_followed = is_range        ? &ranges_not_followed_
                                        : index == none ? nullptr
                                                        : &stacks_[index].too_deep;
    if (!is_range && not_followed != nullptr && *not_followed != 0) {
        --*not_followed;  // those are the innermost ones
        return {};
    }
    const std::size_t open = index == none ? 0 : stacks_[index].open.size();
    for (std::size_t i = open; i-- > 0;) {
        const Entry& entry = entries_[stacks_[index].open[i]];
        if (is_range ? entry.range != key.range : entry.domain != key.domain) {
            continue;
        }
        const std::uint32_t scope = resolve(entry.scope);
        const Ended ended{.happened = true,
                          .range = is_range,
                          .outermost = ancestors_entered_once(scope),
                          .path = scopes_[scope].path};
        close(index, i, now_ns);
        if (!is_range && stacks_[index].open.empty()) {
            retire(key.thread, index);
        }
        return ended;
    }
    if (is_range && *not_followed != 0) {
        --*not_followed;
    } else {
        ++unbalanced_.ends_without_begin;
    }
    return {};
}

void ScopeStats::end_thread(std::uint32_t thread, std::uint64_t now_ns) {
    const std::uint32_t index = find_stack(thread, false);
    if (index == none) {
        return;
    }
    unbalanced_.ended_with_thread += stacks_[index].open.size();
    while (!stacks_[index].open.empty()) {
        close(index, stacks_[index].open.size() - 1, now_ns);
    }
    stacks_[index].too_deep = 0;
    retire(thread, index);
}

std::uint64_t ScopeStats::highest_since(std::uint32_t entry) const {
    std::uint64_t highest = 0;
    for (std::uint32_t at = entry; at != none; at = entries_[at].later) {
        highest = std::max(highest, entries_[at].highest);
    }
    return highest;
}

/// Adds an entry's figures as if it ended now, except for the escaped ones.
void ScopeStats::add_open(ScopeTotals& totals, const Entry& entry, const Counts& now,
                          std::uint64_t highest, std::uint64_t now_ns) {
    totals.duration_ns += now_ns - entry.begin_ns;
    totals.allocated_count += now.allocated - entry.at_begin.allocated;
    totals.allocated_bytes += now.allocated_bytes - entry.at_begin.allocated_bytes;
    totals.other_threads_count += now.others - entry.at_begin.others;
    totals.other_threads_bytes += now.others_bytes - entry.at_begin.others_bytes;
    totals.freed_count += now.freed - entry.at_begin.freed;
    totals.freed_bytes += now.freed_bytes - entry.at_begin.freed_bytes;
    totals.peak_bytes = std::max(totals.peak_bytes, highest);
    totals.peak_growth_bytes = std::max(totals.peak_growth_bytes, highest - entry.level);
}

void ScopeStats::close(std::uint32_t index, std::size_t position, std::uint64_t now_ns) {
    Stack& stack = stacks_[index];
    const std::uint32_t number = stack.open[position];
    Entry& entry = entries_[number];
    Scope& scope = scopes_[resolve(entry.scope)];
    add_open(scope.totals, entry, stack.counts, highest_since(number), now_ns);

    // Includes the allocations of scopes that began inside and are still open.
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    for (std::size_t i = position; i < stack.open.size(); ++i) {
        add_escaped(scope, entries_[stack.open[i]].live_sites, count, bytes);
    }
    scope.totals.escaped_count += count;
    scope.totals.escaped_bytes += bytes;
    scope.totals.most_escaped_bytes = std::max(scope.totals.most_escaped_bytes, bytes);
    if (position != 0) {
        SiteTable& around = entries_[stack.open[position - 1]].live_sites;
        if (around.empty()) {
            around.swap(entry.live_sites);
        } else {
            around.add(entry.live_sites);
        }
    }
    entry.live_sites.clear();

    if (entry.earlier != none) {
        Entry& earlier = entries_[entry.earlier];
        earlier.highest = std::max(earlier.highest, entry.highest);
        earlier.later = entry.later;
    }
    if (entry.later != none) {
        entries_[entry.later].earlier = entry.earlier;
    } else {
        newest_ = entry.earlier;
    }
    stack.open.erase(stack.open.begin() + static_cast<std::ptrdiff_t>(position));
    unused_entries_.push_back(number);
    --open_count_;
}

// ---- memory

void ScopeStats::hold(Stack& stack, std::uint32_t site, std::uint64_t bytes) {
    if (!stack.open.empty()) {
        entries_[stack.open.back()].live_sites.add(site, 1, bytes);
    }
}

std::uint32_t ScopeStats::allocated(std::uint32_t thread, std::uint32_t site, std::uint64_t bytes) {
    const std::uint32_t owner = find_owner(thread);
    hold(stacks_[process_stack], site, bytes);
    if (owner != none) {
        hold(stacks_[owner], site, bytes);
    }
    level_ += bytes;
    Entry& newest = entries_[newest_];
    newest.highest = std::max(newest.highest, level_);
    const auto count = [bytes](Counts& counts, bool other) {
        ++counts.allocated;
        counts.allocated_bytes += bytes;
        counts.others += other ? 1 : 0;
        counts.others_bytes += other ? bytes : 0;
    };
    count(stacks_[process_stack].counts, false);
    if (owner == none) {
        return process_stack;
    }
    count(stacks_[owner].counts, stacks_[owner].thread != thread);
    return owner;
}

/// Removes an allocation from the scope that holds it: the innermost that began before it.
void ScopeStats::release(Stack& stack, std::uint32_t site, std::uint64_t bytes,
                         std::uint64_t serial) {
    const auto inside = std::partition_point(
        stack.open.begin(), stack.open.end(),
        [&](std::uint32_t number) { return entries_[number].serial < serial; });
    if (inside == stack.open.begin()) {
        return;
    }
    SiteTable::Item* const item = entries_[*(inside - 1)].live_sites.find(site);
    if (item != nullptr && item->count != 0) {
        --item->count;
        item->bytes -= bytes;
    }
}

void ScopeStats::freed(std::optional<std::uint32_t> freeing, std::uint32_t owner,
                       std::uint32_t site, std::uint64_t bytes, std::uint64_t serial) {
    level_ -= bytes;
    release(stacks_[process_stack], site, bytes, serial);
    if (owner != process_stack) {
        release(stacks_[owner], site, bytes, serial);
    }
    if (!freeing) {
        return;
    }
    const auto count = [bytes](Counts& counts) {
        ++counts.freed;
        counts.freed_bytes += bytes;
    };
    count(stacks_[process_stack].counts);
    const std::uint32_t stack = find_owner(*freeing);
    if (stack != none) {
        count(stacks_[stack].counts);
    }
}

// ---- the table

std::vector<ScopeTotals> ScopeStats::totals(std::uint64_t now_ns) const {
    std::vector<ScopeTotals> all;
    all.reserve(scopes_.size());
    for (const Scope& scope : scopes_) {
        all.push_back(scope.totals);
        all.back().escaped_from = scope.escaped.items();
        std::sort(all.back().escaped_from.begin(), all.back().escaped_from.end(),
                  [](const SiteTable::Item& a, const SiteTable::Item& b) {
                      return a.bytes != b.bytes ? a.bytes > b.bytes : a.site < b.site;
                  });
    }
    // highest_since() of all in one pass, from the newest: of thousands each would be a walk.
    std::vector<std::uint64_t> highest(entries_.size());
    std::uint64_t since = 0;
    for (std::uint32_t at = newest_; at != none; at = entries_[at].earlier) {
        since = std::max(since, entries_[at].highest);
        highest[at] = since;
    }
    for (const Stack& stack : stacks_) {
        for (const std::uint32_t number : stack.open) {
            const Entry& entry = entries_[number];
            ScopeTotals& totals = all[resolve(entry.scope)];
            ++totals.open;
            add_open(totals, entry, stack.counts, highest[number], now_ns);
        }
    }
    // A row may come before the row that its parent was merged into: reorder, parents first, and
    // drop the merged rows.
    std::vector<std::uint32_t> position(scopes_.size(), none);
    std::vector<ScopeTotals> ordered;
    ordered.reserve(scopes_.size());
    std::vector<std::uint32_t> ancestors;
    for (std::uint32_t scope = 0; scope < scopes_.size(); ++scope) {
        for (std::uint32_t at = resolve(scope); at < scopes_.size() && position[at] == none;
             at = resolve(all[at].parent)) {
            ancestors.push_back(at);
        }
        for (; !ancestors.empty(); ancestors.pop_back()) {
            const std::uint32_t at = ancestors.back();
            const std::uint32_t parent = resolve(all[at].parent);
            position[at] = static_cast<std::uint32_t>(ordered.size());
            ordered.push_back(std::move(all[at]));
            ordered.back().parent =
                parent < scopes_.size() ? position[parent] : ScopeTotals::no_parent;
        }
    }
    return ordered;
}

}  // namespace memlab::trace
