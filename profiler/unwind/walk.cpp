#include "profiler/unwind/walk.hpp"

#include "profiler/unwind/frame_step.hpp"
#include "profiler/unwind/rules.hpp"
#include "profiler/unwind/stack_memory.hpp"
#include "profiler/unwind/unloads.hpp"
#include "profiler/unwind/walk_cache.hpp"

namespace memlab::profiler::unwind {
namespace {

using Kind = Rule::Kind;
using Source = UnwindInfo::Source;

// A plain step always leads upwards. The others may lead anywhere; so many of them are no stack.
constexpr std::size_t max_steps = CapturedStack::max_depth + 1024;

constexpr std::size_t word_size = sizeof(std::uintptr_t);

struct Position {
    std::uintptr_t instruction;
    std::uintptr_t sp;
    std::uintptr_t bp;
    bool interrupted;  // `instruction` was not called from, it is next

    // In the instruction that the frame is at.
    std::uintptr_t address() const { return instruction - (interrupted ? 0 : 1); }
};

MEMLAB_READS_STACK inline std::uintptr_t stack_word(std::uintptr_t address) {
    return *reinterpret_cast<const std::uintptr_t*>(address);
}

// The rule for where `at` is, made from the tables and kept if `keep`.
__attribute__((noinline)) Rule learn_rule(const Position& at, bool keep) {
    UnwindInfo knowledge;
    find_unwind_info(at.address(), at.instruction, &knowledge);
    Rule rule(Kind::general);
    switch (knowledge.source) {
        case Source::tables:
            rule = Rule::of(knowledge.row, knowledge.signal_frame);
            break;
        case Source::no_tables:
            rule = Rule(Kind::no_tables);
            break;
        // Not kept: the loader may put an object there, and tells nobody.
        case Source::no_object:
            return Rule(Kind::no_tables);
        case Source::no_code:
            return Rule(Kind::no_code);
        case Source::signal_call:
            break;
    }
    if (keep) {
        keep_rule(at.address(), rule);
    }
    return rule;
}

Registers carried_registers(const Position& at) {
    Registers registers{};
    registers.set(column::rip, at.instruction);
    registers.set(column::rsp, at.sp);
    registers.set(column::rbp, at.bp);
    return registers;
}

void go_on(Position& at, StackMemory& memory, const Registers& registers, bool interrupted) {
    at = {registers.values[column::rip], registers.values[column::rsp],
          registers.values[column::rbp], interrupted};
    memory.move_to(at.sp);
}

// A frame that has no kept rule: by the tables, with the registers that a walk carries along.
__attribute__((noinline)) Answer step_generally(Position& at, StackMemory& memory,
                                                std::uintptr_t* cfa) {
    UnwindInfo knowledge;
    find_unwind_info(at.address(), at.instruction, &knowledge);
    Registers registers = carried_registers(at);
    const Answer answer = step_by_row(knowledge, memory, &registers, cfa);
    if (answer == Answer::found) {
        go_on(at, memory, registers, knowledge.signal_frame);
    }
    return answer;
}

__attribute__((noinline)) Answer step_through_unknown(Position& at, StackMemory& memory,
                                                      std::uintptr_t* cfa) {
    Registers registers = carried_registers(at);
    const Answer answer = step_without_tables(memory, &registers, cfa);
    if (answer == Answer::found) {
        go_on(at, memory, registers, false);
    }
    return answer;
}

// gcc's realigned frame keeps its CFA below its rbp, and the caller's rbp where that points.
MEMLAB_READS_STACK bool step_realigned(Rule rule, Position& at, StackMemory& memory,
                                       std::uintptr_t* cfa) {
    const std::uintptr_t kept = at.bp - rule.distance();
    if (at.bp < at.sp || kept < at.sp || kept > at.bp || at.bp + word_size < at.bp ||
        !memory.extend(at.bp + word_size, kept)) {
        return false;
    }
    *cfa = stack_word(kept);
    if (*cfa <= at.bp + word_size || !memory.extend(*cfa, *cfa - word_size)) {
        return false;
    }
    at = {stack_word(*cfa - word_size), *cfa, stack_word(at.bp), false};
    return true;
}

MEMLAB_READS_STACK bool step_plain(Rule rule, Position& at, StackMemory& memory,
                                   std::uintptr_t* cfa) {
    const std::uintptr_t base = rule.from_frame_pointer() ? at.bp : at.sp;
    *cfa = base + rule.distance();
    const std::uintptr_t saved_at = *cfa - rule.saved_frame_pointer();
    if (base < at.sp || *cfa < base || !memory.extend(*cfa, saved_at)) {
        return false;
    }
    const std::uintptr_t saved = stack_word(saved_at);
    at = {stack_word(*cfa - word_size), *cfa, rule.keeps_frame_pointer() ? at.bp : saved, false};
    return true;
}

// One frame in whatever way it takes, by the rule that is kept for it if there is one; `rule` is
// what it was done by. `none`: the walk ends here.
[[gnu::hot]] __attribute__((noinline)) Answer step(Rule& rule, Position& at, StackMemory& memory,
                                                   bool use_kept, std::uintptr_t* cfa) {
    if (rule.kind() == Kind::none) {
        rule = learn_rule(at, use_kept);
    }
    switch (rule.kind()) {
        case Kind::plain:
            return step_plain(rule, at, memory, cfa) ? Answer::found : Answer::none;
        case Kind::realigned:
            return step_realigned(rule, at, memory, cfa) ? Answer::found : Answer::none;
        case Kind::general:
            return step_generally(at, memory, cfa);
        case Kind::no_tables:
            return step_through_unknown(at, memory, cfa);
        default:
            return Answer::none;
    }
}

// What a function has to give back as it found it, and so what is known of its caller's.
constexpr std::uint32_t kept_registers = 1U << column::rbx | 1U << column::rbp | 1U << column::rsp |
                                         1U << 12 | 1U << 13 | 1U << 14 | 1U << 15 |
                                         1U << column::rip;

// Of the function that this becomes a part of.
[[gnu::always_inline]] inline Registers registers_here() {
    Registers registers{};
    registers.known = kept_registers;
    __asm__ volatile(
        "movq %%rbx, 24(%0)\n\t"
        "movq %%rbp, 48(%0)\n\t"
        "movq %%rsp, 56(%0)\n\t"
        "movq %%r12, 96(%0)\n\t"
        "movq %%r13, 104(%0)\n\t"
        "movq %%r14, 112(%0)\n\t"
        "movq %%r15, 120(%0)\n\t"
        "leaq 0f(%%rip), %%rax\n\t"
        "movq %%rax, 128(%0)\n"
        "0:"
        :
        : "r"(registers.values)
        : "rax", "memory");
    return registers;
}

// The whole walk with every register, from the tables alone. It begins with its own frame, what it
// gives with the one whose stack pointer is `first`.
template <std::size_t room>
__attribute__((noinline)) void walk_with_all_registers(std::uintptr_t first, StackRoom<room>& stack,
                                                       std::size_t limit, Bytes left_out) {
    Registers registers = registers_here();
    StackMemory memory(registers.values[column::rsp]);
    bool interrupted = true;
    bool reached = false;
    stack.depth = 0;
    stack.truncated = false;
    stack.ends_early = false;
    for (std::size_t i = 0; i < max_steps; ++i) {
        const std::uintptr_t instruction = registers.values[column::rip];
        reached = reached || registers.values[column::rsp] == first;
        if (instruction == 0) {
            return;
        }
        UnwindInfo knowledge;
        find_unwind_info(instruction - (interrupted ? 0 : 1), instruction, &knowledge);
        if (knowledge.source == Source::no_code) {
            stack.ends_early = true;
            return;
        }
        if (reached && !left_out.contains(instruction)) {
            left_out = {};
            if (stack.depth == limit) {
                stack.truncated = true;
                return;
            }
            stack.addresses[stack.depth] = instruction;
            stack.ends[stack.depth++] = UINTPTR_MAX;
        }
        const bool described =
            knowledge.source == Source::tables || knowledge.source == Source::signal_call;
        std::uintptr_t cfa = 0;
        const Answer answer = described ? step_by_row(knowledge, memory, &registers, &cfa)
                                        : step_without_tables(memory, &registers, &cfa);
        if (answer != Answer::found) {
            stack.ends_early = true;
            return;
        }
        if (stack.depth != 0) {
            stack.ends[stack.depth - 1] = cfa;
        }
        memory.move_to(registers.values[column::rsp]);
        interrupted = knowledge.signal_frame;
    }
    stack.ends_early = true;
}

// False when a frame needs a register that is not carried along. The loop is the unwinder's cost:
// what it needs is in registers, and what is not the plain case leaves it for step().
template <std::size_t room>
[[gnu::hot]] MEMLAB_READS_STACK inline bool walk_quickly(Position at, StackRoom<room>& stack,
                                                         std::size_t limit, Bytes left_out,
                                                         std::uint64_t epoch) {
    const bool use_kept = !is_unloading();
    WalkCache earlier(use_kept ? epoch : 0, at.sp);
    StackMemory memory(at.sp);
    std::uintptr_t high = memory.high();
    std::uintptr_t own_size = left_out.end - left_out.begin;
    std::uintptr_t back = 1;
    std::size_t depth = 0;
    std::size_t steps = 0;
    bool truncated = false;
    bool ends_early = false;
    bool complete = true;
    while (at.instruction != 0) {
        const auto* const known =
            at.sp <= high ? earlier.same_way(at.sp, at.instruction - back) : nullptr;
        if (known != nullptr) {
            // As far as it is the same way. The stack pointers say that the rules hold, the return
            // addresses that it goes on. All is read from where it was: each frame can be read
            // before the one below it is known.
            const auto* frame = known;
            do {
                const auto* const next = frame + 1;
                const Rule rule = frame->rule;
                std::uintptr_t cfa = next->sp;
                if ((rule.from_frame_pointer() ? at.bp : at.sp) + rule.distance() != cfa ||
                    cfa > high || depth == limit) {
                    break;
                }
                __asm__("" : "+r"(cfa));  // or the compiler takes the sum, which is known later
                own_size = at.instruction - left_out.begin < own_size ? own_size : 0;
                stack.addresses[depth] = at.instruction;
                stack.ends[depth] = cfa;
                depth += own_size == 0 ? 1 : 0;
                const std::uintptr_t saved = stack_word(cfa - rule.saved_frame_pointer());
                at.instruction = stack_word(cfa - word_size);
                at.sp = cfa;
                at.bp = rule.keeps_frame_pointer() ? at.bp : saved;
                back = 1;
                frame = next;
            } while (at.instruction - 1 == frame->address);
            if (frame != known) {
                earlier.went_along(frame);
                continue;
            }
            if (frame->rule.kind() == Kind::end && depth < limit) {
                if (at.instruction - left_out.begin >= own_size) {
                    stack.addresses[depth] = at.instruction;
                    stack.ends[depth++] = UINTPTR_MAX;
                }
                earlier.went_along(frame + 1);
                break;
            }
        }
        if (at.instruction - left_out.begin >= own_size) {
            own_size = 0;
            if (depth == limit) {
                truncated = true;
                break;
            }
            stack.addresses[depth] = at.instruction;
            stack.ends[depth++] = UINTPTR_MAX;
        }
        std::uintptr_t cfa = 0;
        const std::uintptr_t address = at.instruction - back;
        Rule rule;
        if (use_kept) [[likely]] {
            rule = earlier.rule_at(at.sp, address);
            rule = rule.is_plain() ? rule : find_plain_rule(address);
            rule = rule.is_plain() ? rule : find_rule(address);
        }
        const std::uintptr_t base = rule.from_frame_pointer() ? at.bp : at.sp;
        cfa = base + rule.distance();
        // The second comparison is cfa <= high, without falling for a sum that went past the end.
        if (rule.is_plain() && base >= at.sp && cfa - at.sp <= high - at.sp) [[likely]] {
            // Without a branch: where rbp is not saved, the word read is the return address.
            const std::uintptr_t saved = stack_word(cfa - rule.saved_frame_pointer());
            earlier.went(at.sp, address, rule);
            at.instruction = stack_word(cfa - word_size);
            at.sp = cfa;
            at.bp = rule.keeps_frame_pointer() ? at.bp : saved;
            back = 1;
        } else {
            Position slowly{at.instruction, at.sp, at.bp, back == 0};
            const Answer answer = step(rule, slowly, memory, use_kept, &cfa);
            if (answer != Answer::found || ++steps == max_steps) {
                complete = answer != Answer::missing_register;
                ends_early = rule.kind() != Kind::end;
                if (rule.kind() == Kind::no_code) {
                    depth -= own_size == 0 ? 1 : 0;  // it was taken for a frame
                } else if (use_kept && rule.kind() == Kind::end) {
                    // One until objects are unloaded.
                    earlier.went(at.sp, address, rule);
                }
                break;
            }
            at = slowly;
            back = slowly.interrupted ? 0 : 1;
            high = memory.high();
        }
        if (depth != 0) {
            stack.ends[depth - 1] = cfa;
        }
    }
    stack.depth = depth;
    stack.truncated = truncated;
    stack.ends_early = ends_early;
    if (complete && unload_epoch() == epoch) {
        earlier.keep();
    }
    return complete;
}

}  // namespace

template <std::size_t room>
[[gnu::hot]] __attribute__((noinline)) MEMLAB_READS_STACK void walk_stack(StackRoom<room>& stack,
                                                                          std::size_t limit,
                                                                          Bytes left_out) {
    const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    const Position callers{stack_word(frame + word_size), frame + 2 * word_size, stack_word(frame),
                           false};
    const std::uint64_t epoch = unload_epoch();
    const bool complete = walk_quickly(callers, stack, limit, left_out, epoch);
    if (!complete || unload_epoch() != epoch) [[unlikely]] {
        // Either way the tables alone have the answer; in the second case because rules of an
        // object that is gone may have been among those that were followed.
        walk_with_all_registers(callers.sp, stack, limit, left_out);
    }
}

__attribute__((noinline)) bool find_interrupted(Interrupted* found) {
    Registers registers = registers_here();
    StackMemory memory(registers.values[column::rsp]);
    bool interrupted = true;
    for (std::size_t i = 0; i < max_steps; ++i) {
        const std::uintptr_t instruction = registers.values[column::rip];
        UnwindInfo knowledge;
        find_unwind_info(instruction - (interrupted ? 0 : 1), instruction, &knowledge);
        const bool described =
            knowledge.source == Source::tables || knowledge.source == Source::signal_call;
        std::uintptr_t cfa = 0;
        if ((described ? step_by_row(knowledge, memory, &registers, &cfa)
                       : step_without_tables(memory, &registers, &cfa)) != Answer::found ||
            registers.values[column::rip] == 0) {
            return false;
        }
        if (knowledge.signal_frame) {
            *found = {registers.values[column::rip], registers.values[0]};
            return true;
        }
        memory.move_to(registers.values[column::rsp]);
        interrupted = false;
    }
    return false;
}

template void walk_stack(CapturedStack& stack, std::size_t limit, Bytes left_out);
template void walk_stack(ShortStack& stack, std::size_t limit, Bytes left_out);

}  // namespace memlab::profiler::unwind
