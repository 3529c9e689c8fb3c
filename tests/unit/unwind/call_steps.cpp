// Functions with frames of many sorts, compiled several times with different options.
#include <alloca.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>

#include "tests/unit/unwind/call_paths.hpp"

using call_paths::Path;

namespace {

void use(void* memory) {
    __asm__ volatile("" ::"r"(memory) : "memory");
}

void plain(Path& path) {
    call_paths::go_on(path);
    use(nullptr);
}

void with_room(Path& path) {
    std::array<char, 3000> room;
    use(room.data());
    call_paths::go_on(path);
    use(room.data());
}

void with_alloca(Path& path) {
    void* room = alloca(path.draw() % 500 + 1);
    use(room);
    call_paths::go_on(path);
    use(room);
}

void realigned(Path& path) {
    alignas(64) std::array<char, 128> room;
    use(room.data());
    call_paths::go_on(path);
    use(room.data());
}

void realigned_with_alloca(Path& path) {
    alignas(128) std::array<char, 256> room;
    use(room.data());
    void* more = alloca(path.draw() % 300 + 1);
    use(more);
    call_paths::go_on(path);
    use(room.data());
}

// A tail call: this frame is gone when the callee runs.
void tail_call(Path& path) {
    return call_paths::go_on(path);
}

// Catches, and goes on from within the handler.
void within_handler(Path& path) {
    try {
        throw std::runtime_error("on the way");
    } catch (const std::exception& error) {
        call_paths::go_on(path);
        use(const_cast<char*>(error.what()));
    }
}

struct GoesOnWhenLeft {
    Path& path;
    ~GoesOnWhenLeft() { call_paths::go_on(path); }
};

// Goes on while an exception is on its way through the frame.
__attribute__((noinline)) void thrower(Path& path) {
    GoesOnWhenLeft leaving{path};
    use(&leaving);
    throw 1;
}

void in_flight(Path& path) {
    try {
        thrower(path);
    } catch (int) {
        use(nullptr);
    }
}

// The call is the last instruction of its function, so its return address is beyond it; and the
// function is of those that are kept apart from hot code.
[[noreturn]] __attribute__((noinline, cold)) void never_returns(Path& path) {
    call_paths::go_on(path);
    throw 2;
}

void through_noreturn(Path& path) {
    try {
        never_returns(path);
    } catch (int) {
        use(nullptr);
    }
}

// Through the standard library's templates, with the call in a lambda.
void through_function(Path& path) {
    std::array<int, 3> values{3, 1, 2};
    bool done = false;
    const std::function<bool(int, int)> compare = [&](int a, int b) {
        if (!done) {
            done = true;
            call_paths::go_on(path);
        }
        return a < b;
    };
    std::sort(values.begin(), values.end(), compare);
}

}  // namespace

namespace call_paths {

extern const Step MEMLAB_STEPS[steps_per_flavour] = {
    plain,          with_room, with_alloca,      realigned,        realigned_with_alloca,
    within_handler, in_flight, through_noreturn, through_function, tail_call,
};

}  // namespace call_paths
