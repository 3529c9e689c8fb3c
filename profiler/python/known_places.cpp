#include "profiler/python/known_places.hpp"

#include <utility>

namespace memlab::profiler::python {

void KnownPlaces::keep(const Place& place) {
    const Table& table = *tables_.back();
    const std::size_t sets = std::size_t{1} << table.bits;
    if (table.lost > sets / 8 && table.bits < most_bits) {
        add_table(table.bits + 2);
    }
    tables_.back()->keep(place);
}

void KnownPlaces::add_table(unsigned bits) {
    auto added = std::make_unique<Table>(bits);
    if (!tables_.empty()) {
        const Table& before = *tables_.back();
        for (std::size_t i = 0; i < std::size_t{1} << before.bits; ++i) {
            for (const Entry& entry : before.sets[i].entries) {
                const std::uint64_t offset =
                    entry.offset_and_table_bytes.load(std::memory_order_relaxed);
                const std::uint64_t code = entry.code.load(std::memory_order_relaxed);
                if (code != 0) {
                    added->keep({.code = reinterpret_cast<const void*>(code),
                                 .offset = static_cast<std::uint32_t>(offset >> 32),
                                 .table_bytes = static_cast<std::uint32_t>(offset),
                                 .identity = entry.identity.load(std::memory_order_relaxed),
                                 .number = entry.number.load(std::memory_order_relaxed)});
                }
            }
        }
    }
    tables_.push_back(std::move(added));
    table_.store(tables_.back().get(), std::memory_order_release);
}

void KnownPlaces::Table::keep(const Place& place) {
    const auto code = reinterpret_cast<std::uintptr_t>(place.code);
    std::array<Entry, set_size>& set = set_of(code, place.offset).entries;
    Entry* entry = nullptr;
    for (Entry& each : set) {
        const std::uint64_t known = each.code.load(std::memory_order_relaxed);
        const std::uint64_t offset = each.offset_and_table_bytes.load(std::memory_order_relaxed);
        if (known == 0 || (known == code && offset >> 32 == place.offset)) {
            entry = &each;
            break;
        }
    }
    if (entry == nullptr) {
        entry = &set[lost++ % set_size];
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
