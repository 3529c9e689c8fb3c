// A naive reference model of scopes: every event updates all open scopes, and every allocation has
// a list of the scopes that it was made in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "trace/aggregate/scopes.hpp"

namespace memlab::test {

class ScopesModel {
  public:
    /// Names from the outermost on; a range's begins with "range:".
    using Path = std::vector<std::string>;

    struct Row {
        ScopeTotals totals;
        std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> escaped;  ///< by site
    };

    std::map<Path, Row> rows;
    UnbalancedScopes unbalanced;

    /// `level`: allocated bytes, all devices together.
    void begin(const Event& event, const std::string& name, std::uint64_t level) {
        Entry entry;
        entry.thread = event.thread;
        entry.domain = event.requested;
        entry.range = event.address;
        entry.begin = event.time_ns;
        entry.level = entry.peak = level;
        if (entry.range == 0) {
            for (const Entry& each : open_) {
                if (each.range == 0 && each.thread == entry.thread) {
                    entry.path = each.path;  // the last one is the innermost
                }
            }
            entry.path.push_back(name);
        } else {
            entry.path = {"range:" + name};
        }
        entry.id = ++ids_;
        ++rows[entry.path].totals.entries;
        open_.push_back(entry);
    }

    void end(const Event& event) {
        if (event.stream == ended_with_thread && event.address == 0) {
            end_thread(event);
            return;
        }
        for (std::size_t i = open_.size(); i-- > 0;) {
            const bool this_one = event.address != 0
                                      ? open_[i].range == event.address
                                      : open_[i].range == 0 && open_[i].thread == event.thread &&
                                            open_[i].domain == event.requested;
            if (this_one) {
                close(i, event.time_ns);
                return;
            }
        }
        ++unbalanced.ends_without_begin;
    }

    void allocated(std::uint64_t serial, std::uint32_t thread, std::uint32_t site,
                   std::uint64_t bytes, std::uint64_t level) {
        Allocation allocation{site, bytes, {}};
        const std::optional<std::uint32_t> owner = owner_of(thread);
        for (Entry& entry : open_) {
            entry.peak = std::max(entry.peak, level);
            if (entry.range == 0 && entry.thread != owner) {
                continue;
            }
            allocation.inside.insert(entry.id);
            ++entry.totals.allocated_count;
            entry.totals.allocated_bytes += bytes;
            if (entry.range == 0 && thread != owner) {
                ++entry.totals.other_threads_count;
                entry.totals.other_threads_bytes += bytes;
            }
        }
        live_[serial] = allocation;
    }

    void freed(std::uint64_t serial, std::optional<std::uint32_t> thread) {
        const auto at = live_.find(serial);
        for (Entry& entry : open_) {
            if (thread && (entry.range != 0 || entry.thread == owner_of(*thread))) {
                ++entry.totals.freed_count;
                entry.totals.freed_bytes += at->second.bytes;
            }
        }
        live_.erase(at);
    }

    /// Includes open entries, as of `now`.
    std::map<Path, Row> rows_at(std::uint64_t now) const {
        std::map<Path, Row> result = rows;
        for (const Entry& entry : open_) {
            ++result[entry.path].totals.open;
            add(result[entry.path].totals, entry, now);
        }
        return result;
    }

  private:
    struct Entry {
        std::uint64_t id = 0;
        std::uint32_t thread = 0;
        std::uint64_t domain = 0;
        std::uint64_t range = 0;
        std::uint64_t begin = 0;
        std::uint64_t level = 0;
        std::uint64_t peak = 0;
        Path path;
        ScopeTotals totals;
    };
    struct Allocation {
        std::uint32_t site = 0;
        std::uint64_t bytes = 0;
        std::set<std::uint64_t> inside;
    };

    std::optional<std::uint32_t> owner_of(std::uint32_t thread) const {
        std::set<std::uint32_t> threads;
        for (const Entry& entry : open_) {
            if (entry.range == 0) {
                threads.insert(entry.thread);
            }
        }
        if (threads.count(thread) != 0) {
            return thread;
        }
        return threads.size() == 1 ? std::optional(*threads.begin()) : std::nullopt;
    }

