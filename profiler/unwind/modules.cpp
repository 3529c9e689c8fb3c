#include "profiler/unwind/modules.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <atomic>
#include <cstring>

#include "profiler/unwind/unloads.hpp"

namespace memlab::profiler::unwind {
namespace {

// Objects found so far, only to detect that one was replaced. Best effort: skipped if the list is
// full or if a signal handler finds it in use.
struct LoadedObject {
    std::uintptr_t start;
    std::uintptr_t end;
    const void* link_map;
    const void* tables;
};
constexpr std::size_t max_known_objects = 512;
constinit LoadedObject known_objects[max_known_objects]{};
constinit std::size_t known_object_count = 0;
constinit std::atomic_flag known_objects_busy = ATOMIC_FLAG_INIT;

// Whether `now` overlaps another object that was found before.
bool replaces_object(const LoadedObject& now) {
    if (known_objects_busy.test_and_set(std::memory_order_acquire)) {
        return false;
    }
    bool replaced = false;
    bool known = false;
    for (std::size_t i = 0; i < known_object_count; ++i) {
        if (known_objects[i].start < now.end && now.start < known_objects[i].end) {
            if (std::memcmp(&known_objects[i], &now, sizeof now) == 0) {
                known = true;
            } else {
                replaced = true;
                known_objects[i--] = known_objects[--known_object_count];
            }
        }
    }
    if (!known && known_object_count < max_known_objects) {
        known_objects[known_object_count++] = now;
    }
    known_objects_busy.clear(std::memory_order_release);
    return replaced;
}

// The loader writes l_addr before any code of the object can run; ThreadSanitizer does not see that
// ordering.
__attribute__((no_sanitize_thread)) std::uintptr_t load_bias(const link_map* object) {
    return object->l_addr;
}

Bytes mapping(const dl_find_object& found) {
    return {reinterpret_cast<std::uintptr_t>(found.dlfo_map_start),
            reinterpret_cast<std::uintptr_t>(found.dlfo_map_end)};
}

// Calls visit(flags, range) for each PT_LOAD segment. Every linker puts the ELF header at the start
// of the first one; false for an object without it.
template <class Visit>
bool visit_segments(const dl_find_object& found, const Visit& visit) {
    const Bytes map = mapping(found);
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
    const std::uintptr_t bias = load_bias(found.dlfo_link_map);
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

// The readable segments, or the whole mapping if the program headers cannot be read.
void find_segments(const dl_find_object& found, FrameTables* tables) {
    tables->segment_count = 0;
    const bool parsed = visit_segments(found, [tables](ElfW(Word) flags, Bytes segment) {
        if ((flags & PF_R) != 0 && tables->segment_count < FrameTables::max_segments) {
            tables->segments[tables->segment_count++] = segment;
        }
    });
    if (!parsed) {
        tables->segments[tables->segment_count++] = mapping(found);
    }
}

}  // namespace

ObjectTables find_frame_tables(std::uintptr_t address, FrameTables* tables) {
    dl_find_object found;
    if (_dl_find_object(reinterpret_cast<void*>(address), &found) != 0) {
        return ObjectTables::no_object;
    }
    const LoadedObject object{reinterpret_cast<std::uintptr_t>(found.dlfo_map_start),
                              reinterpret_cast<std::uintptr_t>(found.dlfo_map_end),
                              found.dlfo_link_map, found.dlfo_eh_frame};
    if (replaces_object(object)) {
        report_missed_unload();
    }
    if (found.dlfo_eh_frame == nullptr) {
        return ObjectTables::none;
    }
    find_segments(found, tables);
    tables->header = reinterpret_cast<std::uintptr_t>(found.dlfo_eh_frame);
    return ObjectTables::found;
}

AddressKind classify_address(std::uintptr_t address) {
    dl_find_object found;
    if (_dl_find_object(reinterpret_cast<void*>(address), &found) != 0) {
        return AddressKind::no_object;
    }
    bool executable = false;
    const bool parsed =
        visit_segments(found, [&executable, address](ElfW(Word) flags, Bytes segment) {
            executable |= (flags & PF_X) != 0 && segment.contains(address);
        });
    return executable || !parsed ? AddressKind::code : AddressKind::data;
}

void clear_modules() {
    if (!known_objects_busy.test_and_set(std::memory_order_acquire)) {
        known_object_count = 0;
        known_objects_busy.clear(std::memory_order_release);
    }
}

void reset_modules_after_fork() {
    known_object_count = 0;
    known_objects_busy.clear();
}

}  // namespace memlab::profiler::unwind
