#include "tests/simcuda/race.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "tests/simcuda/memory.hpp"
#include "tests/simcuda/state.hpp"

namespace memlab::simcuda {
namespace {

struct Past {
    uint64_t owner;
    size_t stream;   // component of the clock
    uint64_t epoch;  // its value
    uint64_t stream_id;
    bool write;
};

// A map from address ranges to values, split where ranges begin and end.
template <typename Value>
class RangeMap {
  public:
    // Calls visit(value) for each piece of the range, created where missing.
    template <typename Visit>
    void visit(uint64_t begin, uint64_t end, Visit&& visit) {
        split(begin);
        split(end);
        uint64_t at = begin;
        auto it = ranges_.lower_bound(begin);
        while (at < end) {
            if (it == ranges_.end() || it->first > at) {
                const uint64_t next = it == ranges_.end() ? end : std::min(end, it->first);
                it = ranges_.emplace(at, Range{next, Value{}}).first;
            }
            visit(it->second.value);
            at = it->second.end;
            ++it;
        }
    }

    template <typename Visit>
    void visit_existing(uint64_t begin, uint64_t end, Visit&& visit) {
        auto it = ranges_.upper_bound(begin);
        if (it != ranges_.begin() && std::prev(it)->second.end > begin) {
            --it;
        }
        for (; it != ranges_.end() && it->first < end; ++it) {
            visit(it->first, it->second.end, it->second.value);
        }
    }

    void erase(uint64_t begin, uint64_t end) {
        split(begin);
        split(end);
        ranges_.erase(ranges_.lower_bound(begin), ranges_.lower_bound(end));
    }

  private:
    struct Range {
        uint64_t end;
        Value value;
    };

    void split(uint64_t at) {
        auto it = ranges_.upper_bound(at);
        if (it == ranges_.begin()) {
            return;
        }
        --it;
        if (it->first < at && it->second.end > at) {
            ranges_.emplace(at, Range{it->second.end, it->second.value});
            it->second.end = at;
        }
    }

    std::map<uint64_t, Range> ranges_;
};

struct Detector {
    RangeMap<std::vector<Past>> accesses;
    RangeMap<uint64_t> owners;
};

// Asked for at the end of the process, which may come in a signal handler: without the heap.
uint64_t race_count = 0;

Detector& detector() {
    static Detector& once = *new Detector;
    return once;
}

bool ordered(const Past& past, const Clock& clock) {
    return past.stream < clock.size() && clock[past.stream] >= past.epoch;
}

void report(uint64_t address, const Past& past, uint64_t owner, const Stream& stream, bool write) {
    ++race_count;
    std::fprintf(stderr,
                 "simcuda: race: owner %llu %s 0x%llx on stream %llu, and nothing orders that "
                 "after owner %llu %s it on stream %llu\n",
                 static_cast<unsigned long long>(owner), write ? "writes" : "reads",
                 static_cast<unsigned long long>(address),
                 static_cast<unsigned long long>(stream.id),
                 static_cast<unsigned long long>(past.owner), past.write ? "wrote" : "read",
                 static_cast<unsigned long long>(past.stream_id));
}

void record_piece(uint64_t begin, uint64_t end, uint64_t owner, const Access& access,
                  const Stream& stream, const Clock& clock) {
    bool reported = false;
    detector().accesses.visit(begin, end, [&](std::vector<Past>& pasts) {
        for (const Past& past : pasts) {
            if (!reported && past.owner != owner && (past.write || access.write) &&
                !ordered(past, clock)) {
                report(begin, past, owner, stream, access.write);
                reported = true;
            }
        }
        // What the host has seen is ordered before anything to come; an older access of the same
        // stream and owner is covered by the newer one.
        std::erase_if(pasts, [&](const Past& past) {
            return ordered(past, host_clock()) ||
                   (past.owner == owner && past.stream == stream.clock_index &&
                    (access.write || !past.write));
        });
        pasts.push_back({owner, stream.clock_index, stream.epoch, stream.id, access.write});
    });
}

}  // namespace

void record_access(const Access& access, const Stream& stream, const Clock& clock) {
    if (access.bytes == 0) {
        return;
    }
    const uint64_t end = access.address + access.bytes;
    if (access.owner != 0) {
        record_piece(access.address, end, access.owner, access, stream, clock);
        return;
    }
    const Allocation* allocation = find_allocation(access.address);
    const uint64_t driver_owner = allocation != nullptr ? allocation->buffer_id : 0;
    uint64_t at = access.address;
    detector().owners.visit_existing(
        access.address, end, [&](uint64_t from, uint64_t to, uint64_t owner) {
            if (from > at) {
                record_piece(at, from, driver_owner, access, stream, clock);
            }
            at = std::min(to, end);
            record_piece(std::max(from, access.address), at, owner, access, stream, clock);
        });
    if (at < end) {
        record_piece(at, end, driver_owner, access, stream, clock);
    }
}

void check_giving_back(uint64_t address, uint64_t bytes, const Clock& clock) {
    bool reported = false;
    detector().accesses.visit(address, address + bytes, [&](std::vector<Past>& pasts) {
        for (const Past& past : pasts) {
            if (!reported && !ordered(past, clock)) {
                reported = true;
                ++race_count;
                std::fprintf(
                    stderr,
                    "simcuda: race: memory at 0x%llx is given back, and nothing orders that "
                    "after owner %llu %s it on stream %llu\n",
                    static_cast<unsigned long long>(address),
                    static_cast<unsigned long long>(past.owner), past.write ? "wrote" : "read",
                    static_cast<unsigned long long>(past.stream_id));
            }
        }
    });
}

void set_owner(uint64_t address, uint64_t bytes, uint64_t owner) {
    if (owner == 0) {
        detector().owners.erase(address, address + bytes);
        return;
    }
    detector().owners.visit(address, address + bytes, [&](uint64_t& value) { value = owner; });
}

void forget_accesses(uint64_t address, uint64_t bytes) {
    detector().accesses.erase(address, address + bytes);
}

uint64_t races() {
    return race_count;
}

void forget_races() {
    race_count = 0;
}

}  // namespace memlab::simcuda
