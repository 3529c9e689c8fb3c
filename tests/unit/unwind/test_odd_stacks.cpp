// Stacks whose unwind tables are missing or wrong: the walk ends, without a bad read. And code that
// was replaced by other code at its address.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "profiler/unwind/executable_memory.hpp"
#include "profiler/unwind/reference.hpp"
#include "profiler/unwind/rules.hpp"
#include "profiler/unwind/stack_memory.hpp"
#include "profiler/unwind/unloads.hpp"
#include "profiler/unwind/walk.hpp"
#include "tests/catch.hpp"

namespace unwind = memlab::profiler::unwind;
using memlab::profiler::unwind::CapturedStack;

extern "C" {
void frame_without_tables(void (*function)(void*), void* argument);
void frame_that_lies(void (*function)(void*), void* argument, std::uintptr_t rbp);
void frame_on_stack(void (*function)(void*), void* argument, void* top);
}

namespace {

struct Walked {
    CapturedStack ours;
    CapturedStack theirs;
    bool with_reference = true;

    bool equal() {
        theirs.addresses[0] = ours.addresses[0];  // two calls in one function
        return unwind::are_equal(ours, theirs);
    }
};

__attribute__((noinline)) void walk(void* argument) {
    Walked& walked = *static_cast<Walked*>(argument);
    unwind::walk_stack(walked.ours, CapturedStack::max_depth, {});
    if (walked.with_reference) {
        unwind::walk_stack_as_libgcc(walked.theirs, CapturedStack::max_depth, {});
    }
    __asm__ volatile("" ::: "memory");  // no tail call
}

std::uintptr_t address_of(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
}

// Pages of which the last is no one's.
class Pages {
  public:
    explicit Pages(std::size_t count, int rights = PROT_READ | PROT_WRITE | PROT_EXEC,
                   std::uintptr_t place = 0)
        : size_(count * unwind::page_size) {
        memory_ = static_cast<char*>(mmap(reinterpret_cast<void*>(place), size_ + unwind::page_size,
                                          rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        mprotect(memory_ + size_, unwind::page_size, PROT_NONE);
    }
    ~Pages() { munmap(memory_, size_ + unwind::page_size); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    char* begin() const { return memory_; }
    char* end() const { return memory_ + size_; }

  private:
    std::size_t size_;
    char* memory_;
};

}  // namespace

TEST_CASE("what can be read, and what cannot") {
    const Pages pages(1);
    CHECK(unwind::is_readable(address_of(pages.begin())));
    CHECK(unwind::is_readable(address_of(pages.end() - 8)));
    CHECK_FALSE(unwind::is_readable(address_of(pages.end())));
    CHECK_FALSE(unwind::is_readable(0));
    CHECK_FALSE(unwind::is_readable(8));
    CHECK_FALSE(unwind::is_readable(~std::uintptr_t{7}));
    errno = 0;
    unwind::StackMemory nothing;
    std::uintptr_t value = 0;
    std::memcpy(pages.end() - 8, "abcdefgh", 8);
    CHECK(nothing.read(address_of(pages.end() - 8), &value));
    CHECK(std::memcmp(&value, "abcdefgh", 8) == 0);
    CHECK_FALSE(nothing.read(address_of(pages.end() - 4), &value));
    CHECK_FALSE(nothing.read(~std::uintptr_t{3}, &value));
    CHECK(errno == 0);
}

TEST_CASE("the bounds of the thread's own stack are found") {
    const auto check = [] {
        int local = 0;
        unwind::StackMemory memory(address_of(&local));
        CHECK(memory.high() > address_of(&local));
        const std::uintptr_t high = memory.high();
        CHECK(unwind::is_readable(high - 8));
        CHECK_FALSE(memory.extend(high + 1, high - 7));  // on the own stack nothing is tried
    };
    check();
    std::thread(check).join();
}

namespace {

using Code = std::initializer_list<unsigned char>;

// mov rax, rdi; mov rdi, rsi
constexpr Code call_second = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7};

struct MadeCode {
    Pages page{1};
    void (*call)(void (*)(void*), void*) = nullptr;
    std::uintptr_t after_call = 0;

    MadeCode(Code before, Code after) {
        char* at = page.begin();
        const auto add = [&at](Code bytes) { at = std::copy(bytes.begin(), bytes.end(), at); };
        add(before);
        add(call_second);
        add({0xff, 0xd0});  // call rax
        after_call = address_of(at);
        add(after);
        call = reinterpret_cast<void (*)(void (*)(void*), void*)>(page.begin());
    }
};

// What a walk through `call` gave, less the two innermost frames: what a walk from here gives.
__attribute__((noinline)) void check_goes_on(const Walked& through, const CapturedStack& here) {
    REQUIRE(through.ours.depth == here.depth + 2);
    for (std::size_t i = 1; i < here.depth; ++i) {  // the innermost was at another call
        CHECK(through.ours.addresses[i + 2] == here.addresses[i]);
        CHECK(through.ours.ends[i + 2] == here.ends[i]);
    }
    CHECK_FALSE(through.ours.ends_early);
}

}  // namespace

TEST_CASE("a walk continues through code unknown to the loader") {
    struct Shape {
        const char* what;
        Code before;
        Code after;
    };
    const Shape shapes[] = {
        {"a frame pointer", {0x55, 0x48, 0x89, 0xe5}, {0x5d, 0xc3}},
        {"a frame pointer and more", {0x55, 0x48, 0x89, 0xe5}, {0x0f, 0x1f, 0x00, 0x5d, 0xc3}},
        {"a pushed register", {0x53}, {0x5b, 0xc3}},
        {"an upper register", {0x41, 0x54}, {0x41, 0x5c, 0xc3}},
        {"room", {0x48, 0x83, 0xec, 0x18}, {0x48, 0x83, 0xc4, 0x18, 0xc3}},
        {"much room",
         {0x48, 0x81, 0xec, 0x08, 0x02, 0, 0},
         {0x31, 0xc0, 0x48, 0x81, 0xc4, 0x08, 0x02, 0, 0, 0xc3}},
        {"leave",
         {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20},
         {0x90, 0xc5, 0xf8, 0x77, 0xc9, 0xc3}},
    };
    for (const Shape& shape : shapes) {
        INFO(shape.what);
        const MadeCode code(shape.before, shape.after);
        Walked through;
        Walked here;
        code.call(walk, &through);
        walk(&here);
        CHECK(through.ours.addresses[1] == code.after_call);
        check_goes_on(through, {[&here] {
                          CapturedStack rest = here.ours;
                          --rest.depth;
                          std::copy_n(here.ours.addresses + 1, rest.depth, rest.addresses);
                          std::copy_n(here.ours.ends + 1, rest.depth, rest.ends);
                          return rest;
                      }()});
        CHECK(through.equal());
    }
}

TEST_CASE("code without a rule or a frame pointer is the last frame, and the walk ends early") {
    // push rbx; mov rbp, 0: no frame pointer, and behind the call something else than an end.
    const MadeCode code({0x55, 0x31, 0xed}, {0x48, 0x89, 0xc0, 0x5d, 0xc3});
    Walked walked;
    code.call(walk, &walked);
    REQUIRE(walked.ours.depth == 2);
    CHECK(walked.ours.ends_early);
    CHECK(walked.ours.addresses[1] == code.after_call);
    CHECK(walked.equal());
}

TEST_CASE("a walk continues through an object's code without unwind tables") {
    Walked walked;
    frame_without_tables(walk, &walked);
    CHECK(walked.ours.depth > 4);
    CHECK_FALSE(walked.ours.ends_early);
    CHECK(walked.equal());
}

TEST_CASE("a word that is no return address is not taken for a frame") {
    const Pages stack(16);
    // Where no code has been before, and no shadow of a sanitizer lies.
#ifdef __SANITIZE_THREAD__
    constexpr std::uintptr_t far_away = 0x1234000000;
#else
    constexpr std::uintptr_t far_away = 0x123400000000;
#endif
    const Pages data(1, PROT_READ | PROT_WRITE, far_away);
    REQUIRE(address_of(data.begin()) == far_away);
    static const int constant = 1;
    auto* top = reinterpret_cast<std::uintptr_t*>(stack.end()) - 64;
    std::memset(data.begin(), 0xe8, unwind::page_size);  // calls, but nobody may run them
    std::mt19937_64 random(5);
    std::vector<std::uintptr_t> words = {
        0xdeaddeaddeaddead,
        0xdeadbeef,
        0x8000000000000002,
        1,
        ~std::uintptr_t{0},
        std::uintptr_t{1} << 47,
        std::uintptr_t{1} << 56 | address_of(reinterpret_cast<void*>(&walk)),
        address_of(top + 8),  // behind zeros; what lies below `top` may read as a call
        address_of(&random),
        address_of(&constant) + 1,
        address_of(data.begin()) + 64,
        address_of(stack.begin()) + 64,  // may be run, but nothing calls there
    };
    for (int i = 0; i < 1000; ++i) {
        words.push_back(random() | std::uintptr_t{1} << 50);
    }
    for (const std::uintptr_t word : words) {
        INFO(std::hex << word);
        for (int round = 0; round < 2; ++round) {  // not known yet, and known
            Walked walked;
            walked.with_reference = false;
            top[0] = word;
            frame_on_stack(walk, &walked, top);
            REQUIRE(walked.ours.depth == 2);
            REQUIRE(walked.ours.ends_early);
            REQUIRE_FALSE(walked.ours.truncated);
        }
    }
    const MadeCode code({0x55}, {0xcc});
    top[0] = code.after_call;
    Walked walked;
    walked.with_reference = false;
    frame_on_stack(walk, &walked, top);
    REQUIRE(walked.ours.depth > 2);
    CHECK(walked.ours.addresses[2] == code.after_call);
}

TEST_CASE("call instructions are recognized from the return address backwards") {
    struct Call {
        Code bytes;
        bool is_call;
    };
    const Call calls[] = {
        {{0xe8, 1, 2, 3, 4}, true},
        {{0xff, 0xd0}, true},                    // rax
        {{0x41, 0xff, 0xd3}, true},              // r11
        {{0xff, 0x10}, true},                    // [rax]
        {{0xff, 0x50, 0x08}, true},              // [rax + 8]
        {{0xff, 0x14, 0xc8}, true},              // [rax + rcx * 8]
        {{0xff, 0x54, 0xc8, 0x08}, true},        // [rax + rcx * 8 + 8]
        {{0xff, 0x15, 1, 2, 3, 4}, true},        // [rip + x]
        {{0xff, 0x90, 1, 2, 3, 4}, true},        // [rax + x]
        {{0xff, 0x94, 0xc8, 1, 2, 3, 4}, true},  // [rax + rcx * 8 + x]
        {{0xff, 0x14, 0x25, 1, 2, 3, 4}, true},  // [x]
        {{0xff, 0xe0}, false},                   // jmp rax
        {{0xff, 0x35, 1, 2, 3, 4}, false},       // push [rip + x]
        {{0xc3}, false},
    };
    const Pages page(1);
    for (const Call& call : calls) {
        std::memset(page.begin(), 0x90, 64);
        std::copy(call.bytes.begin(), call.bytes.end(), page.begin() + 32 - call.bytes.size());
        INFO(std::hex << static_cast<unsigned>(*call.bytes.begin()) << ", " << call.bytes.size()
                      << " bytes");
        CHECK(unwind::follows_call(address_of(page.begin() + 32)) == call.is_call);
    }
    CHECK_FALSE(unwind::follows_call(address_of(page.begin())));  // nothing is known of before
    CHECK_FALSE(unwind::follows_call(0));
    CHECK_FALSE(unwind::follows_call(~std::uintptr_t{0}));
}

TEST_CASE("code is read while another thread unmaps it") {
    const Pages page(1);
    constexpr std::size_t size = 4096;
    std::atomic<bool> done{false};
    std::atomic<int> unmapped{0};
    std::thread compiler([&] {
        while (!done) {
            mprotect(page.begin(), size, PROT_NONE);
            ++unmapped;
            mprotect(page.begin(), size, PROT_READ | PROT_WRITE | PROT_EXEC);
        }
    });
    int read = 0;
    int unread = 0;
    while (unmapped < 100000 || read < 100 || unread < 100) {
        std::uintptr_t word = 0;
        ++(unwind::read_code(address_of(page.begin()), &word) ? read : unread);
        unwind::follows_call(address_of(page.begin() + 32));
    }
    done = true;
    compiler.join();
    CHECK(read + unread >= 200);
}

TEST_CASE("executable memory is told from other memory") {
    const Pages page(1);
    CHECK(unwind::is_executable(address_of(page.begin())));
    CHECK(unwind::is_executable(address_of(reinterpret_cast<void*>(&walk))));
    int local = 0;
    CHECK_FALSE(unwind::is_executable(address_of(&local)));
    CHECK_FALSE(unwind::is_executable(0));
    CHECK_FALSE(unwind::is_executable(std::uintptr_t{1} << 63));
}

TEST_CASE("a walk passes a signal handler with its own restorer") {
    // mov $15, %rax; syscall
    constexpr unsigned char code[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
    const Pages page(1);
    std::memcpy(page.begin(), code, sizeof code);
    static Walked* walked = nullptr;
    Walked here;
    walked = &here;
    struct {
        void (*handler)(int);
        unsigned long flags;
        void* restorer;
        unsigned long mask;
    } action{[](int) { walk(walked); }, 0x04000000UL | SA_NODEFER, page.begin(), 0}, before{};
    REQUIRE(syscall(SYS_rt_sigaction, SIGUSR1, &action, &before, 8) == 0);
    raise(SIGUSR1);
    walked = nullptr;
    REQUIRE(syscall(SYS_rt_sigaction, SIGUSR1, &before, nullptr, 8) == 0);
    CHECK(here.ours.depth > 6);
    CHECK(here.equal());
}

TEST_CASE("an invalid frame pointer ends the walk") {
    const Pages pages(1);
    int local = 0;
    const std::uintptr_t here = address_of(&local);
    for (const std::uintptr_t rbp :
         {std::uintptr_t{0}, std::uintptr_t{8}, std::uintptr_t{1} << 40, std::uintptr_t{1} << 63,
          ~std::uintptr_t{0}, ~std::uintptr_t{15}, address_of(pages.end() - 8), here - 100000,
          here + (std::uintptr_t{1} << 30)}) {
        Walked walked;
        walked.with_reference = false;  // libgcc reads there
        frame_that_lies(walk, &walked, rbp);
        INFO(std::hex << rbp);
        CHECK(walked.ours.depth >= 2);
        CHECK(walked.ours.depth < 10);
    }
}

TEST_CASE("random frame pointers and return addresses do not crash the walk") {
    const Pages pages(4);
    std::mt19937_64 random(3);
    for (int i = 0; i < 20000; ++i) {
        auto* words = reinterpret_cast<std::uintptr_t*>(pages.begin());
        const std::size_t count = static_cast<std::size_t>(pages.end() - pages.begin()) / 8;
        for (int n = 0; n < 50; ++n) {
            std::uintptr_t word = random();
            switch (word % 4) {
                case 0:  // code: any place in this program, so any rule
                    word = address_of(reinterpret_cast<void*>(&walk)) + word % 65536;
                    break;
                case 1:  // this very stack
                    word = address_of(pages.begin()) + word / 4 % (count * 8);
                    break;
                case 2:  // the thread's stack
                    word = address_of(&random) + word / 4 % 16384 - 8192;
                    break;
                default:
                    break;
            }
            words[random() % count] = word;
        }
        Walked walked;
        walked.with_reference = false;
        if (i % 2 == 0) {
            frame_that_lies(walk, &walked, address_of(words + random() % count));
        } else {
            const std::size_t top = (count / 2 + random() % (count / 2 - 2)) & ~std::size_t{1};
            frame_on_stack(walk, &walked, words + top);
        }
        REQUIRE(walked.ours.depth >= 2);
        REQUIRE(walked.ours.depth <= CapturedStack::max_depth);
    }
}

TEST_CASE("a walk does not read the unmapped page above a stack") {
    const Pages pages(16);
    auto* top = reinterpret_cast<std::uintptr_t*>(pages.end()) - 2;
    // The return address of the first frame is any function: its frame would reach beyond the end.
    top[0] = address_of(reinterpret_cast<void*>(&walk)) + 16;
    Walked walked;
    walked.with_reference = false;
    frame_on_stack(walk, &walked, top);
    CHECK(walked.ours.depth == 3);
    top[0] = 0;
    frame_on_stack(walk, &walked, top);
    CHECK(walked.ours.depth == 2);
}

namespace {

using PluginCall = int (*)(int (*back)(void*), void* argument);

class Plugin {
  public:
    explicit Plugin(const char* path) : library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
        REQUIRE(library_ != nullptr);
        call_ = reinterpret_cast<PluginCall>(dlsym(library_, "plugin_call"));
    }
    ~Plugin() {
        const unwind::Unloading unloading;
        dlclose(library_);
    }
    Plugin(const Plugin&) = delete;
    Plugin& operator=(const Plugin&) = delete;

    PluginCall call() const { return call_; }

  private:
    void* library_;
    PluginCall call_;
};

int walk_from_plugin(void* argument) {
    walk(argument);
    return 0;
}

}  // namespace

TEST_CASE("a walk passes the loader while it binds a function lazily") {
    void* library = dlopen(MEMLAB_PLUGIN_LAZY, RTLD_LAZY | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    Walked walked;
    walked.ours.depth = 0;
    reinterpret_cast<PluginCall>(dlsym(library, "plugin_call"))(walk_from_plugin, &walked);
    CHECK(walked.equal());
    const unwind::Rule trampoline = [&walked] {
        for (std::size_t i = 0; i < walked.ours.depth; ++i) {
            const unwind::Rule rule = unwind::find_rule(walked.ours.addresses[i] - 1);
            if (rule.kind() == unwind::Rule::Kind::general) {
                return rule;
            }
        }
        return unwind::Rule();
    }();
    // dlsym() binds nothing: the resolver ran at the call, through the loader's trampoline.
    CHECK(trampoline.kind() == unwind::Rule::Kind::general);
    const unwind::Unloading unloading;
    dlclose(library);
}

TEST_CASE("a library loaded at an unloaded one's address has its own rules") {
    std::vector<PluginCall> places;
    int shared = 0;
    for (int i = 0; i < 200; ++i) {
        const Plugin plugin(i % 2 == 0 ? MEMLAB_PLUGIN_ONE : MEMLAB_PLUGIN_OTHER);
        Walked walked;
        plugin.call()(walk_from_plugin, &walked);
        REQUIRE(walked.equal());
        shared += std::count(places.begin(), places.end(), plugin.call()) != 0 ? 1 : 0;
        places.push_back(plugin.call());
    }
    CHECK(shared > 100);  // else nothing was tried
}

TEST_CASE("a library at an unloaded one's address is noticed although the unload was not seen") {
    void* one = dlopen(MEMLAB_PLUGIN_ONE, RTLD_NOW | RTLD_LOCAL);
    Walked walked;
    reinterpret_cast<PluginCall>(dlsym(one, "plugin_call"))(walk_from_plugin, &walked);
    Dl_info before{};
    dladdr(dlsym(one, "plugin_call"), &before);
    dlclose(one);
    const std::uint64_t epoch = unwind::unload_epoch();
    // A library at the same place, with other addresses in it.
    void* other = dlopen(MEMLAB_PLUGIN_SHIFTED, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(other != nullptr);
    Dl_info after{};
    dladdr(dlsym(other, "plugin_call"), &after);
    reinterpret_cast<PluginCall>(dlsym(other, "plugin_call"))(walk_from_plugin, &walked);
    CHECK(walked.equal());
    Dl_info there{};
    REQUIRE(dladdr(before.dli_fbase, &there) != 0);
    REQUIRE(there.dli_fbase == after.dli_fbase);  // else nothing was tried
    CHECK(unwind::unload_epoch() == epoch + 1);
    const unwind::Unloading unloading;
    dlclose(other);
}

TEST_CASE("threads walk correctly while libraries are loaded and unloaded") {
    std::atomic<bool> stop{false};
    std::atomic<unsigned long> walks{0};
    std::atomic<unsigned long> wrong{0};
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            Walked walked;
            while (!stop) {
                walk(&walked);
                wrong += walked.equal() ? 0 : 1;
                ++walks;
            }
        });
    }
    std::thread closer([&] {
        for (int i = 0; i < 2000; ++i) {
            const Plugin plugin((i ^ i >> 2) % 2 == 0 ? MEMLAB_PLUGIN_ONE : MEMLAB_PLUGIN_OTHER);
            Walked walked;
            plugin.call()(walk_from_plugin, &walked);
            wrong += walked.equal() ? 0 : 1;
        }
    });
    for (int i = 0; i < 2000; ++i) {
        const Plugin plugin(i % 2 == 0 ? MEMLAB_PLUGIN_OTHER : MEMLAB_PLUGIN_ONE);
        Walked walked;
        plugin.call()(walk_from_plugin, &walked);
        wrong += walked.equal() ? 0 : 1;
    }
    closer.join();
    stop = true;
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(wrong == 0);
    CHECK(walks > 1000);
}
