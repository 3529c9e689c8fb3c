// The walk against libgcc's, over every sort of frame; and frames that no walk can be right about.
#include "profiler/unwind/walk.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "profiler/known_stacks.hpp"
#include "profiler/stack_capture.hpp"
#include "profiler/unwind/reference.hpp"
#include "profiler/unwind/rules.hpp"
#include "profiler/unwind/unloads.hpp"
#include "tests/catch.hpp"
#include "tests/unit/unwind/call_paths.hpp"

namespace unwind = memlab::profiler::unwind;
using call_paths::Path;
using memlab::profiler::KnownStacks;
using memlab::profiler::StackHash;
using memlab::profiler::unwind::CapturedStack;

extern "C" {
void frame_by_rbx(void (*function)(void*), void* argument);
void frame_by_r12(void (*function)(void*), void* argument);
void frame_by_expression(void (*function)(void*), void* argument);
void frame_without_tables(void (*function)(void*), void* argument);
void frame_that_lies(void (*function)(void*), void* argument, std::uintptr_t rbp);
void frame_on_stack(void (*function)(void*), void* argument, void* top);
}

namespace {

std::atomic<unsigned long> compared{0};
std::atomic<unsigned long> frames_compared{0};
std::atomic<unsigned long> different{0};
std::atomic<unsigned long> recognized{0};
const std::uint32_t owner_of_walks = KnownStacks::new_owner();
thread_local std::string difference;  // the first one of this thread

std::string describe(const CapturedStack& stack) {
    std::string text;
    for (std::size_t i = 0; i < stack.depth; ++i) {
        char line[400];
        Dl_info info{};
        dladdr(reinterpret_cast<void*>(stack.addresses[i] - 1), &info);
        std::snprintf(line, sizeof line, "%3zu %#lx %s ends at %#lx\n", i, stack.addresses[i],
                      info.dli_sname != nullptr ? info.dli_sname : "?", stack.ends[i]);
        text += line;
    }
    return text;
}

// Both walk from the same frame; where in it they were called is the one thing that differs.
__attribute__((noinline)) void compare_walks(std::size_t limit) {
    static thread_local CapturedStack ours;
    static thread_local CapturedStack theirs;
    // Of one owner all stacks have one limit.
    const bool recognizable = limit == CapturedStack::max_depth && !unwind::is_unloading();
    const std::uint64_t epoch = recognizable ? unwind::unload_epoch() : 0;
    KnownStacks known(owner_of_walks, epoch, __builtin_frame_address(0));
    const KnownStacks::Stack* const found = known.find();
    unwind::walk_stack(ours, limit, {});
    unwind::walk_stack_as_libgcc(theirs, limit, {});
    // What is known begins one frame above: this one is always the same.
    const StackHash hash = memlab::profiler::hash_frames(ours, epoch);
    known.insert(hash, limit - 1, {});
    recognized += found != nullptr ? 1 : 0;
    if (found != nullptr && found->hash != hash) {
        ++different;
        difference = "not the stack that was recognized:\n" + describe(ours);
    }
    if (theirs.depth != 0) {
        theirs.addresses[0] = ours.addresses[0];
    }
    ++compared;
    frames_compared += ours.depth;
    if (!unwind::are_equal(ours, theirs)) {
        ++different;
        if (difference.empty()) {
            difference = "ours\n" + describe(ours) + "libgcc's\n" + describe(theirs);
        }
    }
}

void compare_at_leaf() {
    compare_walks(CapturedStack::max_depth);
}

struct Tally {
    unsigned long stacks = compared;
    unsigned long frames = frames_compared;
    unsigned long wrong = different;

