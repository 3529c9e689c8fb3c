#include "profiler/unwind/modules.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <atomic>
#include <cstring>

#include "profiler/unwind/unloads.hpp"

namespace memlab::profiler::unwind {
namespace {

// Objects whose tables were asked for. Only for noticing that one of them is gone: when the list is
// full, or a signal came while it was in use, nothing is lost but that.
struct Seen {
    std::uintptr_t start;
    std::uintptr_t end;
    const void* link_map;
    const void* tables;
};
constexpr std::size_t max_seen = 512;
constinit Seen seen[max_seen]{};
constinit std::size_t seen_count = 0;
constinit std::atomic_flag seen_busy = ATOMIC_FLAG_INIT;

// True when `now` lies where another object was.
bool took_anothers_place(const Seen& now) {
    if (seen_busy.test_and_set(std::memory_order_acquire)) {
        return false;
    }
    bool replaced = false;
    bool known = false;
    for (std::size_t i = 0; i < seen_count; ++i) {
        if (seen[i].start < now.end && now.start < seen[i].end) {
            if (std::memcmp(&seen[i], &now, sizeof now) == 0) {
                known = true;
            } else {
                replaced = true;
                seen[i--] = seen[--seen_count];
            }
        }
    }
    if (!known && seen_count < max_seen) {
        seen[seen_count++] = now;
    }
    seen_busy.clear(std::memory_order_release);
    return replaced;
}

// The loader wrote it before it let anybody run the object's code, and gives it up after the last;
// ThreadSanitizer does not see the loader's own order.
__attribute__((no_sanitize_thread)) std::uintptr_t bias_of(const link_map* object) {
    return object->l_addr;
}

Bytes mapping_of(const dl_find_object& found) {
    return {reinterpret_cast<std::uintptr_t>(found.dlfo_map_start),
            reinterpret_cast<std::uintptr_t>(found.dlfo_map_end)};
}

// The loaded segments by the program headers: their rights and where they lie. Every linker lets
// the first one begin with the ELF header; false for an object where that is not so.
template <class Visit>
bool visit_segments(const dl_find_object& found, const Visit& visit) {
    const Bytes map = mapping_of(found);
    ElfW(Ehdr) header;
    ByteReader reader(map);
    const Bytes header_bytes = reader.take(sizeof header);
    if (!reader.failed()) {
        std::memcpy(&header, reinterpret_cast<const void*>(header_bytes.begin), sizeof header);
    }
    if (reader.failed() || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_phentsize != sizeof(ElfW(Phdr)) || header.e_phnum > 64 || header.e_phoff > 4096 ||
        header.e_phoff + header.e_phnum * sizeof(ElfW(Phdr)) > 4096) {
        return false;
    }
    const std::uintptr_t bias = bias_of(found.dlfo_link_map);
    for (std::size_t i = 0; i < header.e_phnum; ++i) {
        ElfW(Phdr) segment;
        std::memcpy(&segment,
                    reinterpret_cast<const void*>(map.begin + header.e_phoff + i * sizeof segment),
                    sizeof segment);
        const std::uintptr_t begin = bias + segment.p_vaddr;
        const std::uintptr_t end = begin + segment.p_memsz;
        if (segment.p_type == PT_LOAD && begin >= map.begin && end <= map.end && begin < end) {
            visit(segment.p_flags, Bytes{begin, end});
        }
    }
    return true;
}

// The readable segments; where nothing tells them apart, all of the object's mapping.
void find_segments(const dl_find_object& found, FrameTables* tables) {
    tables->segment_count = 0;
    const bool told = visit_segments(found, [tables](ElfW(Word) rights, Bytes segment) {
        if ((rights & PF_R) != 0 && tables->segment_count < FrameTables::max_segments) {
            tables->segments[tables->segment_count++] = segment;
        }
    });
    if (!told) {
        tables->segments[tables->segment_count++] = mapping_of(found);
    }
}

}  // namespace

ObjectTables find_frame_tables(std::uintptr_t address, FrameTables* tables) {
    dl_find_object found;
    if (_dl_find_object(reinterpret_cast<void*>(address), &found) != 0) {
        return ObjectTables::no_object;
    }
    const Seen object{reinterpret_cast<std::uintptr_t>(found.dlfo_map_start),
                      reinterpret_cast<std::uintptr_t>(found.dlfo_map_end), found.dlfo_link_map,
                      found.dlfo_eh_frame};
    if (took_anothers_place(object)) {
        unload_was_missed();
    }
    if (found.dlfo_eh_frame == nullptr) {
        return ObjectTables::none;
    }
    find_segments(found, tables);
    tables->header = reinterpret_cast<std::uintptr_t>(found.dlfo_eh_frame);
    return ObjectTables::found;
}

CodeAt code_at(std::uintptr_t address) {
    dl_find_object found;
    if (_dl_find_object(reinterpret_cast<void*>(address), &found) != 0) {
        return CodeAt::no_object;
    }
    bool executed = false;
    const bool told = visit_segments(found, [&executed, address](ElfW(Word) rights, Bytes segment) {
        executed |= (rights & PF_X) != 0 && segment.contains(address);
    });
    return executed || !told ? CodeAt::code : CodeAt::data;
}

void forget_modules() {
    if (!seen_busy.test_and_set(std::memory_order_acquire)) {
        seen_count = 0;
        seen_busy.clear(std::memory_order_release);
    }
}

void forget_modules_after_fork() {
    seen_count = 0;
    seen_busy.clear();
}

}  // namespace memlab::profiler::unwind
