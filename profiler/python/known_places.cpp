#include "profiler/python/known_places.hpp"

namespace memlab::profiler::python {

void KnownPlaces::keep(const Place& place) {
    const auto code = reinterpret_cast<std::uintptr_t>(place.code);
    std::array<Entry, set_size>& set = set_of(code, place.offset).entries;
    Entry* entry = &set[next_victim_++ % set_size];
    for (Entry& each : set) {
        const std::uint64_t known = each.code.load(std::memory_order_relaxed);
        const std::uint64_t offset = each.offset_and_table_bytes.load(std::memory_order_relaxed);
        if (known == 0 || (known == code && offset >> 32 == place.offset)) {
            entry = &each;
            break;
        }
    }
    const std::uint32_t version = entry->version.load(std::memory_order_relaxed);
    entry->version.store(version + 1, std::memory_order_relaxed);
    entry->code.store(code, std::memory_order_release);
    entry->offset_and_table_bytes.store(std::uint64_t{place.offset} << 32 | place.table_bytes,
                                        std::memory_order_release);
    entry->identity.store(place.identity, std::memory_order_release);
    entry->number.store(place.number, std::memory_order_release);
    entry->version.store(version + 2, std::memory_order_release);
}

}  // namespace memlab::profiler::python
