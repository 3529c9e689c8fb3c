#include "profiler/python/code_location_cache.hpp"

#include <utility>

namespace memlab::profiler::python {

void CodeLocationCache::insert(const Location& location) {
    const Table& table = *tables_.back();
    const std::size_t sets = std::size_t{1} << table.bits;
    if (table.evictions > sets / 8 && table.bits < max_bits) {
        add_table(table.bits + 2);
    }
    tables_.back()->insert(make_key(location.code, location.offset), location.identity,
                           std::uint64_t{location.id} << 32 | location.table_bytes);
}

void CodeLocationCache::add_table(unsigned bits) {
    auto added = std::make_unique<Table>(bits);
    if (!tables_.empty()) {
        const Table& before = *tables_.back();
        for (std::size_t i = 0; i < std::size_t{1} << before.bits; ++i) {
            for (const Entry& entry : before.sets[i].entries) {
                const std::uint64_t identity = entry.identity.load(std::memory_order_relaxed);
                const std::uint64_t value = entry.value.load(std::memory_order_relaxed);
                if (value != 0) {
                    const std::uint64_t check = entry.check.load(std::memory_order_relaxed);
                    added->insert(check ^ checksum(identity, value), identity, value);
                }
            }
        }
    }
    tables_.push_back(std::move(added));
    table_.store(tables_.back().get(), std::memory_order_release);
}

void CodeLocationCache::Table::insert(std::uint64_t key, std::uint64_t identity,
                                      std::uint64_t value) {
    std::array<Entry, ways>& set = sets[key >> (64 - bits)].entries;
    Entry* entry = nullptr;
    for (Entry& each : set) {
        const std::uint64_t known = each.value.load(std::memory_order_relaxed);
        if (known == 0 || (each.check.load(std::memory_order_relaxed) ^
                           checksum(each.identity.load(std::memory_order_relaxed), known)) == key) {
            entry = &each;
            break;
        }
    }
    if (entry == nullptr) {
        entry = &set[evictions++ % ways];
    }
    entry->check.store(key ^ checksum(identity, value), std::memory_order_relaxed);
    entry->identity.store(identity, std::memory_order_relaxed);
    entry->value.store(value, std::memory_order_relaxed);
}

}  // namespace memlab::profiler::python