    void check(unsigned long at_least) const {
        INFO(difference);
        CHECK(different - wrong == 0);
        CHECK(compared - stacks >= at_least);
        difference.clear();
    }
};

// --- the steps that need more than a function ---

thread_local Path* path_of_handler = nullptr;

void handle(int /*number*/) {
    call_paths::go_on(*path_of_handler);
}

void through_signal(Path& path) {
    Path* const before = path_of_handler;
    path_of_handler = &path;
    pthread_kill(pthread_self(), SIGUSR1);
    path_of_handler = before;
}

// The handler runs on a stack of its own; one level, since a second would run on the same.
thread_local bool on_signal_stack = false;

void through_signal_stack(Path& path) {
    if (on_signal_stack) {
        return through_signal(path);
    }
    on_signal_stack = true;
    Path* const before = path_of_handler;
    path_of_handler = &path;
    pthread_kill(pthread_self(), SIGUSR2);
    path_of_handler = before;
    on_signal_stack = false;
}

// A fault interrupts a function between two instructions, at its very first one at times.
thread_local Path* path_of_fault = nullptr;

void handle_fault(int /*number*/, siginfo_t* /*info*/, void* context) {
    Path* path = path_of_fault;
    path_of_fault = nullptr;
    if (path != nullptr) {
        call_paths::go_on(*path);
    }
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP] += 2;  // ud2 has two bytes
}

__attribute__((noinline, naked)) void faulting_leaf() {
    __asm__("ud2\n\tret");
}

void through_fault(Path& path) {
    Path* const before = path_of_fault;
    path_of_fault = &path;
    faulting_leaf();
    path_of_fault = before;
}

struct Sorted {
    Path* path;
};
thread_local Path* path_of_sort = nullptr;

int compare_in_sort(const void* a, const void* b) {
    if (path_of_sort != nullptr) {
        Path* path = path_of_sort;
        path_of_sort = nullptr;
        call_paths::go_on(*path);
    }
    return *static_cast<const int*>(a) - *static_cast<const int*>(b);
}

void through_qsort(Path& path) {
    int values[] = {2, 1};
    path_of_sort = &path;
    std::qsort(values, 2, sizeof values[0], compare_in_sort);
}

void through_rbx(Path& path) {
    frame_by_rbx(call_paths::go_on_at, &path);
}

void through_r12(Path& path) {
    frame_by_r12(call_paths::go_on_at, &path);
}

void through_expression(Path& path) {
    frame_by_expression(call_paths::go_on_at, &path);
}

struct Coroutine {
    ucontext_t own;
    ucontext_t caller;
    Path* path;
};
thread_local Coroutine* starting = nullptr;

void run_coroutine() {
    call_paths::go_on(*starting->path);
}

// Rarely: the mapping of a stack is dear.
void through_coroutine(Path& path) {
    if (path.draw() % 8 != 0) {
        return call_paths::go_on(path);
    }
    constexpr std::size_t size = 256 << 10;
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Coroutine coroutine;
    coroutine.path = &path;
    getcontext(&coroutine.own);
    coroutine.own.uc_stack.ss_sp = memory;
    coroutine.own.uc_stack.ss_size = size;
    coroutine.own.uc_link = &coroutine.caller;
    Coroutine* const before = starting;
    makecontext(&coroutine.own, run_coroutine, 0);
    starting = &coroutine;
    swapcontext(&coroutine.caller, &coroutine.own);
    starting = before;
    munmap(memory, size);
}

constexpr call_paths::Step special_steps[] = {
    through_signal, through_signal_stack, through_fault,      through_qsort,
    through_rbx,    through_r12,          through_expression, through_coroutine,
};

void install(int number, void (*handler)(int), int flags) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = flags | SA_NODEFER;
    sigaction(number, &action, nullptr);
}

// Lives as long as the thread's walks.
class SignalStack {
  public:
    SignalStack() : memory_(std::size_t{1} << 20) {
        stack_t stack{};
        stack.ss_sp = memory_.data();
        stack.ss_size = memory_.size();
        sigaltstack(&stack, nullptr);
    }
    ~SignalStack() {
        stack_t none{};
        none.ss_flags = SS_DISABLE;
        sigaltstack(&none, nullptr);
    }
    SignalStack(const SignalStack&) = delete;
    SignalStack& operator=(const SignalStack&) = delete;

