// operator new and delete of libmemlab.so: its private heap's. Hidden, as all that is not exported,
// so the program's stay what they are.
//
// Not in builds with a sanitizer, which must see every block and replace these themselves.
#include <new>

#include "interpose/process/private_heap.hpp"

namespace {

constinit memlab::interpose::PrivateHeap heap;

void* allocate_or_throw(std::size_t size, std::size_t align) {
    void* const memory = heap.allocate(size, align);
    if (memory == nullptr) [[unlikely]] {
        throw std::bad_alloc();
    }
    return memory;
}

}  // namespace

// The forms for arrays, and those of delete that no throw asks for, call these.
[[gnu::hot]] void* operator new(std::size_t size) {
    return allocate_or_throw(size, memlab::interpose::PrivateHeap::alignment);
}
void* operator new(std::size_t size, std::align_val_t align) {
    return allocate_or_throw(size, static_cast<std::size_t>(align));
}
void* operator new(std::size_t size, const std::nothrow_t& /*unused*/) noexcept {
    return heap.allocate(size);
}
void* operator new(std::size_t size, std::align_val_t align,
                   const std::nothrow_t& /*unused*/) noexcept {
    return heap.allocate(size, static_cast<std::size_t>(align));
}
[[gnu::hot]] void operator delete(void* memory) noexcept {
    heap.release(memory);
}
[[gnu::hot]] void operator delete(void* memory, std::size_t /*size*/) noexcept {
    heap.release(memory);
}
void operator delete(void* memory, std::align_val_t /*align*/) noexcept {
    heap.release(memory);
}
void operator delete(void* memory, std::size_t /*size*/, std::align_val_t /*align*/) noexcept {
    heap.release(memory);
}

// Called by the runtime of a program that was built with ThreadSanitizer. It does not see that
// blocks pass from thread to thread through the heap, which takes no lock, nor what else is atomic
// in here: to it the memcpy of one thread and that of another are a race. Clang links the runtime
// into the program, where its own answer comes first.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
    return "race:libmemlab.so\n";
}
