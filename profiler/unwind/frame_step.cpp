#include "profiler/unwind/frame_step.hpp"

#include <sys/ucontext.h>

#include <array>
#include <cstddef>
#include <utility>

#include "profiler/unwind/executable_memory.hpp"
#include "profiler/unwind/modules.hpp"

namespace memlab::profiler::unwind {
namespace {

using How = RegisterRule::How;
using Source = UnwindInfo::Source;

// mov $15, %rax; syscall: rt_sigreturn. Its trampoline has no tables in programs that install
// handlers without the C library.
bool is_signal_return(std::uintptr_t instruction) {
    std::uintptr_t first = 0;
    std::uintptr_t second = 0;
    return read_code(instruction, &first) && read_code(instruction + 1, &second) &&
           (first & 0xffU) == 0x48 && second == 0x050f0000000fc0c7U;
}

// DWARF's register numbers and the kernel's indices in the signal context.
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

// The signal context starts at the stack pointer after the handler's return.
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

bool is_return_address(std::uintptr_t address) {
    const AddressKind kind = classify_address(address - 1);
    return kind != AddressKind::data && follows_call(address) &&
           (kind == AddressKind::code || is_executable(address - 1));
}

// Simulates the instructions from rip to a return, which may only tear the frame down. False at any
// other instruction.
bool run_to_return(const StackMemory& memory, Registers* registers, std::uintptr_t* cfa) {
    constexpr int max_instructions = 24;
    std::uintptr_t next = registers->values[column::rip];
    std::uintptr_t sp = registers->values[column::rsp];
    std::uintptr_t bp = registers->values[column::rbp];
    for (int i = 0; i < max_instructions; ++i) {
        std::uintptr_t word = 0;
        if (!read_code(next, &word)) {
            return false;
        }
        const auto byte = [word](unsigned at) { return static_cast<std::uint8_t>(word >> 8 * at); };
        const auto pop = [&memory, &sp](std::uintptr_t* value) {
            const bool read = memory.read(sp, value);
            sp += sizeof *value;
            return read;
        };
        std::uintptr_t value = 0;
        if (byte(0) == 0xc3 || (byte(0) == 0xf3 && byte(1) == 0xc3) || byte(0) == 0xc2) {  // ret
            *cfa = sp + sizeof value;
            if (sp < registers->values[column::rsp] || !pop(&value) || !is_return_address(value)) {
                return false;
            }
            registers->set(column::rip, value);
            registers->set(column::rsp, sp);
            registers->set(column::rbp, bp);
            return true;
        }
        if ((word & 0xffffffU) == 0xc48348) {  // add $x, %rsp
            sp += static_cast<std::uintptr_t>(static_cast<std::int8_t>(byte(3)));
            next += 4;
        } else if ((word & 0xffffffU) == 0xc48148) {  // the same, four bytes
            sp += static_cast<std::uintptr_t>(static_cast<std::int32_t>(word >> 24));
            next += 7;
        } else if ((word & 0xffffffffU) == 0x24648d48) {  // lea x(%rsp), %rsp
            sp += static_cast<std::uintptr_t>(static_cast<std::int8_t>(byte(4)));
            next += 5;
        } else if (byte(0) == 0xc9) {  // leave
            sp = bp;
            if (!pop(&bp)) {
                return false;
            }
            next += 1;
        } else if (byte(0) == 0x5d) {  // pop %rbp
            if (!pop(&bp)) {
                return false;
            }
            next += 1;
        } else if (byte(0) >= 0x58 && byte(0) <= 0x5f && byte(0) != 0x5c) {  // of another register
            sp += sizeof value;
            next += 1;
        } else if (byte(0) == 0x41 && byte(1) >= 0x58 && byte(1) <= 0x5f) {  // of r8 to r15
            sp += sizeof value;
            next += 2;
        } else if (byte(0) == 0x90) {  // nop
            next += 1;
        } else if ((word & 0xffffU) == 0xc031 || (word & 0xffffU) == 0xc033) {  // xor %eax, %eax
            next += 2;
        } else if ((word & 0xffffffU) == 0x77f8c5) {  // vzeroupper
            next += 3;
        } else {
            return false;
        }
    }
    return false;
}

// rbp points to the caller's saved rbp, which the return address follows.
bool follow_frame_pointer(const StackMemory& memory, Registers* registers, std::uintptr_t* cfa) {
    const std::uintptr_t bp = registers->values[column::rbp];
    std::uintptr_t callers = 0;
    std::uintptr_t back = 0;
    if (bp < registers->values[column::rsp] || bp % sizeof bp != 0 || bp + 2 * sizeof bp < bp ||
        !memory.read(bp, &callers) || !memory.read(bp + sizeof bp, &back) ||
        !is_return_address(back)) {
        return false;
    }
    *cfa = bp + 2 * sizeof bp;
    registers->set(column::rip, back);
    registers->set(column::rsp, *cfa);
    registers->set(column::rbp, callers);
    return true;
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
            break;  // as in libgcc: other registers count as unchanged
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

void find_unwind_info(std::uintptr_t address, std::uintptr_t instruction, UnwindInfo* info) {
    FrameTables tables;
    info->signal_frame = false;
    if (find_frame_tables(address, &tables) == ObjectTables::found) {
        FrameDescription description;
        if (find_frame_description(tables, address, &description) &&
            compute_frame_row(description, address, &info->row)) {
            info->source = Source::tables;
            info->signal_frame = description.signal_frame;
            return;
        }
    }
    if (is_signal_return(instruction)) {
        info->source = Source::signal_call;
        info->signal_frame = true;
        return;
    }
    switch (classify_address(address)) {
        case AddressKind::code:
            info->source = Source::no_tables;
            return;
        case AddressKind::data:
            info->source = Source::no_code;
            return;
        case AddressKind::no_object:
            break;
    }
    const bool called = address != instruction;
    info->source = (!called || follows_call(instruction)) && is_executable(address)
                       ? Source::no_object
                       : Source::no_code;
}

Answer step_by_row(const UnwindInfo& info, const StackMemory& memory, Registers* registers,
                   std::uintptr_t* cfa) {
    if (info.source == Source::signal_call) {
        return step_to_interrupted(memory, registers, cfa);
    }
    if (info.source != Source::tables) {
        return Answer::none;
    }
    const FrameRow& row = info.row;
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

Answer step_without_tables(const StackMemory& memory, Registers* registers, std::uintptr_t* cfa) {
    const Registers before = *registers;
    registers->known = 1U << column::rip | 1U << column::rsp | 1U << column::rbp;
    if (before.has(column::rbp) &&
        (run_to_return(memory, registers, cfa) || follow_frame_pointer(memory, registers, cfa))) {
        return Answer::found;
    }
    *registers = before;
    return Answer::none;
}

}  // namespace memlab::profiler::unwind
