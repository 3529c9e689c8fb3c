// A program whose memory is moved out of the GPU and back while it runs. It holds blocks of known
// contents, says "ready" and does what it reads from standard input, a word on each line:
//
//   where      says the addresses of its blocks, as one number
//   check      says whether its blocks have their contents
//   free       frees every second block
//   drop       frees all of them
//   more       allocates one block more
//   used       says how many MiB of the device this process uses (simulated driver)
//   makes F    a thread calls this function of the driver's with nothing but zeros, and says its
//   name calls F    says how often this function of the driver's was called (simulated driver)
//   waits      says what calls answered that wait for the device; "idle": for a stream without work
//   close      begins work that does not end until "open" (simulated driver)
//   open       lets it end
//   queue      a thread makes a call that does not return until "open"
//   fills      a thread submits to a stream whose work does not end, more than its queue takes
//   opens F    opens a file and keeps it open
//   shares     records an event behind work that does not end until "open", says its handle
//   awaits H   has a stream wait for that event of another process's
//   locks      a thread submits with a lock held, until that waits; a host function needs the lock
//   submits    a host function of a stream submits work itself
//   captures   begins a capture; "captured" ends it
//   managed N  takes N MiB of managed memory and prefetches it to the GPU; "anywhere N": without
//              that; "places": where each was prefetched to last, -1 is the host
//   async N    takes N MiB of the driver's own pool
//   labels     labels a block and that memory, in the middle of each, and says what that returned
//   cuts       the same of a block of an allocator's own in each, at its beginning
//   peer       says whether a copy in a context of the second GPU finds the blocks intact
//   retains D  retains the primary context of this device and says what that answered
//   asks       says what queries, attributes and cuMemGetInfo answer
//   memory     says what cuMemGetInfo answers
//   access     says what cuMemGetAccess answers
//   churn      threads allocate, fill, read and free from now on; "still" ends that and says
//              whether all was as it should be, "count" how much they did
//   polls      threads ask all the time what is answered while it is away; "polled" ends that and
//   says
//              "right", or which call answered something else; "pauses" stops them for a moment
//              wherever they are
//   forks      a child says that it runs
//   leaves     a child says its process id and what a call of the driver's answers there, and stays
//   handles    handles SIGUSR1 from now on; "works" by work that it waits for
//   thread     a second thread checks the blocks and says so
//   quits      a second thread fills a block until "quit", when a handler ends it with
//   pthread_exit; quit       "cancel" ends it so; both say "ended" fail F N   the N-th next call of
//   this function of the driver's fails (simulated driver) yields     steps aside by memlab.h and
//   says what that returned; restores the same children   says what waitpid(-1) answers late at
//   exit, behind memlab, calls a function of the driver's that nobody interposes exports    exports
//   new memory to other processes; "hands": a block; "events": an event managed    allocates
//   managed memory joins      a thread fills a block and says what that answered; exit() waits for
//   it forbid E   from now on fallocate() fails with this error in all threads exits      ends
//
// Recorded: the blocks that it holds.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>

#include "interpose/include/memlab/memlab.h"
#include "tests/programs/simulated.hpp"

using namespace program;

