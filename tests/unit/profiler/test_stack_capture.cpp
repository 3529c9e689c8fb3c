// The captured stack equals that of glibc's backtrace(), an independent unwinder.
#include "profiler/stack_capture.hpp"

#include <execinfo.h>

#include <cstdlib>
#include <vector>

#include "tests/catch.hpp"

using memlab::profiler::capture_stack;
using memlab::profiler::unwind::CapturedStack;

namespace {

// The capture leaves out the frames of the object that it is linked into, so here it sees only what
// called into this program: a library function that calls back makes a stack to look at.
struct Seen {
    CapturedStack stack;
    std::vector<void*> reference;
    std::size_t limit = CapturedStack::max_depth;
    std::vector<std::uintptr_t> locals;  // of each level of deep(), the root's first
};
Seen* in_handler = nullptr;

int compare(const void* /*a*/, const void* /*b*/) {
    if (in_handler->reference.empty()) {
        capture_stack(in_handler->stack, in_handler->limit);
        void* frames[256];
        const int depth = backtrace(frames, 256);
        in_handler->reference.assign(frames, frames + depth);
    }
    return 0;
}

// qsort calls compare: the stack is compare (ours), qsort's internals (libc's), then ours again.
__attribute__((noinline)) void through_libc(Seen* where) {
    in_handler = where;
    int values[] = {2, 1};
    qsort(values, 2, sizeof(int), compare);
    in_handler = nullptr;
}

__attribute__((noinline)) void deep(Seen* where, int depth) {
    volatile int local = depth;
    where->locals.push_back(reinterpret_cast<std::uintptr_t>(&local));
    if (depth == 0) {
        through_libc(where);
    } else {
        deep(where, depth - 1);
    }
    __asm__ volatile("" ::: "memory");  // no tail call: each level is a frame
}

}  // namespace

TEST_CASE("the same return addresses as backtrace(), from the first foreign frame on") {
    Seen where;
    deep(&where, 20);
    REQUIRE(where.stack.depth > 20);
    CHECK_FALSE(where.stack.truncated);
    // backtrace() begins with compare's own frame; ours begins at the frame that called compare.
    const std::size_t skipped = where.reference.size() - where.stack.depth;
    REQUIRE(skipped >= 1);
    REQUIRE(skipped <= 3);
    for (std::size_t i = 0; i < where.stack.depth; ++i) {
        INFO("frame " << i);
        CHECK(where.stack.addresses[i] ==
              reinterpret_cast<std::uintptr_t>(where.reference[i + skipped]));
    }
}

TEST_CASE("a limit cuts the stack at its root and says so") {
    Seen whole;
    deep(&whole, 20);
    Seen cut;
    cut.limit = 5;
    deep(&cut, 20);
    CHECK(cut.stack.depth == 5);
    CHECK(cut.stack.truncated);
    // The first two frames lie within libc; where the calls of this test differ comes later.
    CHECK(cut.stack.addresses[0] == whole.stack.addresses[0]);
}

TEST_CASE("a variable on the stack lies in the frame of its function") {
    for (const std::size_t limit : {CapturedStack::max_depth, std::size_t{15}}) {
        Seen where;
        where.limit = limit;
        deep(&where, 20);
        std::vector<std::size_t> frames;
        for (auto local = where.locals.rbegin(); local != where.locals.rend(); ++local) {
            for (std::size_t i = 0; i < where.stack.depth; ++i) {
                if (*local < where.stack.ends[i]) {
                    frames.push_back(i);
                    break;
                }
            }
        }
        // deep(n - 1) returns to one and the same place in deep(n), and each level is a frame.
        REQUIRE(frames.size() >= (limit == 15 ? 8 : 21));
        for (std::size_t i = 1; i < frames.size(); ++i) {
            CHECK(frames[i] == frames[i - 1] + 1);
        }
        const std::size_t recursive = frames[1];
        for (std::size_t i = 2; i < frames.size(); ++i) {
            CHECK(where.stack.addresses[frames[i]] == where.stack.addresses[recursive]);
        }
    }
}

TEST_CASE("a limit of nothing gives nothing") {
    Seen none;
    none.limit = 0;
    deep(&none, 3);
    CHECK(none.stack.depth == 0);
}
