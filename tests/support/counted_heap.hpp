// Counts a benchmark's heap use, by replacing operator new and delete. Include it in one source of
// a program only.
#pragma once

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace memlab::test {

/// As malloc rounds them, its header of a word included.
inline std::atomic<std::uint64_t> host_bytes{0};

inline std::uint64_t heap_bytes_of(void* memory) {
    return malloc_usable_size(memory) + sizeof(std::size_t);
}

}  // namespace memlab::test

void* operator new(std::size_t size) {
    void* memory = std::malloc(size);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    memlab::test::host_bytes.fetch_add(memlab::test::heap_bytes_of(memory),
                                       std::memory_order_relaxed);
    return memory;
}
void operator delete(void* memory) noexcept {
    if (memory != nullptr) {
        memlab::test::host_bytes.fetch_sub(memlab::test::heap_bytes_of(memory),
                                           std::memory_order_relaxed);
        std::free(memory);
    }
}
void operator delete(void* memory, std::size_t) noexcept {
    operator delete(memory);
}
