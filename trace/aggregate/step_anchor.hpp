// The end of a step that the program does not mark.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trace/event.hpp"

namespace memlab::trace {

/// A step ends when a thread comes to a call site, from another one. Thread-safety: none.
class StepAnchor {
  public:
    enum class Level : std::uint8_t { driver, framework };

    StepAnchor() = default;
    /// `type`: alloc or free_requested; `stack`: StackDef::id; `level` as in is_call().
    StepAnchor(EventType type, std::uint32_t stack, std::uint32_t thread, Level level)
        : type_(type), level_(level), stack_(stack), thread_(thread) {}

    /// Only each `every`-th visit ends one, the first after `skipped` visits (< `every`).
    void ends_every(std::size_t every, std::size_t skipped) {
        every_ = every;
        visits_left_ = skipped;
    }

    /// The first step ends at another call site, once; type and thread are the same.
    void ends_first_at(std::uint32_t stack) { first_stack_ = stack; }

    /// Whether a step ended with the event. Must be asked of all events, in order.
    bool ends(const Event& event) {
        if (event.thread != thread_ || !is_call(event, level_)) {
            return false;
        }
        if (first_stack_ != 0 && event.type == type_ && event.stack == first_stack_) {
            first_stack_ = 0;
            is_there_ = false;
            return true;
        }
        const bool was_there = is_there_;
        is_there_ = event.type == type_ && event.stack == stack_;
        if (!is_there_ || was_there || visits_left_-- != 0) {
            return false;
        }
        visits_left_ = every_ - 1;
        return true;
    }

    /// The events in which a loop is seen: allocations, and what the program itself frees, whose
    /// call sites are rarely recorded; where a framework has a cache, those of its tensors alone.
    static bool is_call(const Event& event, Level level) {
        return (event.kind == MemoryKind::suballocation) == (level == Level::framework) &&
               (event.type == EventType::alloc
                    ? event.stack != 0
                    : event.type == EventType::free_requested && event.name == 0);
    }

    bool operator==(const StepAnchor&) const = default;

  private:
    EventType type_ = EventType::alloc;
    Level level_ = Level::driver;
    std::uint32_t stack_ = 0;
    std::uint32_t first_stack_ = 0;  ///< 0: none, or it was there
    std::uint32_t thread_ = 0;
    bool is_there_ = false;
    std::size_t every_ = 1;
    std::size_t visits_left_ = 0;  ///< before the next one that ends a step
};

}  // namespace memlab::trace
