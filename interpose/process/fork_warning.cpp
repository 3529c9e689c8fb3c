#include "interpose/process/fork_warning.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <new>
#include <string_view>

#include "interpose/driver/diagnostics.hpp"

namespace memlab::interpose {
namespace {

using Count = std::atomic<std::uint32_t>;
static_assert(Count::is_always_lock_free);  // required between processes

// Set before the session is published; constant in the process that set it.
Count* refused = nullptr;
pid_t cuda_process = 0;  // the process that started CUDA

std::atomic<bool> forked_from_cuda{false};
std::atomic<bool> was_refused{false};

template <std::size_t size>
std::string_view to_digits(pid_t process, char (&text)[size]) noexcept {
    return {text, static_cast<std::size_t>(std::to_chars(text, text + size, process).ptr - text)};
}

}  // namespace

void prepare_fork_warning() noexcept {
    cuda_process = getpid();
    void* page =
        mmap(nullptr, sizeof(Count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    refused = page == MAP_FAILED ? nullptr : new (page) Count(0);
}

void note_fork(bool cuda_started) noexcept {
    if (cuda_started) {
        forked_from_cuda.store(true, std::memory_order_relaxed);
    }
    was_refused.store(false, std::memory_order_relaxed);
}

void driver_not_initialized() noexcept {
    if (!forked_from_cuda.load(std::memory_order_relaxed) ||
        was_refused.exchange(true, std::memory_order_relaxed)) {
        return;
    }
    if (refused != nullptr && refused->fetch_add(1, std::memory_order_relaxed) != 0) {
        return;
    }
    char own[16];
    char parents[16];
    constexpr std::string_view rest =
        " after CUDA had started there, and CUDA does not survive a fork: its calls fail with "
        "\"initialization error\" (3). Start such processes with exec (Python: multiprocessing's "
        "'spawn' start method), or fork before the first CUDA call";
    warn_without_heap({"process ", to_digits(getpid(), own), " was forked from process ",
                       to_digits(cuda_process, parents), rest});
}

std::uint32_t refused_children() noexcept {
    return refused == nullptr ? 0 : refused->load(std::memory_order_relaxed);
}

}  // namespace memlab::interpose
