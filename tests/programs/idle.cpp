// A program that frees device memory and then does nothing for a while.
//
//   idle MILLISECONDS            says whether the driver got the memory back meanwhile
//   idle MILLISECONDS signals    the same, with signals to the process that only the main thread,
//                                which blocks none, should take; then a fork whose child ends at
//                                once
//   idle 0 managed MIB MIB       takes so much managed memory, and more, instead of waiting; then
//   frees
//                                300 MiB of device memory
#include <cuda.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <thread>

#include "tests/programs/simulated.hpp"

namespace {

constexpr std::size_t large = 30000000;

pid_t main_thread;
volatile sig_atomic_t on_main = 0;

void count(int) {
    if (gettid() == main_thread) {
        on_main = on_main + 1;
    }
}

void pause_for(int milliseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// What the driver itself says: memlab counts cached memory as free.
std::size_t used_by_driver() {
    static auto* used = program::control<std::uint64_t()>("simcuda_used");
    return used();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        return 2;
    }
    const int milliseconds = std::atoi(argv[1]);
    program::use_device();
    const CUdeviceptr held = program::allocate(4096);
    const unsigned char written[4] = {1, 2, 3, 4};
    CHECK(cuMemcpyHtoD(held, written, sizeof(written)));
    program::release(program::allocate(large));
    const std::size_t before = used_by_driver();
    SAY("cached: %s\n", before >= large ? "30000000 or more" : "less");

    if (argc == 5) {
        for (const char* size : {argv[3], argv[4]}) {
            CUdeviceptr managed = 0;
            CHECK(cuMemAllocManaged(&managed, std::strtoull(size, nullptr, 10) << 20,
                                    CU_MEM_ATTACH_GLOBAL));
            SAY("after %s MiB managed: %s\n", size,
                used_by_driver() + large <= before ? "given back" : "still there");
        }
        const CUdeviceptr last = program::allocate(std::size_t{300} << 20);
        const std::size_t with_it = used_by_driver();
        program::release(last);
        SAY("after a free: %s\n",
            used_by_driver() + (std::size_t{300} << 20) <= with_it ? "given back" : "still there");
        return 0;
    }
    if (argc == 3) {
        main_thread = gettid();
        (void)std::signal(SIGUSR1, count);
        for (int i = 0; i < 50; ++i) {
            (void)kill(getpid(), SIGUSR1);
            pause_for(milliseconds / 50);
        }
        SAY("handlers ran on the main thread: %d of 50\n", static_cast<int>(on_main));
        const pid_t child = fork();
        if (child == 0) {
            return 0;
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child || status != 0) {
            SAY("the child ended with %d\n", status);
            return 1;
        }
        return 0;
    }

    pause_for(milliseconds);
    SAY("after the pause: %s\n", used_by_driver() + large <= before ? "given back" : "still there");
    unsigned char read[4] = {};
    CHECK(cuMemcpyDtoH(read, held, sizeof(read)));
    SAY("contents of what is held: %s\n",
        std::memcmp(read, written, sizeof(read)) == 0 ? "kept" : "lost");
    return 0;
}
