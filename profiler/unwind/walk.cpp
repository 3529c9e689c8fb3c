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

// Limits the steps that are not plain, which unlike plain ones may lead anywhere, even in a circle.
constexpr std::size_t max_steps = CapturedStack::max_depth + 1024;

constexpr std::size_t word_size = sizeof(std::uintptr_t);

struct Position {
    std::uintptr_t instruction;
    std::uintptr_t sp;
    std::uintptr_t bp;
    bool interrupted;  // by a signal: `instruction` is the next one, not a return address

    // An address within the frame's current instruction.
    std::uintptr_t address() const { return instruction - (interrupted ? 0 : 1); }
};

MEMLAB_READS_STACK inline std::uintptr_t stack_word(std::uintptr_t address) {
    return *reinterpret_cast<const std::uintptr_t*>(address);
}

// Makes the rule for `at` from the tables, and caches it if `keep`.
__attribute__((noinline)) Rule make_rule(const Position& at, bool keep) {
    UnwindInfo info;
    find_unwind_info(at.address(), at.instruction, &info);
    Rule rule(Kind::general);
    switch (info.source) {
        case Source::tables:
            rule = Rule::from_row(info.row, info.signal_frame);
            break;
        case Source::no_tables:
            rule = Rule(Kind::no_tables);
            break;
        // Not cached: the loader may map an object there without our notice.
        case Source::no_object:
            return Rule(Kind::no_tables);
        case Source::no_code:
            return Rule(Kind::no_code);
        case Source::signal_call:
            break;
    }
    if (keep) {
        insert_rule(at.address(), rule);
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

void set_position(Position& at, StackMemory& memory, const Registers& registers, bool interrupted) {
    at = {registers.values[column::rip], registers.values[column::rsp],
          registers.values[column::rbp], interrupted};
    memory.move_to(at.sp);
}

// Of a frame whose rule is `general`.
__attribute__((noinline)) Answer step_by_tables(Position& at, StackMemory& memory,
                                                std::uintptr_t* cfa) {
    UnwindInfo info;
    find_unwind_info(at.address(), at.instruction, &info);
    Registers registers = carried_registers(at);
    const Answer answer = step_by_row(info, memory, &registers, cfa);
    if (answer == Answer::found) {
        set_position(at, memory, registers, info.signal_frame);
    }
    return answer;
}

__attribute__((noinline)) Answer step_by_heuristics(Position& at, StackMemory& memory,
                                                    std::uintptr_t* cfa) {
    Registers registers = carried_registers(at);
    const Answer answer = step_without_tables(memory, &registers, cfa);
    if (answer == Answer::found) {
        set_position(at, memory, registers, false);
    }
    return answer;
}

// gcc's realigned frames save the CFA below rbp, and the caller's rbp where rbp points.
MEMLAB_READS_STACK bool step_realigned(Rule rule, Position& at, StackMemory& memory,
                                       std::uintptr_t* cfa) {
    const std::uintptr_t saved_cfa = at.bp - rule.distance();
    if (at.bp < at.sp || saved_cfa < at.sp || saved_cfa > at.bp || at.bp + word_size < at.bp ||
        !memory.extend(at.bp + word_size, saved_cfa)) {
        return false;
    }
    *cfa = stack_word(saved_cfa);
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

// Unwinds one frame by `rule`, which is made first if it is unknown. `none`: the walk ends here.
[[gnu::hot]] __attribute__((noinline)) Answer step(Rule& rule, Position& at, StackMemory& memory,
                                                   bool use_caches, std::uintptr_t* cfa) {
    if (rule.kind() == Kind::none) {
        rule = make_rule(at, use_caches);
    }
    switch (rule.kind()) {
        case Kind::plain:
            return step_plain(rule, at, memory, cfa) ? Answer::found : Answer::none;
        case Kind::realigned:
            return step_realigned(rule, at, memory, cfa) ? Answer::found : Answer::none;
        case Kind::general:
            return step_by_tables(at, memory, cfa);
        case Kind::no_tables:
            return step_by_heuristics(at, memory, cfa);
        default:
            return Answer::none;
    }
}

// The registers that survive a call, so are known of the caller.
constexpr std::uint32_t callee_saved = 1U << column::rbx | 1U << column::rbp | 1U << column::rsp |
                                       1U << 12 | 1U << 13 | 1U << 14 | 1U << 15 |
                                       1U << column::rip;

// The registers of the function that this is inlined into.
[[gnu::always_inline]] inline Registers registers_here() {
    Registers registers{};
    registers.known = callee_saved;
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

// The slow walk: all registers, without the caches. Starts at its own frame; reports frames from
// the one whose stack pointer is `first`.
template <std::size_t capacity>
__attribute__((noinline)) void walk_with_all_registers(std::uintptr_t first,
                                                       StackBuffer<capacity>& stack,
                                                       std::size_t limit, Bytes excluded) {
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
        UnwindInfo info;
        find_unwind_info(instruction - (interrupted ? 0 : 1), instruction, &info);
        if (info.source == Source::no_code) {
            stack.ends_early = true;
            return;
        }
        if (reached && !excluded.contains(instruction)) {
            excluded = {};
            if (stack.depth == limit) {
                stack.truncated = true;
                return;
            }
            stack.addresses[stack.depth] = instruction;
            stack.ends[stack.depth++] = UINTPTR_MAX;
        }
        const bool described = info.source == Source::tables || info.source == Source::signal_call;
        std::uintptr_t cfa = 0;
        const Answer answer = described ? step_by_row(info, memory, &registers, &cfa)
                                        : step_without_tables(memory, &registers, &cfa);
        if (answer != Answer::found) {
            stack.ends_early = true;
            return;
        }
        if (stack.depth != 0) {
            stack.ends[stack.depth - 1] = cfa;
        }
        memory.move_to(registers.values[column::rsp]);
        interrupted = info.signal_frame;
    }
    stack.ends_early = true;
}

// The fast walk. False if a frame needs a register that it does not track. This loop dominates the
// unwinder's cost: its state stays in registers, and anything but a plain rule is left to step().
template <std::size_t capacity>
[[gnu::hot]] MEMLAB_READS_STACK inline bool walk_fast(Position at, StackBuffer<capacity>& stack,
                                                      std::size_t limit, Bytes excluded,
                                                      std::uint64_t epoch) {
    const bool use_caches = !is_unloading();
    WalkCache cache(use_caches ? epoch : 0, at.sp);
    StackMemory memory(at.sp);
    std::uintptr_t high = memory.high();
    std::uintptr_t excluded_size = excluded.end - excluded.begin;
    std::uintptr_t back = 1;
    std::size_t depth = 0;
    std::size_t steps = 0;
    bool truncated = false;
    bool ends_early = false;
    bool complete = true;
    while (at.instruction != 0) {
        const auto* const known =
            at.sp <= high ? cache.match(at.sp, at.instruction - back) : nullptr;
        if (known != nullptr) {
            // Follow the cached walk while it matches: equal stack pointers show that the rules
            // hold, equal return addresses that the walks continue alike. Addresses come from the
            // cached frames, so the loads do not depend on each other.
            const auto* frame = known;
            do {
                const auto* const next = frame + 1;
                const Rule rule = frame->rule;
                std::uintptr_t cfa = next->sp;
                if ((rule.from_frame_pointer() ? at.bp : at.sp) + rule.distance() != cfa ||
                    cfa > high || depth == limit) {
                    break;
                }
                __asm__("" : "+r"(cfa));  // else the compiler uses the sum, which is ready later
                excluded_size = at.instruction - excluded.begin < excluded_size ? excluded_size : 0;
                stack.addresses[depth] = at.instruction;
                stack.ends[depth] = cfa;
                depth += excluded_size == 0 ? 1 : 0;
                const std::uintptr_t saved = stack_word(cfa - rule.saved_frame_pointer());
                at.instruction = stack_word(cfa - word_size);
                at.sp = cfa;
                at.bp = rule.keeps_frame_pointer() ? at.bp : saved;
                back = 1;
                frame = next;
            } while (at.instruction - 1 == frame->address);
            if (frame != known) {
                cache.append_matched(frame);
                continue;
            }
            if (frame->rule.kind() == Kind::end && depth < limit) {
                if (at.instruction - excluded.begin >= excluded_size) {
                    stack.addresses[depth] = at.instruction;
                    stack.ends[depth++] = UINTPTR_MAX;
                }
                cache.append_matched(frame + 1);
                break;
            }
        }
        if (at.instruction - excluded.begin >= excluded_size) {
            excluded_size = 0;
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
        if (use_caches) [[likely]] {
            rule = cache.rule_at(at.sp, address);
            rule = rule.is_plain() ? rule : find_plain_rule(address);
            rule = rule.is_plain() ? rule : find_rule(address);
        }
        const std::uintptr_t base = rule.from_frame_pointer() ? at.bp : at.sp;
        cfa = base + rule.distance();
        // The last comparison is cfa <= high, safe against overflow of the sum.
        if (rule.is_plain() && base >= at.sp && cfa - at.sp <= high - at.sp) [[likely]] {
            // Branch-free: if rbp is not saved, this reads the return address.
            const std::uintptr_t saved = stack_word(cfa - rule.saved_frame_pointer());
            cache.append(at.sp, address, rule);
            at.instruction = stack_word(cfa - word_size);
            at.sp = cfa;
            at.bp = rule.keeps_frame_pointer() ? at.bp : saved;
            back = 1;
        } else {
            Position slowly{at.instruction, at.sp, at.bp, back == 0};
            const Answer answer = step(rule, slowly, memory, use_caches, &cfa);
            if (answer != Answer::found || ++steps == max_steps) {
                complete = answer != Answer::missing_register;
                ends_early = rule.kind() != Kind::end;
                if (rule.kind() == Kind::no_code) {
                    depth -= excluded_size == 0 ? 1 : 0;  // not a frame after all
                } else if (use_caches && rule.kind() == Kind::end) {
                    // The outermost frame stays so until objects are unloaded.
                    cache.append(at.sp, address, rule);
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
        cache.commit();
    }
    return complete;
}

}  // namespace

template <std::size_t capacity>
[[gnu::hot]] __attribute__((noinline)) MEMLAB_READS_STACK void walk_stack(
    StackBuffer<capacity>& stack, std::size_t limit, Bytes excluded) {
    const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    const Position callers{stack_word(frame + word_size), frame + 2 * word_size, stack_word(frame),
                           false};
    const std::uint64_t epoch = unload_epoch();
    const bool complete = walk_fast(callers, stack, limit, excluded, epoch);
    if (!complete || unload_epoch() != epoch) [[unlikely]] {
        // In the second case the walk may have used cached rules of an unloaded object.
        walk_with_all_registers(callers.sp, stack, limit, excluded);
    }
}

Rule rule_of_frame(std::uintptr_t return_address) {
    const Position at{return_address, 0, 0, false};
    const Rule rule = find_rule(at.address());
    return rule.kind() != Kind::none ? rule : make_rule(at, true);
}

__attribute__((noinline)) bool find_interrupted(Interrupted* found) {
    Registers registers = registers_here();
    StackMemory memory(registers.values[column::rsp]);
    bool interrupted = true;
    for (std::size_t i = 0; i < max_steps; ++i) {
        const std::uintptr_t instruction = registers.values[column::rip];
        UnwindInfo info;
        find_unwind_info(instruction - (interrupted ? 0 : 1), instruction, &info);
        const bool described = info.source == Source::tables || info.source == Source::signal_call;
        std::uintptr_t cfa = 0;
        if ((described ? step_by_row(info, memory, &registers, &cfa)
                       : step_without_tables(memory, &registers, &cfa)) != Answer::found ||
            registers.values[column::rip] == 0) {
            return false;
        }
        if (info.signal_frame) {
            *found = {registers.values[column::rip], registers.values[0]};
            return true;
        }
        memory.move_to(registers.values[column::rsp]);
        interrupted = false;
    }
    return false;
}

template void walk_stack(CapturedStack& stack, std::size_t limit, Bytes excluded);
template void walk_stack(ShortStack& stack, std::size_t limit, Bytes excluded);

}  // namespace memlab::profiler::unwind
