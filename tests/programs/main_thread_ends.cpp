// A program whose main thread ends by pthread_exit(). The process ends with its last thread, with
// exit code 0 after exit()'s handlers, and by a signal before that.
//
// "before": the main thread has used CUDA; "after": another thread begins to when it has ended;
// "stays": as "before", and the other thread never ends.
//
// Recorded: 2 device allocations of 2 MiB in all, 2 frees.
#include <pthread.h>

#include <cstring>
#include <string>

#include "program.hpp"

using namespace program;

namespace {

const char* way = "";

void wait_for_the_main_threads_end() {
    char state = 'R';
    while (state != 'Z') {
        ::usleep(10'000);
        std::FILE* const file = std::fopen("/proc/self/stat", "r");
        if (file == nullptr || std::fscanf(file, "%*d (%*[^)]) %c", &state) != 1) {
            ::_exit(3);
        }
        std::fclose(file);
    }
}

void* work(void* /*unused*/) {
    wait_for_the_main_threads_end();
    const bool stays = std::strcmp(way, "stays") == 0;
    use_device();
    for (int i = 0; i < 2; ++i) {
        release(allocate(std::size_t{1} << 20));
    }
    SAY("the main thread has ended\n");
    while (stays) {
        ::pause();
    }
    return nullptr;
}

}  // namespace

int main(int count, char** words) {
    way = count > 1 ? words[1] : "before";
    std::atexit([] { SAY("a handler of exit()\n"); });
    if (std::strcmp(way, "after") != 0) {
        use_device();
    }
    pthread_t thread{};
    ::pthread_create(&thread, nullptr, work, nullptr);
    ::pthread_detach(thread);
    ::pthread_exit(nullptr);
}