  private:
    std::vector<char> memory_;
};

// Both are for tests that ThreadSanitizer does not run.
[[maybe_unused]] void walk_paths(std::uint64_t seed, int count, std::uint64_t longest = 40) {
    const SignalStack signal_stack;
    for (int i = 0; i < count; ++i) {
        Path path{seed + static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15U + 1, 0,
                  compare_at_leaf};
        path.draw();
        path.left = static_cast<int>(path.draw() % longest);
        if (path.draw() % 512 == 0) {
            unwind::clear_rules();
        }
        call_paths::go_on(path);
    }
}

[[maybe_unused]] void install_handlers() {
    install(SIGUSR1, handle, 0);
    install(SIGUSR2, handle, SA_ONSTACK);
    struct sigaction action {};
    action.sa_sigaction = handle_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGILL, &action, nullptr);
}

}  // namespace

namespace call_paths {

void go_on(Path& path) {
    if (path.left-- <= 0) {
        path.at_leaf();
        return;
    }
    const Step* const flavours[] = {steps_unoptimized, steps_optimized, steps_with_frame_pointers,
                                    steps_realigned};
    const std::uint64_t choice = path.draw();
    if (choice % 4 == 0) {
        special_steps[(choice >> 8) % std::size(special_steps)](path);
    } else {
        flavours[(choice >> 8) % std::size(flavours)][(choice >> 16) % steps_per_flavour](path);
    }
    __asm__ volatile("" ::: "memory");
}

void go_on_at(void* path) {
    go_on(*static_cast<Path*>(path));
    __asm__ volatile("" ::: "memory");
}

}  // namespace call_paths

// A sanitizer makes each exception and each signal dear; it looks at the same code with fewer.
// ThreadSanitizer's own stack and its qsort() do not survive coroutines and nested signals: there
// the threads of test_odd_stacks.cpp have to do.
#ifdef __SANITIZE_ADDRESS__
constexpr int paths = 1000;
#else
constexpr int paths = 20000;
#endif

#ifndef __SANITIZE_THREAD__
TEST_CASE("100,000 random stacks match libgcc's unwinder") {
    install_handlers();
    const Tally tally;
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < 4; ++i) {
        threads.emplace_back([i] {
            walk_paths(i << 32, paths);
            if (!difference.empty()) {
                std::fputs(difference.c_str(), stderr);
            }
        });
    }
    walk_paths(77, paths);
    for (std::thread& thread : threads) {
        thread.join();
    }
    // Short ones again and again: most have plain frames only, so can be recognized.
    const unsigned long recognized_before = recognized;
    constexpr unsigned long again = paths / 100;
    std::thread([] {
        for (int i = 0; i < 10; ++i) {
            walk_paths(78, again, 4);
        }
        if (!difference.empty()) {
            std::fputs(difference.c_str(), stderr);
        }
    }).join();
    CHECK(recognized - recognized_before > 2 * again);
    tally.check(5UL * paths);
    CHECK(frames_compared - tally.frames > 100UL * paths);
}
#endif

TEST_CASE("a frame limit cuts the walk at the same frame as libgcc's") {
    const Tally tally;
    for (const std::size_t limit : {std::size_t{1}, std::size_t{2}, std::size_t{5}}) {
        compare_walks(limit);
    }
    tally.check(3);
}

TEST_CASE("cached unwind rules are not used while an object is being unloaded") {
    static thread_local CapturedStack stack;
    unwind::walk_stack(stack, CapturedStack::max_depth, {});
    REQUIRE(stack.depth > 2);
    unwind::clear_rules();
    // The caller of this function, as of a frame that has nothing but a return address.
    unwind::insert_rule(
        stack.addresses[1] - 1,
        unwind::Rule(unwind::Rule(unwind::Rule::Kind::plain).word() | 1U << 6 | 1U));
    const Tally tally;
    {
        const unwind::Unloading unloading;
        compare_walks(CapturedStack::max_depth);
    }
    unwind::clear_rules();
    tally.check(1);
}
