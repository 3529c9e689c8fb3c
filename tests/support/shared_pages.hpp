// Pages of 2 MiB that requests of less than a page share, as plain CUDA places them (found with the
// random calls of tests/conformance/plain_memory.cpp on an H100, driver 580: every place of 100,000
// calls): the smallest hole that fits, of several the one that has been there longest. A hole is
// new when a request leaves a part of it, and when a free makes or enlarges it.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <set>

namespace memlab::support {

/// Thread-safety: none; one thread at a time.
class SharedPages {
  public:
    static constexpr std::uint64_t page_bytes = 2ULL << 20;
    static constexpr std::uint64_t step = 512;

    struct Place {
        std::uint64_t page;  // its number: never used again
        std::uint64_t offset;
    };

    /// What a request takes of a page.
    static constexpr std::uint64_t rounded(std::uint64_t bytes) {
        return (bytes + step - 1) / step * step;
    }

    /// Takes so many bytes, of at most a page, where there is a hole. False: there is none.
    bool take(std::uint64_t bytes, Place& place) {
        const auto best = holes_.lower_bound(Hole{rounded(bytes), 0, {}});
        if (best == holes_.end()) {
            return false;
        }
        const Hole hole = *best;
        place = hole.place;
        holes_.erase(best);
        pages_.at(place.page).erase(place.offset);
        add_hole({place.page, place.offset + rounded(bytes)}, hole.bytes - rounded(bytes));
        return true;
    }

    /// Begins a page and takes so many bytes of it.
    Place take_new(std::uint64_t bytes) {
        const Place place{next_page_++, 0};
        pages_.emplace(place.page, Page{});
        add_hole({place.page, rounded(bytes)}, page_bytes - rounded(bytes));
        return place;
    }

    /// Gives back what was taken. True: nothing lies in its page any more, and the page is gone.
    bool give(Place place, std::uint64_t bytes) {
        Page& page = pages_.at(place.page);
        std::uint64_t begin = place.offset;
        std::uint64_t end = begin + rounded(bytes);
        auto after = page.lower_bound(begin);
        if (after != page.begin()) {
            const auto before = std::prev(after);
            if (before->first + before->second.bytes == begin) {
                begin = before->first;
                holes_.erase(before->second);
                page.erase(before);
            }
        }
        if (after != page.end() && after->first == end) {
            end += after->second.bytes;
            holes_.erase(after->second);
            page.erase(after);
        }
        if (end - begin == page_bytes) {
            pages_.erase(place.page);
            return true;
        }
        add_hole({place.page, begin}, end - begin);
        return false;
    }

    std::uint64_t pages() const { return pages_.size(); }

  private:
    struct Hole {
        std::uint64_t bytes;
        std::uint64_t since;  // one more for each hole
        Place place;
        friend bool operator<(const Hole& a, const Hole& b) {
            return a.bytes != b.bytes ? a.bytes < b.bytes : a.since < b.since;
        }
    };
    using Page = std::map<std::uint64_t, Hole>;  // by offset

    void add_hole(Place place, std::uint64_t bytes) {
        if (bytes != 0) {
            const Hole hole{bytes, ++holes_made_, place};
            pages_.at(place.page).emplace(place.offset, hole);
            holes_.insert(hole);
        }
    }

    std::uint64_t next_page_ = 0;
    std::uint64_t holes_made_ = 0;
    std::map<std::uint64_t, Page> pages_;
    std::set<Hole> holes_;
};

}  // namespace memlab::support