namespace {

struct Block {
    CUdeviceptr address;
    std::size_t bytes;
    std::uint32_t seed;
};

struct Managed {
    CUdeviceptr address;
    std::size_t bytes;
};

std::vector<unsigned char> contents_of(const Block& block) {
    std::vector<unsigned char> bytes(block.bytes);
    std::uint32_t state = block.seed * 2654435761U + 1;
    for (unsigned char& byte : bytes) {
        state = state * 1664525U + 1013904223U;
        byte = static_cast<unsigned char>(state >> 24);
    }
    return bytes;
}

Block make_block(std::size_t bytes, std::uint32_t seed) {
    const Block block{allocate(bytes), bytes, seed};
    CHECK(cuMemcpyHtoD(block.address, contents_of(block).data(), bytes));
    return block;
}

bool is_intact(const Block& block) {
    std::vector<unsigned char> seen(block.bytes);
    CHECK(cuMemcpyDtoH(seen.data(), block.address, block.bytes));
    return seen == contents_of(block);
}

bool are_intact(const std::vector<Block>& blocks) {
    return std::all_of(blocks.begin(), blocks.end(), is_intact);
}

// "done", or "no such function".
const char* fail(const std::string& function, std::uint64_t nth) {
    const bool known = control<decltype(simcuda_fail)>("simcuda_fail")(function.c_str(), nth,
                                                                       CUDA_ERROR_UNKNOWN) == 0;
    return known ? "done" : "no such function";
}

std::atomic<bool> churning{false};
std::atomic<std::uint64_t> rounds{0};
std::atomic<std::uint64_t> damaged{0};

void churn(CUcontext context, std::uint32_t seed) {
    CHECK(cuCtxSetCurrent(context));
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    std::vector<Block> held;
    for (; churning.load(); rounds.fetch_add(1)) {
        seed = seed * 1664525U + 1013904223U;
        const std::size_t bytes = 4096 + seed % (3 << 20);
        held.push_back(make_block(bytes, seed));
        if (held.size() > 4 || seed % 3 == 0) {
            const Block oldest = held.front();
            damaged.fetch_add(is_intact(oldest) ? 0 : 1);
            CHECK(cuMemsetD8Async(oldest.address, 7, oldest.bytes, stream));
            if (seed % 2 == 0) {
                CHECK(cuStreamSynchronize(stream));
            }
            release(oldest.address);
            held.erase(held.begin());
        }
    }
    damaged.fetch_add(are_intact(held) ? 0 : 1);
}

std::atomic<bool> polling{false};
std::atomic<const char*> wrong{nullptr};

void expect(bool as_always, const char* call) {
    if (!as_always) {
        wrong.store(call);
    }
}

void poll(CUcontext context, CUstream stream, CUevent event, Block block) {
    CHECK(cuCtxSetCurrent(context));
    while (polling.load()) {
        expect(cuStreamQuery(stream) == CUDA_SUCCESS, "cuStreamQuery");
        expect(cuEventQuery(event) == CUDA_SUCCESS, "cuEventQuery");
        expect(cuStreamSynchronize(stream) == CUDA_SUCCESS, "cuStreamSynchronize");
        for (int i = 0; i < 1000; ++i) {  // mostly what takes no time
            CUcontext current = nullptr;
            expect(cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context,
                   "cuCtxGetCurrent");
        }
        unsigned type = 0;
        expect(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block.address) ==
                       CUDA_SUCCESS &&
                   type == CU_MEMORYTYPE_DEVICE,
               "cuPointerGetAttribute");
        CUpointer_attribute asked = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        void* to = &type;
        expect(cuPointerGetAttributes(1, &asked, &to, block.address) == CUDA_SUCCESS &&
                   type == CU_MEMORYTYPE_DEVICE,
               "cuPointerGetAttributes");
        CUdeviceptr base = 0;
        std::size_t size = 0;
        expect(cuMemGetAddressRange(&base, &size, block.address + 5) == CUDA_SUCCESS &&
                   base == block.address && size == block.bytes,
               "cuMemGetAddressRange");
    }
}

void wait_for(const std::atomic<bool>& flag) {
    while (!flag.load()) {
        ::usleep(1000);
    }
}

std::mutex lock_of_program;
std::atomic<bool> lock_is_held{false};
std::atomic<bool> host_function_began{false};
std::atomic<bool> work_is_queued{false};

/// Submits with the lock held, until that had to wait.
void hold_lock(CUcontext context, CUdeviceptr address) {
    using Clock = std::chrono::steady_clock;
    CHECK(cuCtxSetCurrent(context));
    const std::lock_guard held(lock_of_program);
    lock_is_held.store(true);
    wait_for(host_function_began);
    for (auto took = Clock::duration(); took < std::chrono::milliseconds(500);) {
        ::usleep(1000);
        const auto begin = Clock::now();
        CHECK(cuMemsetD8Async(address, 0, 64, nullptr));
        took = Clock::now() - begin;
    }
}

