// Everything at once, for a while: many threads allocate and free while one loads and unloads a
// library that does so too, one forks children that end in every way, and a timer's signals hit
// whatever thread they find.
//
//   storm SECONDS THREADS PAUSE    PAUSE: microseconds each thread rests after every 64 calls
//
// Prints how many allocations and frees there were. Recorded: exactly those, and nothing of the
// children. A watchdog ends the program with code 9 when a thread has made no progress for 30 s.
#include <dlfcn.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "program.hpp"

using namespace program;

namespace {

std::atomic<bool> over{false};
std::atomic<bool> joined{false};
std::atomic<std::uint64_t> allocations{0};
std::atomic<std::uint64_t> frees{0};
volatile sig_atomic_t signals = 0;

constexpr std::uint64_t ended = ~std::uint64_t{0};

struct alignas(64) Progress {
    std::atomic<std::uint64_t> steps{0};
};

void on_signal(int) {
    signals = signals + 1;
}

void allocate_and_free(CUcontext context, unsigned seed, unsigned pause, Progress* progress) {
    CHECK(cuCtxSetCurrent(context));
    std::mt19937 random(seed);
    std::vector<CUdeviceptr> blocks;
    while (!over.load()) {
        for (int call = 0; call < 64; ++call) {
            if (blocks.size() < 40 && random() % 2 == 0) {
                blocks.push_back(allocate(1 + random() % (random() % 64 == 0 ? 3000000 : 20000)));
                ++allocations;
            } else if (!blocks.empty()) {
                std::swap(blocks[random() % blocks.size()], blocks.back());
                release(blocks.back());
                ++frees;
                blocks.pop_back();
            }
        }
        ++progress->steps;
        if (pause != 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(pause));
        }
    }
    for (CUdeviceptr block : blocks) {
        release(block);
        ++frees;
    }
    progress->steps = ended;
}

void load_and_unload(CUcontext context, const std::string& path, Progress* progress) {
    CHECK(cuCtxSetCurrent(context));
    while (!over.load()) {
        void* const library = ::dlopen(path.c_str(), RTLD_NOW);
        using Pair = int (*)();
        const auto pair =
            library == nullptr ? nullptr : reinterpret_cast<Pair>(::dlsym(library, "plugin_pair"));
        if (pair == nullptr || pair() != 0) {
            ::dprintf(STDERR_FILENO, "the plugin: %s\n", ::dlerror());
            ::_exit(4);
        }
        ++allocations;
        ++frees;
        ::dlclose(library);
        ++progress->steps;
    }
    progress->steps = ended;
}

void fork_children(Progress* progress) {
    for (unsigned round = 0; !over.load(); ++round) {
        const pid_t child = ::fork();
        if (child == 0) {
            CUdeviceptr address = 0;
            switch (round % 4) {
                case 0:
                    ::_exit(0);
                case 1:  // CUDA does not survive a fork: an error, not a hang
                    ::_exit(cuMemAlloc(&address, 1000) == CUDA_SUCCESS ? 1 : 0);
                case 2:
                    ::execl("/bin/true", "true", nullptr);
                    ::_exit(1);
                default:
                    ::raise(SIGKILL);
            }
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) &&
            !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) {
            ::dprintf(STDERR_FILENO, "child %u ended with status %d\n", round % 4, status);
            ::_exit(5);
        }
        ++progress->steps;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    progress->steps = ended;
}

void watch(const Progress* progress, std::size_t count) {
    constexpr int patience = 300;  // 30 seconds
    std::vector<std::uint64_t> before(count, 0);
    std::vector<int> still(count, 0);
    while (!joined.load()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint64_t now = progress[i].steps.load();
            still[i] = now == before[i] ? still[i] + 1 : 0;
            before[i] = now;
            if (still[i] == patience && now != ended) {
                ::dprintf(STDERR_FILENO, "thread %zu of %zu is stuck\n", i, count);
                ::_exit(9);
            }
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        ::dprintf(STDERR_FILENO, "usage: %s SECONDS THREADS PAUSE\n", argv[0]);
        return 2;
    }
    const int seconds = std::atoi(argv[1]);
    const auto threads = static_cast<std::size_t>(std::atoi(argv[2]));
    const auto pause = static_cast<unsigned>(std::atoi(argv[3]));
    std::string plugin(argv[0]);
    plugin.resize(plugin.rfind('/') + 1);
    plugin += "plugin.so";

    const CUcontext context = use_device();
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGALRM, &action, nullptr);
    const itimerval timer{{0, 3000}, {0, 3000}};
    ::setitimer(ITIMER_REAL, &timer, nullptr);

    const auto progress = std::make_unique<Progress[]>(threads + 2);
    std::vector<std::thread> workers;
    for (std::size_t i = 0; i < threads; ++i) {
        workers.emplace_back(allocate_and_free, context, static_cast<unsigned>(i + 1), pause,
                             &progress[i]);
    }
    workers.emplace_back(load_and_unload, context, plugin, &progress[threads]);
    workers.emplace_back(fork_children, &progress[threads + 1]);
    std::thread watchdog(watch, progress.get(), threads + 2);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (std::chrono::steady_clock::now() < end) {  // signals cut a sleep short
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    over = true;
    for (std::thread& worker : workers) {
        worker.join();
    }
    joined = true;
    watchdog.join();
    const itimerval off{};
    ::setitimer(ITIMER_REAL, &off, nullptr);
    SAY("%llu allocations, %llu frees\n", static_cast<unsigned long long>(allocations),
        static_cast<unsigned long long>(frees));
    return signals > 0 ? 0 : 6;
}
