#include "interpose/process/last_thread.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "threads/own_thread.hpp"

namespace memlab::interpose {
namespace {

constinit std::atomic<bool> main_thread_ended{false};
constinit std::atomic<bool> session_began{false};
constinit std::atomic<bool> watching{false};
constinit pthread_key_t end_of_main_thread{};
constinit bool has_key = false;

bool is_main_thread() {
    return syscall(SYS_gettid) == getpid();
}

struct Threads {
    bool main_ended = false;
    unsigned count = 0;  ///< the ended main thread among them
};

/// False if the kernel does not say.
bool read_threads(Threads* threads) {
    char text[1024];
    const int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    const ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[std::max<ssize_t>(length, 0)] = '\0';
    // "pid (name) state", the main thread's; the name may contain anything. The count is the
    // eighteenth word from the state on.
    const char* word = std::strrchr(text, ')');
    for (int i = 0; word != nullptr && i < 18; ++i) {
        word = std::strchr(word + 1, ' ');
        if (i == 0 && word != nullptr) {
            threads->main_ended = word[1] == 'Z';
        }
    }
    if (word == nullptr) {
        return false;
    }
    threads->count = static_cast<unsigned>(std::strtoul(word, nullptr, 10));
    return true;
}

/// Sleeps for a tenth of the time since the main thread ended: the delay at the end of a program
/// stays small in proportion to its run.
void wait_before_look(std::uint64_t waited_ms, std::uint64_t* slept_ms) {
    *slept_ms = std::clamp<std::uint64_t>(waited_ms / 10, 10, 500);
    const timespec time{0, static_cast<long>(*slept_ms) * 1'000'000};
    nanosleep(&time, nullptr);
}

// Not marked as inside memlab: handlers of exit() that run here may call CUDA.
void* watch(void* /*unused*/) {
    Threads threads;
    std::uint64_t waited_ms = 0;
    do {
        std::uint64_t slept_ms = 0;
        wait_before_look(waited_ms, &slept_ms);
        waited_ms += slept_ms;
        if (!read_threads(&threads)) {
            return nullptr;
        }
    } while (!threads.main_ended || threads.count > threads::own_threads.load() + 1);
    // A pending signal that no thread handled ends the process now; else exit, as the C library
    // does after the last thread.
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, nullptr);
    std::exit(0);
}

void on_end_of_thread(void* /*unused*/) {
    if (!is_main_thread()) {
        return;
    }
    main_thread_ended.store(true);
    if (session_began.load()) {
        watch_for_last_thread();
    }
}

void follow_main_thread() {
    if (has_key && is_main_thread()) {
        pthread_setspecific(end_of_main_thread, &end_of_main_thread);
    }
}

__attribute__((constructor)) void follow_main_thread_at_start() {
    has_key = pthread_key_create(&end_of_main_thread, on_end_of_thread) == 0;
    follow_main_thread();
}

}  // namespace

void watch_for_last_thread() noexcept {
    session_began.store(true);
    if (main_thread_ended.load() && !watching.exchange(true)) {
        watching.store(threads::start_own_thread(&watch, nullptr));
    }
}

void forget_threads_after_fork() noexcept {
    threads::own_threads.store(0);
    main_thread_ended.store(false);
    session_began.store(false);
    watching.store(false);
    follow_main_thread();
}

}  // namespace memlab::interpose
