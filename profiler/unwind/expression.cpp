#include "profiler/unwind/expression.hpp"

namespace memlab::profiler::unwind {
namespace {

constexpr std::size_t stack_size = 32;
constexpr int max_operations = 1000;

class Evaluation {
  public:
    Evaluation(Bytes expression, const Registers& registers, const StackMemory& memory)
        : first_(expression.begin), reader_(expression), registers_(registers), memory_(memory) {}

    void push(std::uint64_t value) {
        if (depth_ == stack_size) {
            fail();
            return;
        }
        stack_[depth_++] = value;
    }

    Answer run(std::uintptr_t* value) {
        for (int i = 0; !reader_.at_end() && answer_ == Answer::found; ++i) {
            if (i == max_operations) {
                return Answer::none;
            }
            step(reader_.byte());
        }
        if (answer_ == Answer::found) {
            *value = pop();
        }
        return reader_.failed() ? Answer::none : answer_;
    }

  private:
    void fail() { answer_ = Answer::none; }

    std::uint64_t pop() {
        if (depth_ == 0) {
            fail();
            return 0;
        }
        return stack_[--depth_];
    }

    void pick(std::size_t from_top) {
        if (from_top >= depth_) {
            fail();
            return;
        }
        push(stack_[depth_ - 1 - from_top]);
    }

    void push_register(std::uint64_t reg, std::int64_t offset) {
        if (!registers_.has(reg)) {
            answer_ = reg < column::count ? Answer::missing_register : Answer::none;
            return;
        }
        push(registers_.values[reg] + static_cast<std::uint64_t>(offset));
    }

    void read_memory(unsigned size) {
        std::uintptr_t word = 0;
        if ((size != 1 && size != 2 && size != 4 && size != 8) || !memory_.read(pop(), &word)) {
            fail();
            return;
        }
        push(size == 8 ? word : word & ((std::uint64_t{1} << (8 * size)) - 1));
    }

    void step(std::uint8_t operation) {
        if (operation >= 0x30 && operation <= 0x4f) {  // DW_OP_lit0..31
            push(operation - 0x30U);
        } else if (operation >= 0x50 && operation <= 0x6f) {  // DW_OP_reg0..31
            push_register(operation - 0x50U, 0);
        } else if (operation >= 0x70 && operation <= 0x8f) {  // DW_OP_breg0..31
            push_register(operation - 0x70U, reader_.sleb());
        } else if (operation >= 0x1a && operation <= 0x2e && operation != 0x1f &&
                   operation != 0x20 && operation != 0x23 && operation != 0x28) {
            const std::uint64_t second = pop();
            step_two(operation, pop(), second);
        } else {
            step_other(operation);
        }
    }

    void step_two(std::uint8_t operation, std::uint64_t first, std::uint64_t second) {
        const auto signed_first = static_cast<std::int64_t>(first);
        const auto signed_second = static_cast<std::int64_t>(second);
        switch (operation) {
            case 0x1a:  // DW_OP_and
                return push(first & second);
            case 0x1b:  // DW_OP_div
                if (second == 0 || (first == std::uint64_t{1} << 63 && signed_second == -1)) {
                    return fail();
                }
                return push(static_cast<std::uint64_t>(signed_first / signed_second));
            case 0x1c:  // DW_OP_minus
                return push(first - second);
            case 0x1d:  // DW_OP_mod
                return second == 0 ? fail() : push(first % second);
            case 0x1e:  // DW_OP_mul
                return push(first * second);
            case 0x21:  // DW_OP_or
                return push(first | second);
            case 0x22:  // DW_OP_plus
                return push(first + second);
            case 0x24:  // DW_OP_shl
                return push(second < 64 ? first << second : 0);
            case 0x25:  // DW_OP_shr
                return push(second < 64 ? first >> second : 0);
            case 0x26:  // DW_OP_shra
                return push(
                    static_cast<std::uint64_t>(signed_first >> (second < 64 ? second : 63)));
            case 0x27:  // DW_OP_xor
                return push(first ^ second);
            case 0x29:  // DW_OP_eq, ge, gt, le, lt, ne
                return push(first == second ? 1 : 0);
            case 0x2a:
                return push(signed_first >= signed_second ? 1 : 0);
            case 0x2b:
                return push(signed_first > signed_second ? 1 : 0);
            case 0x2c:
                return push(signed_first <= signed_second ? 1 : 0);
            case 0x2d:
                return push(signed_first < signed_second ? 1 : 0);
            case 0x2e:
                return push(first != second ? 1 : 0);
            default:
                return fail();
        }
    }