void CUDA_CB take_lock(void* /*unused*/) {
    host_function_began.store(true);
    const std::lock_guard held(lock_of_program);
}

struct Submission {
    CUcontext context;
    CUdeviceptr address;
};

void CUDA_CB submit(void* given) {
    ::usleep(100'000);
    const auto* const what = static_cast<const Submission*>(given);
    CHECK(cuCtxSetCurrent(what->context));
    CHECK(cuMemsetD8Async(what->address, 0, 64, nullptr));
}

void say_answers(CUevent event, CUdeviceptr address) {
    std::size_t free = 0;
    std::size_t total = 0;
    unsigned type = 0;
    CHECK(cuMemGetInfo(&free, &total));
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    CUdeviceptr base = 0;
    std::size_t size = 0;
    CHECK(cuMemGetAddressRange(&base, &size, address + 5));
    SAY("range %d %llu event %d stream %d synchronized %d type %u free %llu\n",
        static_cast<int>(base == address), static_cast<unsigned long long>(size),
        static_cast<int>(cuEventQuery(event)), static_cast<int>(cuStreamQuery(nullptr)),
        static_cast<int>(cuCtxSynchronize()), type, static_cast<unsigned long long>(free >> 20));
}

CUdeviceptr written_by_handler = 0;

std::atomic<bool> calls_late{false};

void call_late() {
    if (calls_late.load()) {
        int size = 0;
        const CUresult result = cuDeviceGetAttribute(&size, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0);
        if (result != CUDA_ERROR_DEINITIALIZED) {  // a real driver's own end comes first
            CHECK(result);
        }
    }
}

bool forbid_fallocate(unsigned error) {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{std::size(filter), filter};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) ==
               0;
}

void* fill_until_ended(void* submission) {
    int type = 0;
    ::pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    CHECK(cuCtxSetCurrent(static_cast<const Submission*>(submission)->context));
    for (;;) {
        CHECK(cuMemsetD8(static_cast<const Submission*>(submission)->address, 3, 64));
        ::usleep(1000);
    }
}

std::thread joined_at_exit;

void join_at_exit() {
    if (joined_at_exit.joinable()) {
        joined_at_exit.join();
    }
}

void share() {
    const CUdeviceptr address = allocate(1 << 20);
    CUipcMemHandle handle;
    // Not referred to: memlab does not pool for a program that is linked with it.
    CHECK(control<decltype(cuIpcGetMemHandle)>("cuIpcGetMemHandle")(&handle, address));
}

void allocate_managed() {
    CUdeviceptr address = 0;
    CHECK(cuMemAllocManaged(&address, 1 << 20, CU_MEM_ATTACH_GLOBAL));
}

}  // namespace