    void end_thread(const Event& event) {
        for (std::size_t i = open_.size(); i-- > 0;) {
            if (open_[i].range == 0 && open_[i].thread == event.thread) {
                close(i, event.time_ns);
                ++unbalanced.ended_with_thread;
            }
        }
    }

    static void add(ScopeTotals& to, const Entry& entry, std::uint64_t now) {
        to.duration_ns += now - entry.begin;
        to.allocated_count += entry.totals.allocated_count;
        to.allocated_bytes += entry.totals.allocated_bytes;
        to.other_threads_count += entry.totals.other_threads_count;
        to.other_threads_bytes += entry.totals.other_threads_bytes;
        to.freed_count += entry.totals.freed_count;
        to.freed_bytes += entry.totals.freed_bytes;
        to.peak_bytes = std::max(to.peak_bytes, entry.peak);
        to.peak_growth_bytes = std::max(to.peak_growth_bytes, entry.peak - entry.level);
    }

    void close(std::size_t index, std::uint64_t now) {
        const Entry entry = open_[index];
        Row& row = rows[entry.path];
        add(row.totals, entry, now);
        std::uint64_t bytes = 0;
        for (const auto& [serial, allocation] : live_) {
            if (allocation.inside.count(entry.id) != 0) {
                ++row.totals.escaped_count;
                bytes += allocation.bytes;
                ++row.escaped[allocation.site].first;
                row.escaped[allocation.site].second += allocation.bytes;
            }
        }
        row.totals.escaped_bytes += bytes;
        row.totals.most_escaped_bytes = std::max(row.totals.most_escaped_bytes, bytes);
        open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(index));
    }

    std::uint64_t ids_ = 0;
    std::vector<Entry> open_;
    std::map<std::uint64_t, Allocation> live_;  ///< by serial
};

/// The rows by path, as the model has them.
inline std::map<ScopesModel::Path, ScopeTotals> by_path(const std::vector<ScopeTotals>& rows) {
    std::map<ScopesModel::Path, ScopeTotals> result;
    std::vector<ScopesModel::Path> paths;
    for (const ScopeTotals& row : rows) {
        ScopesModel::Path path;
        if (row.parent != ScopeTotals::no_parent) {
            REQUIRE(row.parent < paths.size());
            path = paths[row.parent];
        }
        path.push_back((row.range ? "range:" : "") + row.name);
        REQUIRE(result.emplace(path, row).second);
        paths.push_back(path);
    }
    return result;
}

inline void check_scopes(const std::vector<ScopeTotals>& rows, const ScopesModel& model,
                         std::uint64_t now) {
    const auto got = by_path(rows);
    const auto expected = model.rows_at(now);
    REQUIRE(got.size() == expected.size());
    for (const auto& [path, row] : expected) {
        CAPTURE(path);
        REQUIRE(got.count(path) == 1);
        const ScopeTotals& totals = got.at(path);
        CHECK(totals.entries == row.totals.entries);
        CHECK(totals.open == row.totals.open);
        CHECK(totals.duration_ns == row.totals.duration_ns);
        CHECK(totals.allocated_count == row.totals.allocated_count);
        CHECK(totals.allocated_bytes == row.totals.allocated_bytes);
        CHECK(totals.other_threads_count == row.totals.other_threads_count);
        CHECK(totals.other_threads_bytes == row.totals.other_threads_bytes);
        CHECK(totals.freed_count == row.totals.freed_count);
        CHECK(totals.freed_bytes == row.totals.freed_bytes);
        CHECK(totals.peak_bytes == row.totals.peak_bytes);
        CHECK(totals.peak_growth_bytes == row.totals.peak_growth_bytes);
        CHECK(totals.escaped_count == row.totals.escaped_count);
        CHECK(totals.escaped_bytes == row.totals.escaped_bytes);
        CHECK(totals.most_escaped_bytes == row.totals.most_escaped_bytes);
        std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> escaped;
        for (const SiteTable::Item& item : totals.escaped_from) {
            escaped[item.site] = {item.count, item.bytes};
        }
        CHECK(escaped == row.escaped);
    }
}

}  // namespace memlab::test
