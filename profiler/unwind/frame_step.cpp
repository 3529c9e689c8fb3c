#include "profiler/unwind/frame_step.hpp"

#include <sys/ucontext.h>

#include <array>
#include <cstddef>
#include <utility>

#include "profiler/unwind/modules.hpp"

namespace memlab::profiler::unwind {
namespace {

using How = RegisterRule::How;
using Source = FrameKnowledge::Source;

// mov $15, %rax; syscall: a signal handler's end where nobody wrote tables for it, as in programs
// that install handlers without the C library.
bool is_signal_return(std::uintptr_t instruction) {
    std::uintptr_t first = 0;
    std::uintptr_t second = 0;
    const StackMemory nothing_known;
    return nothing_known.read(instruction, &first) &&
           nothing_known.read(instruction + 1, &second) && (first & 0xffU) == 0x48 &&
           second == 0x050f0000000fc0c7U;
}

// DWARF's number of each register that the kernel saves for a signal handler.
constexpr std::array<std::pair<std::size_t, int>, column::count> saved_by_kernel{{
    {0, REG_RAX},
    {1, REG_RDX},
    {2, REG_RCX},
    {3, REG_RBX},
    {4, REG_RSI},
    {5, REG_RDI},
    {6, REG_RBP},
    {7, REG_RSP},
    {8, REG_R8},
    {9, REG_R9},
    {10, REG_R10},
    {11, REG_R11},
    {12, REG_R12},
    {13, REG_R13},
    {14, REG_R14},
    {15, REG_R15},
    {16, REG_RIP},
}};

// The kernel leaves the context where the stack pointer is once the handler has returned.
Answer step_to_interrupted(const StackMemory& memory, Registers* registers, std::uintptr_t* cfa) {
    const std::uintptr_t context = registers->values[column::rsp] +
                                   offsetof(ucontext_t, uc_mcontext) + offsetof(mcontext_t, gregs);
    Registers interrupted{};
    for (const auto& [reg, index] : saved_by_kernel) {
        std::uintptr_t value = 0;
        if (!memory.read(context + static_cast<std::size_t>(index) * sizeof(greg_t), &value)) {
            return Answer::none;
        }
        interrupted.set(reg, value);
    }
    *registers = interrupted;
    *cfa = interrupted.values[column::rsp];
    return Answer::found;
}

Answer find_cfa(const FrameRow& row, const StackMemory& memory, const Registers& registers,
                std::uintptr_t* cfa) {
    if (row.cfa.how == How::is_expression) {
        return evaluate(row.cfa.expression(), registers, memory, nullptr, cfa);
    }
    const auto reg = static_cast<std::uint64_t>(row.cfa.offset);
    if (row.cfa.how != How::in_register || reg >= column::count) {
        return Answer::none;
    }
    if (!registers.has(reg)) {
        return Answer::missing_register;
    }
    *cfa = registers.values[reg] + static_cast<std::uintptr_t>(row.cfa_offset);
    return Answer::found;
}

Answer find_register(const RegisterRule& rule, std::size_t reg, std::uintptr_t cfa,
                     const StackMemory& memory, const Registers& registers, std::uintptr_t* value) {
    switch (rule.how) {
        case How::at_offset:
            return memory.read(cfa + static_cast<std::uintptr_t>(rule.offset), value)
                       ? Answer::found
                       : Answer::none;
        case How::is_offset:
            *value = cfa + static_cast<std::uintptr_t>(rule.offset);
            return Answer::found;
        case How::in_register: {
            const auto other = static_cast<std::uint64_t>(rule.offset);
            if (!registers.has(other)) {
                return other < column::count ? Answer::missing_register : Answer::none;
            }
            *value = registers.values[other];
            return Answer::found;
        }
        case How::at_expression: {
            const Answer answer = evaluate(rule.expression(), registers, memory, &cfa, value);
            return answer != Answer::found || memory.read(*value, value) ? answer : Answer::none;
        }
        case How::is_expression:
            return evaluate(rule.expression(), registers, memory, &cfa, value);
        case How::undefined:
            if (reg == column::rip) {
                *value = 0;
                return Answer::found;
            }
            break;  // no compiler means it for the others: as libgcc does, they count as kept
        case How::same:
            break;
    }
    if (reg == column::rsp) {
        *value = cfa;
        return Answer::found;
    }
    *value = registers.values[reg];
    return registers.has(reg) ? Answer::found : Answer::missing_register;
}

}  // namespace

void look_up_frame(std::uintptr_t address, std::uintptr_t instruction, FrameKnowledge* knowledge) {
    FrameTables tables;
    switch (find_frame_tables(address, &tables)) {
        case ObjectTables::no_object:
            knowledge->source =
                is_signal_return(instruction) ? Source::signal_call : Source::no_object;
            knowledge->signal_frame = knowledge->source == Source::signal_call;
            return;
        case ObjectTables::none:
            break;
        case ObjectTables::found: {
            FrameDescription description;
            if (find_frame_description(tables, address, &description) &&
                compute_frame_row(description, address, &knowledge->row)) {
                knowledge->source = Source::tables;
                knowledge->signal_frame = description.signal_frame;
                return;
            }
        }
    }
    const bool signal_call = is_signal_return(instruction);
    knowledge->source = signal_call ? Source::signal_call : Source::no_tables;
    knowledge->signal_frame = signal_call;
}

Answer step_by_row(const FrameKnowledge& knowledge, const StackMemory& memory, Registers* registers,
                   std::uintptr_t* cfa) {
    if (knowledge.source == Source::signal_call) {
        return step_to_interrupted(memory, registers, cfa);
    }
    if (knowledge.source != Source::tables) {
        return Answer::none;
    }
    const FrameRow& row = knowledge.row;
    if (const Answer answer = find_cfa(row, memory, *registers, cfa); answer != Answer::found) {
        return answer;
    }
    Registers callers{};
    for (std::size_t reg = 0; reg < column::count; ++reg) {
        std::uintptr_t value = 0;
        const Answer answer =
            find_register(row.registers[reg], reg, *cfa, memory, *registers, &value);
        if (answer == Answer::found) {
            callers.set(reg, value);
        } else if (reg == column::rip || reg == column::rsp || reg == column::rbp) {
            return answer;
        }
    }
    *registers = callers;
    return Answer::found;
}

}  // namespace memlab::profiler::unwind
