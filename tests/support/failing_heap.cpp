// libmemlab.so's operator new where the host runs out of memory: replaces
// interpose/process/operator_new.cpp in the library of tests/programs/short_of_memory.cpp.
#include <cstdlib>
#include <new>

namespace {

// Of the calling thread: how many allocations succeed before those that fail; negative: all do.
__attribute__((tls_model("initial-exec"))) thread_local long allowance = -1;
__attribute__((tls_model("initial-exec"))) thread_local long failing = 0;

void* allocate(std::size_t size, std::size_t align) noexcept {
    if (allowance == 0 && failing > 0) {
        if (--failing == 0) {
            allowance = -1;
        }
        return nullptr;
    }
    allowance -= allowance > 0 ? 1 : 0;
    return std::aligned_alloc(align, (size + align - 1) / align * align);
}

void* allocate_or_throw(std::size_t size, std::size_t align) {
    void* const memory = allocate(size, align);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}

constexpr std::size_t alignment = 16;

}  // namespace

/// From now on memlab's allocations of this thread succeed `succeed` times, then fail `fail` times.
/// Returns how many of the earlier failures are still to come.
extern "C" __attribute__((visibility("default"))) long memlab_api_fail_allocations(long succeed,
                                                                                   long fail) {
    const long left = failing;
    allowance = fail == 0 ? -1 : succeed;
    failing = fail;
    return left;
}

void* operator new(std::size_t size) {
    return allocate_or_throw(size, alignment);
}
void* operator new(std::size_t size, std::align_val_t align) {
    return allocate_or_throw(size, static_cast<std::size_t>(align));
}
void* operator new(std::size_t size, const std::nothrow_t& /*unused*/) noexcept {
    return allocate(size, alignment);
}
void* operator new(std::size_t size, std::align_val_t align,
                   const std::nothrow_t& /*unused*/) noexcept {
    return allocate(size, static_cast<std::size_t>(align));
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::align_val_t /*align*/) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/, std::align_val_t /*align*/) noexcept {
    std::free(memory);
}
