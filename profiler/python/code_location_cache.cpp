#include "profiler/python/code_location_cache.hpp"

#include <utility>

namespace memlab::profiler::python {

void CodeLocationCache::keep(const Place& place) {
    const Table& table = *tables_.back();
    const std::size_t sets = std::size_t{1} << table.bits;
    if (table.lost > sets / 8 && table.bits < max_bits) {
        add_table(table.bits + 2);
    }
    tables_.back()->keep(key_of(place.code, place.offset), place.identity,
                         std::uint64_t{place.number} << 32 | place.table_bytes);
}

void CodeLocationCache::add_table(unsigned bits) {
    auto added = std::make_unique<Table>(bits);
    if (!tables_.empty()) {
        const Table& before = *tables_.back();
        for (std::size_t i = 0; i < std::size_t{1} << before.bits; ++i) {
            for (const Entry& entry : before.sets[i].entries) {
                const std::uint64_t identity = entry.identity.load(std::memory_order_relaxed);
                const std::uint64_t answer = entry.answer.load(std::memory_order_relaxed);
                if (answer != 0) {
                    const std::uint64_t check = entry.check.load(std::memory_order_relaxed);
                    added->keep(check ^ mixed(identity, answer), identity, answer);
                }
            }
        }
    }
    tables_.push_back(std::move(added));
    table_.store(tables_.back().get(), std::memory_order_release);
}

void CodeLocationCache::Table::keep(std::uint64_t key, std::uint64_t identity,
                                    std::uint64_t answer) {
    std::array<Entry, set_size>& set = sets[key >> (64 - bits)].entries;
    Entry* entry = nullptr;
    for (Entry& each : set) {
        const std::uint64_t known = each.answer.load(std::memory_order_relaxed);
        if (known == 0 || (each.check.load(std::memory_order_relaxed) ^
                           mixed(each.identity.load(std::memory_order_relaxed), known)) == key) {
            entry = &each;
            break;
        }
    }
    if (entry == nullptr) {
        entry = &set[lost++ % set_size];
    }
    entry->check.store(key ^ mixed(identity, answer), std::memory_order_relaxed);
    entry->identity.store(identity, std::memory_order_relaxed);
    entry->answer.store(answer, std::memory_order_relaxed);
}

}  // namespace memlab::profiler::python
