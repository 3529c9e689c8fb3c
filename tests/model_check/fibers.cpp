#include "tests/model_check/fibers.hpp"

#include <cstdint>
#include <utility>

#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace memlab::model_check {

namespace {
constexpr std::size_t stack_bytes = std::size_t{256} << 10;
}

struct Fibers::Fiber {
    Fibers* owner = nullptr;
    ucontext_t context{};
    std::unique_ptr<char[]> stack;
    std::function<void()> job;
    bool busy = false;
    void* fake_stack = nullptr;  // AddressSanitizer's
    const void* bottom = nullptr;
    std::size_t size = 0;
    void* thread = nullptr;  // ThreadSanitizer's

    void switch_to(Fiber& other) {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(&fake_stack, other.bottom, other.size);
#endif
#if defined(__SANITIZE_THREAD__)
        __tsan_switch_to_fiber(other.thread, 0);
#endif
        swapcontext(&context, &other.context);
        arrive(other);
    }

    /// The first thing on a stack that was switched to.
    void arrive([[maybe_unused]] Fiber& from) {
#if defined(__SANITIZE_ADDRESS__)
        const void* bottom_left = nullptr;
        std::size_t size_left = 0;
        __sanitizer_finish_switch_fiber(fake_stack, &bottom_left, &size_left);
        from.bottom = bottom_left;
        from.size = size_left;
#endif
    }
};

Fibers::Fibers() : home_(std::make_unique<Fiber>()) {
#if defined(__SANITIZE_THREAD__)
    home_->thread = __tsan_get_current_fiber();
#endif
}

Fibers::~Fibers() {
#if defined(__SANITIZE_THREAD__)
    for (const auto& fiber : fibers_) {
        __tsan_destroy_fiber(fiber->thread);
    }
#endif
}

void Fibers::body(unsigned high, unsigned low) {
    auto* fiber = reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low);
    Fibers& owner = *fiber->owner;
    fiber->arrive(*owner.home_);
    for (;;) {
        fiber->job();
        fiber->busy = false;
        owner.leave(*fiber);
    }
}

void Fibers::enter(Fiber& fiber) {
    running_ = &fiber;
    home_->switch_to(fiber);
    running_ = nullptr;
}

void Fibers::leave(Fiber& fiber) {
    fiber.switch_to(*home_);
}

void Fibers::park() {
    leave(*running_);
}

std::size_t Fibers::run(std::function<void()> job) {
    if (idle_.empty()) {
        auto fiber = std::make_unique<Fiber>();
        fiber->owner = this;
        fiber->stack = std::make_unique<char[]>(stack_bytes);
        getcontext(&fiber->context);
        fiber->context.uc_stack.ss_sp = fiber->stack.get();
        fiber->context.uc_stack.ss_size = stack_bytes;
        fiber->bottom = fiber->stack.get();
        fiber->size = stack_bytes;
        const auto address = reinterpret_cast<std::uintptr_t>(fiber.get());
        makecontext(&fiber->context, reinterpret_cast<void (*)()>(&Fibers::body), 2,
                    static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
#if defined(__SANITIZE_THREAD__)
        fiber->thread = __tsan_create_fiber(0);
#endif
        idle_.push_back(fibers_.size());
        fibers_.push_back(std::move(fiber));
    }
    const std::size_t index = idle_.back();
    idle_.pop_back();
    fibers_[index]->job = std::move(job);
    fibers_[index]->busy = true;
    return resume(index) ? index : ended;
}

bool Fibers::resume(std::size_t fiber) {
    enter(*fibers_[fiber]);
    if (!fibers_[fiber]->busy) {
        idle_.push_back(fiber);
    }
    return fibers_[fiber]->busy;
}

}  // namespace memlab::model_check

/// A machine that stops at a problem leaves calls under way, and what they hold on their stacks, in
/// its fibers.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
    return "leak:memlab::model_check::Fibers::body\n";
}