int main() {
    std::atexit(call_late);
    std::atexit(join_at_exit);
    const CUcontext context = use_device();
    const CUdeviceptr scratch = allocate(1 << 20);
    CUstream stream = nullptr;
    CUstream own = nullptr;
    CUevent event = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    CHECK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, 0));
    CHECK(cuEventRecord(event, own));
    std::vector<Block> blocks;
    for (std::uint32_t seed = 0; seed < 12; ++seed) {
        blocks.push_back(make_block(std::size_t{100'000} << seed % 6, seed));
    }
    std::vector<Managed> managed;
    std::vector<std::thread> threads;
    CUdeviceptr of_driver = 0;
    Submission submission{context, scratch};
    pthread_t quitting{};
    SAY("ready\n");
    for (std::string word; std::getline(std::cin, word) && word != "exits";) {
        if (word == "where") {
            CUdeviceptr sum = 0;
            for (const Block& block : blocks) {
                sum = sum * 31 + block.address;
            }
            SAY("%llu\n", static_cast<unsigned long long>(sum));
        } else if (word == "check") {
            SAY("%s\n", are_intact(blocks) ? "intact" : "damaged");
        } else if (word == "free") {
            for (std::size_t i = 0; i < blocks.size(); ++i) {
                release(blocks[i].address);
                blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
            }
            SAY("done\n");
        } else if (word == "drop") {
            std::for_each(blocks.begin(), blocks.end(),
                          [](const Block& block) { release(block.address); });
            blocks.clear();
            SAY("done\n");
        } else if (word == "more") {
            blocks.push_back(make_block(5 << 20, static_cast<std::uint32_t>(blocks.size()) + 100));
            SAY("done\n");
        } else if (word == "used") {
            SAY("%llu\n", static_cast<unsigned long long>(
                              control<decltype(simcuda_used)>("simcuda_used")() >> 20));
        } else if (word.starts_with("makes ")) {
            threads.emplace_back([context, name = word.substr(6)] {
                CHECK(cuCtxSetCurrent(context));
                using Zeros =
                    CUresult (*)(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                                 std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                                 std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t);
                auto* const function = reinterpret_cast<Zeros>(::dlsym(RTLD_DEFAULT, name.c_str()));
                if (function != nullptr) {
                    function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
                }
                SAY("%s\n", name.c_str());
            });
        } else if (word.starts_with("calls ")) {
            SAY("%llu\n", static_cast<unsigned long long>(control<decltype(simcuda_calls)>(
                              "simcuda_calls")(word.substr(6).c_str())));
        } else if (word == "idle") {
            SAY("%d\n", cuStreamSynchronize(own));
        } else if (word == "waits") {
            SAY("%d %d %d %d\n", cuStreamSynchronize(own), cuEventSynchronize(event),
                cuCtxSynchronize(), cuEventSynchronize(nullptr));
        } else if (word == "close") {
            control<decltype(simcuda_close_stream)>("simcuda_close_stream")(stream);
            CHECK(cuMemsetD8Async(scratch, 0, 64, stream));
            SAY("done\n");
        } else if (word == "open") {
            control<decltype(simcuda_open_stream)>("simcuda_open_stream")(stream);
            SAY("done\n");
        } else if (word == "queue") {
            control<decltype(simcuda_close_stream)>("simcuda_close_stream")(stream);
            threads.emplace_back([&] {
                CHECK(cuCtxSetCurrent(context));
                CHECK(cuMemsetD8Async(scratch, 0, 64, stream));
                work_is_queued.store(true);
                unsigned char byte = 0;
                CHECK(cuMemcpyDtoH(&byte, scratch, 1));
            });
            wait_for(work_is_queued);
            SAY("done\n");
        } else if (word == "fills") {
            control<decltype(simcuda_close_stream)>("simcuda_close_stream")(stream);
            threads.emplace_back([&] {
                CHECK(cuCtxSetCurrent(context));
                for (int i = 0; i < 8; ++i) {
                    CHECK(cuMemsetD8Async(scratch, 0, 64, stream));
                    work_is_queued.store(true);
                }
            });
            wait_for(work_is_queued);
            ::usleep(50'000);
            SAY("done\n");
        } else if (word == "shares") {
            CUevent shared = nullptr;
            CUipcEventHandle handle{};
            CHECK(cuEventCreate(&shared, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
            CHECK(cuIpcGetEventHandle(&handle, shared));
            control<decltype(simcuda_close_stream)>("simcuda_close_stream")(stream);
            CHECK(cuEventRecord(shared, stream));
            std::string digits;
            for (const char each : handle.reserved) {
                digits += "0123456789abcdef"[static_cast<unsigned char>(each) / 16];
                digits += "0123456789abcdef"[static_cast<unsigned char>(each) % 16];
            }
            SAY("%s\n", digits.c_str());
        } else if (word.starts_with("awaits ")) {
            CUevent shared = nullptr;
            CUipcEventHandle handle{};
            for (std::size_t i = 0; i < sizeof handle.reserved; ++i) {
                handle.reserved[i] =
                    static_cast<char>(std::stoi(word.substr(7 + 2 * i, 2), nullptr, 16));
            }
            CHECK(cuIpcOpenEventHandle(&shared, handle));
            CHECK(cuStreamWaitEvent(own, shared, 0));
            SAY("done\n");
        } else if (word.starts_with("opens ")) {
            SAY("%s\n", ::open(word.substr(6).c_str(), O_RDONLY) >= 0 ? "done" : "no such file");
        } else if (word == "locks") {
            threads.emplace_back(hold_lock, context, scratch);
            wait_for(lock_is_held);
            threads.emplace_back([&] {
                CHECK(cuCtxSetCurrent(context));
                CHECK(cuLaunchHostFunc(own, take_lock, nullptr));
            });
            wait_for(host_function_began);
            SAY("done\n");
        } else if (word == "submits") {
            CHECK(cuLaunchHostFunc(own, submit, &submission));
            SAY("done\n");
        } else if (word == "captures") {
            CHECK(cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_RELAXED));
            SAY("done\n");
        } else if (word == "captured") {
            CUgraph graph = nullptr;
            CHECK(cuStreamEndCapture(own, &graph));
            SAY("done\n");
        } else if (word.starts_with("managed ") || word.starts_with("anywhere ")) {
            const std::size_t blank = word.find(' ');
            Managed one{0, std::stoul(word.substr(blank)) << 20};
            CHECK(cuMemAllocManaged(&one.address, one.bytes, CU_MEM_ATTACH_GLOBAL));
            if (word.starts_with("managed ")) {
                CHECK(cuMemPrefetchAsync(one.address, one.bytes, {CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                         0, own));
            }
            managed.push_back(one);
            SAY("done\n");
        } else if (word == "places") {
            std::string places;
            for (const Managed& each : managed) {
                int place = 0;
                CHECK(cuMemRangeGetAttribute(&place, sizeof place,
                                             CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                                             each.address, each.bytes));
                places += " " + std::to_string(place);
            }
            SAY("%s\n", places.c_str());
        } else if (word.starts_with("async ")) {
            CHECK(cuMemAllocAsync(&of_driver, std::stoul(word.substr(6)) << 20, own));
            SAY("done\n");
        } else if (word == "labels") {
            SAY("%d %d\n",
                memlab_label(reinterpret_cast<void*>(blocks.front().address + 100), "of the pool"),
                memlab_label(reinterpret_cast<void*>(of_driver + 100), "of the driver"));
        } else if (word == "cuts") {
            SAY("%d %d\n",
                memlab_suballoc("own", reinterpret_cast<void*>(blocks.front().address), 4096),
                memlab_suballoc("own", reinterpret_cast<void*>(of_driver + 512), 8192));
        } else if (word == "peer") {
            use_device(1);
            SAY("%s\n", are_intact(blocks) ? "intact" : "damaged");
            CHECK(cuCtxSetCurrent(context));
        } else if (word.starts_with("retains ")) {
            CUcontext primary = nullptr;
            SAY("%d\n",
                static_cast<int>(cuDevicePrimaryCtxRetain(&primary, std::stoi(word.substr(8)))));
        } else if (word == "asks") {
            say_answers(event, blocks.front().address);
        } else if (word == "memory") {
            std::size_t free = 0;
            std::size_t total = 0;
            CHECK(cuMemGetInfo(&free, &total));
            SAY("%llu of %llu\n", static_cast<unsigned long long>(free >> 20),
                static_cast<unsigned long long>(total >> 20));
        } else if (word == "access") {
            const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
            unsigned long long flags = 0;
            const CUresult result = cuMemGetAccess(&flags, &here, blocks.front().address);
            SAY("%d %llu\n", static_cast<int>(result), flags);
        } else if (word == "churn") {
            churning.store(true);
            for (std::uint32_t seed = 1; seed <= 4; ++seed) {
                threads.emplace_back(churn, context, seed);
            }
            SAY("done\n");
        } else if (word == "count") {
            SAY("%llu\n", static_cast<unsigned long long>(rounds.load()));
        } else if (word == "still") {
            churning.store(false);
            for (std::thread& thread : threads) {
                thread.join();
            }
            threads.clear();
            SAY("%s\n", damaged.load() == 0 ? "intact" : "damaged");
        } else if (word == "polls") {
            polling.store(true);
            for (std::size_t i = 0; i < 8; ++i) {
                threads.emplace_back(poll, context, own, event, blocks[i]);
            }
            SAY("done\n");
        } else if (word == "pauses") {
            ::signal(SIGUSR1, [](int) { ::usleep(50'000); });
            for (std::thread& thread : threads) {
                ::pthread_kill(thread.native_handle(), SIGUSR1);
            }
            SAY("done\n");
        } else if (word == "polled") {
            polling.store(false);
            for (std::thread& thread : threads) {
                thread.join();
            }
            threads.clear();
            SAY("%s\n", wrong.load() == nullptr ? "right" : wrong.load());
        } else if (word == "forks") {
            if (::fork() == 0) {
                SAY("the child runs\n");
                ::_exit(0);
            }
            ::wait(nullptr);
        } else if (word == "leaves") {
            if (::fork() == 0) {
                ::alarm(60);
                CUcontext current = nullptr;
                const CUresult result = cuCtxGetCurrent(&current);
                SAY("%d %d\n", static_cast<int>(::getpid()), static_cast<int>(result));
                ::pause();
            }
        } else if (word == "handles") {
            ::signal(SIGUSR1, [](int) {});
            SAY("done\n");
        } else if (word == "works") {
            written_by_handler = scratch;
            ::signal(SIGUSR1, [](int) { CHECK(cuMemsetD8(written_by_handler, 3, 64)); });
            SAY("done\n");
        } else if (word == "hands") {
            CUipcMemHandle handle;
            SAY("%d\n", static_cast<int>(control<decltype(cuIpcGetMemHandle)>("cuIpcGetMemHandle")(
                            &handle, blocks.front().address)));
        } else if (word == "thread") {
            threads.emplace_back([&] {
                CHECK(cuCtxSetCurrent(context));
                SAY("%s\n", are_intact(blocks) ? "intact" : "damaged");
            });
        } else if (word == "quits") {
            ::signal(SIGUSR2, [](int) { ::pthread_exit(nullptr); });
            ::pthread_create(&quitting, nullptr, fill_until_ended, &submission);
            SAY("done\n");
        } else if (word == "quit" || word == "cancel") {
            if (word == "quit") {
                ::pthread_kill(quitting, SIGUSR2);
            } else {
                ::pthread_cancel(quitting);
            }
            ::pthread_join(quitting, nullptr);
            SAY("ended\n");
        } else if (word.starts_with("fail ")) {
            const std::size_t blank = word.find(' ', 5);
            SAY("%s\n", fail(word.substr(5, blank - 5), std::stoul(word.substr(blank))));
        } else if (word == "children") {
            const pid_t child = ::waitpid(-1, nullptr, WNOHANG);
            SAY("%d %d\n", static_cast<int>(child), errno);
        } else if (word.starts_with("forbid ")) {
            SAY("%s\n", forbid_fallocate(static_cast<unsigned>(std::stoul(word.substr(7))))
                            ? "done"
                            : "no filter");
        } else if (word == "joins") {
            joined_at_exit = std::thread([&] {
                CHECK(cuCtxSetCurrent(context));
                SAY("%d\n", static_cast<int>(cuMemsetD8(scratch, 3, 64)));
            });
        } else if (word == "late") {
            calls_late.store(true);
            SAY("done\n");
        } else if (word == "exports") {
            share();
            SAY("done\n");
        } else if (word == "events") {
            CUipcEventHandle handle;
            static_cast<void>(cuIpcGetEventHandle(&handle, event));
            SAY("done\n");
        } else if (word == "managed") {
            allocate_managed();
            SAY("done\n");
        } else if (word == "yields") {
            SAY("%d\n", memlab_yield());
        } else if (word == "restores") {
            SAY("%d\n", memlab_restore());
        }
    }
    for (std::thread& thread : threads) {
        thread.detach();
    }
    std::exit(0);
}
