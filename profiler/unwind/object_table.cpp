#include "profiler/unwind/object_table.hpp"

#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "profiler/unwind/back_off.hpp"

namespace memlab::profiler::unwind {

// A sequence lock over two tables: version & 1 is the one to read, the other is written. A reader
// whose version has passed reads again.
constinit std::atomic<std::uint64_t> object_table_state::version{0};

namespace {

using object_table_state::version;

struct Object {
    std::uintptr_t start;
    std::uintptr_t end;
    link_map* map;
    std::uintptr_t frame_header;
};

struct Slot {
    std::atomic<std::uintptr_t> start;
    std::atomic<std::uintptr_t> end;
    std::atomic<link_map*> map;
    std::atomic<std::uintptr_t> frame_header;
};

// Of each table; mapped at the first use, and only what is filled takes memory.
constexpr std::size_t capacity = 16384;

constinit std::atomic<Slot*> tables[2]{};
constinit std::atomic<std::size_t> counts[2]{};

// A library was unloaded since the last update began.
constinit std::atomic<bool> stale{false};

// The thread that updates; 0: none. Guards what follows.
constinit std::atomic<pthread_t> updating{0};
constinit Object* collected = nullptr;
constinit std::size_t collected_count = 0;
constinit unsigned long long known_loads = 0;
constinit unsigned long long unloads_in_table = 0;

bool map_tables() {
    constexpr std::size_t table_size = capacity * sizeof(Slot);
    constexpr std::size_t size = 2 * table_size + capacity * sizeof(Object);
    void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    auto* const bytes = static_cast<std::byte*>(memory);
    tables[0].store(reinterpret_cast<Slot*>(bytes), std::memory_order_relaxed);
    tables[1].store(reinterpret_cast<Slot*>(bytes + table_size), std::memory_order_relaxed);
    collected = reinterpret_cast<Object*>(bytes + 2 * table_size);
    return true;
}

// dl_iterate_phdr names no link_map, but visits them in the order of the loader's list.
link_map* find_link_map(const dl_phdr_info& info, link_map* expected) {
    const auto is_it = [&info](const link_map* map) {
        return map != nullptr && map->l_addr == info.dlpi_addr && map->l_name == info.dlpi_name;
    };
    if (is_it(expected)) {
        return expected;
    }
    link_map* map = _r_debug.r_map;
    while (map != nullptr && !is_it(map)) {
        map = map->l_next;
    }
    return map;
}

struct Visit {
    link_map* next = nullptr;
    bool changed = false;
};

int collect(dl_phdr_info* info, std::size_t /*size*/, void* data) {
    auto& visit = *static_cast<Visit*>(data);
    if (!visit.changed) {
        if (info->dlpi_adds == known_loads && info->dlpi_subs == unloads_in_table) {
            return 1;
        }
        visit.changed = true;
        visit.next = _r_debug.r_map;
        known_loads = info->dlpi_adds;
        unloads_in_table = info->dlpi_subs;
        collected_count = 0;
    }
    link_map* const map = find_link_map(*info, visit.next);
    if (map == nullptr) {
        return 0;
    }
    visit.next = map->l_next;
    Object object{~std::uintptr_t{0}, 0, map, 0};
    for (std::size_t i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)& segment = info->dlpi_phdr[i];
        const std::uintptr_t start = info->dlpi_addr + segment.p_vaddr;
        if (segment.p_type == PT_LOAD) {
            constexpr std::uintptr_t page = 4096;
            object.start = std::min(object.start, start & ~(page - 1));
            object.end = std::max(object.end, start + segment.p_memsz);
        } else if (segment.p_type == PT_GNU_EH_FRAME) {
            object.frame_header = start;
        }
    }
    if (object.start < object.end) {
        collected[collected_count++] = object;
    }
    return collected_count == capacity ? 1 : 0;
}

void publish() {
    const std::uint64_t now = version.load(std::memory_order_relaxed);
    const std::size_t target = (now + 1) & 1;
    Slot* const table = tables[target].load(std::memory_order_relaxed);
    std::sort(collected, collected + collected_count,
              [](const Object& a, const Object& b) { return a.start < b.start; });
    // Releasing: a reader of this table that sees a slot change also sees the version that was
    // there before, and so that its own is over. (A fence would do, but ThreadSanitizer knows
    // none.)
    for (std::size_t i = 0; i < collected_count; ++i) {
        table[i].start.store(collected[i].start, std::memory_order_release);
        table[i].end.store(collected[i].end, std::memory_order_release);
        table[i].map.store(collected[i].map, std::memory_order_release);
        table[i].frame_header.store(collected[i].frame_header, std::memory_order_release);
    }
    counts[target].store(collected_count, std::memory_order_release);
    version.store(now + 1, std::memory_order_release);
}

// Waits a little for another thread's update, not without end: it waits for the loader's lock,
// whose holder may wait for this thread.
bool begin_update(int tries) {
    const pthread_t self = pthread_self();
    BackOff back_off;
    for (; tries != 0; --tries) {
        pthread_t holder = 0;
        if (updating.compare_exchange_strong(holder, self, std::memory_order_acquire)) {
            return true;
        }
        if (holder == self) {
            return false;  // a signal handler that interrupted an update
        }
        if (tries != 1) {
            back_off.wait();
        }
    }
    return false;
}

void update_within(int tries) {
    if (!begin_update(tries)) {
        return;
    }
    stale.store(false);  // before it looks: what is unloaded from now on makes it stale again
    if (collected != nullptr || map_tables()) {
        Visit visit;
        dl_iterate_phdr(collect, &visit);
        if (visit.changed) {
            publish();
        }
    }
    updating.store(0, std::memory_order_release);
}

constexpr int most_tries = 100;

/// Whether the table may be read; without waiting.
bool is_current() {
    if (stale.load(std::memory_order_acquire)) [[unlikely]] {
        update_within(1);
        return !stale.load(std::memory_order_acquire);
    }
    return true;
}

bool find(std::uintptr_t address, Object* result) {
    for (;;) {
        const std::uint64_t now = version.load(std::memory_order_acquire);
        if (now == 0) {
            return false;
        }
        const Slot* const table = tables[now & 1].load(std::memory_order_relaxed);
        std::size_t low = 0;
        std::size_t high = counts[now & 1].load(std::memory_order_acquire);
        while (low < high) {
            const std::size_t middle = low + (high - low) / 2;
            if (table[middle].start.load(std::memory_order_acquire) <= address) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        *result = {};
        if (low != 0) {
            const Slot& slot = table[low - 1];
            *result = {slot.start.load(std::memory_order_acquire),
                       slot.end.load(std::memory_order_acquire),
                       slot.map.load(std::memory_order_acquire),
                       slot.frame_header.load(std::memory_order_acquire)};
        }
        if (version.load(std::memory_order_relaxed) == now) {
            return address < result->end;
        }
    }
}

// No object is in the first pages or above user space: words of a stack that are no addresses need
// no update.
bool may_be_code(std::uintptr_t address) {
    return address >= 0x10000 && address >> 56 == 0;
}

/// Whether it is the one that contains this code, which is never unloaded.
bool is_own(const Object& object) {
    const auto here = reinterpret_cast<std::uintptr_t>(&find);
    return here >= object.start && here < object.end;
}

int fill(const Object& object, dl_find_object* result) {
    *result = {};
    result->dlfo_map_start = reinterpret_cast<void*>(object.start);
    result->dlfo_map_end = reinterpret_cast<void*>(object.end);
    result->dlfo_link_map = object.map;
    result->dlfo_eh_frame = reinterpret_cast<void*>(object.frame_header);
    return 0;
}

}  // namespace

void object_table_state::update() noexcept {
    update_within(most_tries);
}

void object_table_state::update_after_unload() noexcept {
    stale.store(true);
    update_within(most_tries);
}

int find_in_object_table(std::uintptr_t address, dl_find_object* result) noexcept {
    const bool current = is_current();
    Object object{};
    if (!current) {
        return find(address, &object) && is_own(object) ? fill(object, result) : -1;
    }
    if (!find(address, &object)) {
        if (!may_be_code(address)) {
            return -1;
        }
        object_table_state::update();
        if (!find(address, &object)) {
            return -1;
        }
    }
    return fill(object, result);
}

void reset_object_table_after_fork() noexcept {
    if (updating.exchange(0) != 0) {
        known_loads = 0;  // what was collected may not have been published
    }
}

}  // namespace memlab::profiler::unwind
