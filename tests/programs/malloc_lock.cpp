// A program whose malloc has a lock, as heap profilers and wrappers have, and that calls CUDA while
// it holds it; other threads allocate device memory from ever new call sites, for which memlab
// needs memory. Ends with code 5 when they wait for each other.
//
// The simulated driver allocates under its own lock, so what it and the C and C++ libraries ask for
// is served without the lock.
//
// Recorded: 4000 allocations under the lock and 6000 beside it, all freed.
#include <link.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <thread>

#include "call_stacks.hpp"
#include "spinning.hpp"

using namespace program;

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void __libc_free(void* memory);
}

namespace {

constexpr int locked_pairs = 4000;
constexpr int pairs = 2000;
constexpr int levels = 13;

pthread_mutex_t heap_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
};
std::array<Range, 64> unlocked{};
std::size_t unlocked_count = 0;

int note_unlocked(dl_phdr_info* info, std::size_t, void*) {
    for (const char* name : {"libcuda.so", "libstdc++.so", "libc.so", "ld-linux"}) {
        if (std::strstr(info->dlpi_name, name) == nullptr) {
            continue;
        }
        for (int i = 0; i < info->dlpi_phnum && unlocked_count < unlocked.size(); ++i) {
            const ElfW(Phdr)& segment = info->dlpi_phdr[i];
            if (segment.p_type == PT_LOAD) {
                const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
                unlocked[unlocked_count++] = {begin, begin + segment.p_memsz};
            }
        }
    }
    return 0;
}

class HeapLock {
  public:
    explicit HeapLock(const void* caller) {
        const auto address = reinterpret_cast<std::uintptr_t>(caller);
        for (std::size_t i = 0; i < unlocked_count; ++i) {
            held_ = held_ && (address < unlocked[i].begin || address >= unlocked[i].end);
        }
        if (held_) {
            ::pthread_mutex_lock(&heap_lock);
        }
    }
    ~HeapLock() {
        if (held_) {
            ::pthread_mutex_unlock(&heap_lock);
        }
    }
    HeapLock(const HeapLock&) = delete;
    HeapLock& operator=(const HeapLock&) = delete;

  private:
    bool held_ = true;
};

}  // namespace

#define CALLER __builtin_return_address(0)
extern "C" void* malloc(std::size_t size) {
    const HeapLock lock(CALLER);
    return __libc_malloc(size);
}
extern "C" void* calloc(std::size_t count, std::size_t size) {
    const HeapLock lock(CALLER);
    return __libc_calloc(count, size);
}
extern "C" void* realloc(void* memory, std::size_t size) {
    const HeapLock lock(CALLER);
    return __libc_realloc(memory, size);
}
extern "C" void free(void* memory) {
    const HeapLock lock(CALLER);
    __libc_free(memory);
}

int main() {
    must_end_within(20);
    const CUcontext context = use_device();
    ::dl_iterate_phdr(note_unlocked, nullptr);
    std::array<std::thread, 3> threads;
    for (unsigned number = 0; number < threads.size(); ++number) {
        threads[number] = std::thread([context, number] {
            CHECK(cuCtxSetCurrent(context));
            for (unsigned i = 0; i < pairs; ++i) {
                in_stack(i * 4 + number, levels, [] { release(allocate(4096)); });
            }
        });
    }
    for (int i = 0; i < locked_pairs; ++i) {
        ::pthread_mutex_lock(&heap_lock);
        ::sched_yield();  // others come to wait for it
        release(allocate(4096));
        ::pthread_mutex_unlock(&heap_lock);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    must_end_within(0);
    SAY("done\n");
    return 0;
}