    void step_other(std::uint8_t operation) {
        switch (operation) {
            case 0x03:  // DW_OP_addr
            case 0x0e:  // DW_OP_const8u, const8s
            case 0x0f:
                return push(reader_.number<std::uint64_t>());
            case 0x06:  // DW_OP_deref
                return read_memory(8);
            case 0x08:  // DW_OP_const1u, 1s, 2u, 2s, 4u, 4s
                return push(reader_.byte());
            case 0x09:
                return push_signed(reader_.number<std::int8_t>());
            case 0x0a:
                return push(reader_.number<std::uint16_t>());
            case 0x0b:
                return push_signed(reader_.number<std::int16_t>());
            case 0x0c:
                return push(reader_.number<std::uint32_t>());
            case 0x0d:
                return push_signed(reader_.number<std::int32_t>());
            case 0x10:  // DW_OP_constu, consts
                return push(reader_.uleb());
            case 0x11:
                return push_signed(reader_.sleb());
            case 0x12:  // DW_OP_dup
                return pick(0);
            case 0x13:  // DW_OP_drop
                pop();
                return;
            case 0x14:  // DW_OP_over
                return pick(1);
            case 0x15:  // DW_OP_pick
                return pick(reader_.byte());
            case 0x16: {  // DW_OP_swap
                const std::uint64_t top = pop();
                const std::uint64_t second = pop();
                push(top);
                return push(second);
            }
            case 0x17: {  // DW_OP_rot
                const std::uint64_t top = pop();
                const std::uint64_t second = pop();
                const std::uint64_t third = pop();
                push(top);
                push(third);
                return push(second);
            }
            case 0x19: {  // DW_OP_abs
                const std::uint64_t value = pop();
                return push(value >> 63 != 0 ? 0 - value : value);
            }
            case 0x1f:  // DW_OP_neg
                return push(0 - pop());
            case 0x20:  // DW_OP_not
                return push(~pop());
            case 0x23:  // DW_OP_plus_uconst
                return push(pop() + reader_.uleb());
            case 0x28: {  // DW_OP_bra
                const std::int64_t distance = reader_.number<std::int16_t>();
                if (pop() != 0) {
                    reader_.jump(first_, distance);
                }
                return;
            }
            case 0x2f: {  // DW_OP_skip
                const std::int64_t distance = reader_.number<std::int16_t>();
                return reader_.jump(first_, distance);
            }
            case 0x90: {  // DW_OP_regx
                return push_register(reader_.uleb(), 0);
            }
            case 0x92: {  // DW_OP_bregx
                const std::uint64_t reg = reader_.uleb();
                return push_register(reg, reader_.sleb());
            }
            case 0x94:  // DW_OP_deref_size
                return read_memory(reader_.byte());
            case 0x96:  // DW_OP_nop
                return;
            default:
                return fail();
        }
    }

    void push_signed(std::int64_t value) { push(static_cast<std::uint64_t>(value)); }

    const std::uintptr_t first_;
    ByteReader reader_;
    const Registers& registers_;
    const StackMemory& memory_;
    Answer answer_ = Answer::found;
    std::size_t depth_ = 0;
    std::uint64_t stack_[stack_size];
};

}  // namespace

Answer evaluate(Bytes expression, const Registers& registers, const StackMemory& memory,
                const std::uintptr_t* initial, std::uintptr_t* value) {
    Evaluation evaluation(expression, registers, memory);
    if (initial != nullptr) {
        evaluation.push(*initial);
    }
    return evaluation.run(value);
}

}  // namespace memlab::profiler::unwind
