#include "profiler/unwind/frame_row.hpp"

namespace memlab::profiler::unwind {
namespace {

using How = RegisterRule::How;

// Compilers nest one remembered state, hand-written code rarely two. Each takes 300 bytes of a
// possibly small stack.
constexpr std::size_t max_remembered = 4;

class Program {
  public:
    Program(const FrameDescription& description, std::uintptr_t address, FrameRow& row)
        : description_(description),
          address_(address),
          location_(description.code.begin),
          row_(row),
          initial_(row) {}

    bool run() {
        if (!run(description_.initial_program)) {
            return false;
        }
        initial_ = row_;
        return run(description_.program);
    }

  private:
    bool run(Bytes program) {
        ByteReader reader(program);
        while (!reader.at_end() && location_ <= address_) {
            if (!step(reader)) {
                return false;
            }
        }
        return !reader.failed();
    }

    void set(std::uint64_t reg, How how, std::int64_t offset) {
        if (reg < column::count) {
            row_.registers[reg] = {how, 0, offset};
        }
    }

    void set_expression(ByteReader& reader, How how) {
        const std::uint64_t reg = reader.uleb();
        const RegisterRule rule = expression(reader, how);
        if (reg < column::count) {
            row_.registers[reg] = rule;
        }
    }

    void restore(std::uint64_t reg) {
        if (reg < column::count) {
            row_.registers[reg] = initial_.registers[reg];
        }
    }

    void advance(std::uint64_t distance) { location_ += distance * description_.code_alignment; }

    std::int64_t factored(std::int64_t offset) const {
        return static_cast<std::int64_t>(static_cast<std::uint64_t>(offset) *
                                         static_cast<std::uint64_t>(description_.data_alignment));
    }

    static RegisterRule expression(ByteReader& reader, How how) {
        const Bytes bytes = reader.take(reader.uleb());
        if (bytes.end - bytes.begin > UINT32_MAX) {
            reader.fail();
        }
        return {how, static_cast<std::uint32_t>(bytes.end - bytes.begin),
                static_cast<std::int64_t>(bytes.begin)};
    }

    bool step(ByteReader& reader) {
        const std::uint8_t instruction = reader.byte();
        const std::uint8_t low = instruction & 0x3fU;
        switch (instruction >> 6) {
            case 1:
                advance(low);
                return true;
            case 2:
                set(low, How::at_offset, factored(static_cast<std::int64_t>(reader.uleb())));
                return true;
            case 3:
                restore(low);
                return true;
            default:
                return step_other(instruction, reader);
        }
    }

    bool step_other(std::uint8_t instruction, ByteReader& reader) {
        switch (instruction) {
            case 0x00:  // DW_CFA_nop
                return true;
            case 0x01:  // DW_CFA_set_loc
                location_ = read_encoded_pointer(reader, description_.pointer_encoding, 0);
                return true;
            case 0x02:  // DW_CFA_advance_loc1, 2, 4
                advance(reader.byte());
                return true;
            case 0x03:
                advance(reader.number<std::uint16_t>());
                return true;
            case 0x04:
                advance(reader.number<std::uint32_t>());
                return true;
            case 0x05: {  // DW_CFA_offset_extended
                const std::uint64_t reg = reader.uleb();
                set(reg, How::at_offset, factored(static_cast<std::int64_t>(reader.uleb())));
                return true;
            }
            case 0x06:  // DW_CFA_restore_extended
                restore(reader.uleb());
                return true;
            case 0x07:  // DW_CFA_undefined
                set(reader.uleb(), How::undefined, 0);
                return true;
            case 0x08:  // DW_CFA_same_value
                set(reader.uleb(), How::same, 0);
                return true;
            case 0x09: {  // DW_CFA_register
                const std::uint64_t reg = reader.uleb();
                set(reg, How::in_register, static_cast<std::int64_t>(reader.uleb()));
                return true;
            }
            case 0x0a:  // DW_CFA_remember_state
                if (remembered_ == max_remembered) {
                    return false;
                }
                stack_[remembered_++] = row_;
                return true;
            case 0x0b:  // DW_CFA_restore_state
                if (remembered_ == 0) {
                    return false;
                }
                row_ = stack_[--remembered_];
                return true;
            case 0x0c:  // DW_CFA_def_cfa
                define_cfa(reader.uleb());
                row_.cfa_offset = static_cast<std::int64_t>(reader.uleb());
                return true;
            case 0x0d:  // DW_CFA_def_cfa_register
                define_cfa(reader.uleb());
                return true;
            case 0x0e:  // DW_CFA_def_cfa_offset
                row_.cfa_offset = static_cast<std::int64_t>(reader.uleb());
                return true;
            case 0x0f:  // DW_CFA_def_cfa_expression
                row_.cfa = expression(reader, How::is_expression);
                return true;
            case 0x10:  // DW_CFA_expression
                set_expression(reader, How::at_expression);
                return true;
            case 0x11: {  // DW_CFA_offset_extended_sf
                const std::uint64_t reg = reader.uleb();
                set(reg, How::at_offset, factored(reader.sleb()));
                return true;
            }
            case 0x12:  // DW_CFA_def_cfa_sf
                define_cfa(reader.uleb());
                row_.cfa_offset = factored(reader.sleb());
                return true;
            case 0x13:  // DW_CFA_def_cfa_offset_sf
                row_.cfa_offset = factored(reader.sleb());
                return true;
            case 0x14: {  // DW_CFA_val_offset
                const std::uint64_t reg = reader.uleb();
                set(reg, How::is_offset, factored(static_cast<std::int64_t>(reader.uleb())));
                return true;
            }
            case 0x15: {  // DW_CFA_val_offset_sf
                const std::uint64_t reg = reader.uleb();
                set(reg, How::is_offset, factored(reader.sleb()));
                return true;
            }
            case 0x16:  // DW_CFA_val_expression
                set_expression(reader, How::is_expression);
                return true;
            case 0x2e:  // DW_CFA_GNU_args_size: only matters to exception handlers
                reader.uleb();
                return true;
            case 0x2f: {  // DW_CFA_GNU_negative_offset_extended
                const std::uint64_t reg = reader.uleb();
                set(reg, How::at_offset, factored(static_cast<std::int64_t>(0 - reader.uleb())));
                return true;
            }
            default:
                return false;
        }
    }

    void define_cfa(std::uint64_t reg) {
        row_.cfa = {How::in_register, 0, static_cast<std::int64_t>(reg)};
    }

    const FrameDescription& description_;
    const std::uintptr_t address_;
    std::uintptr_t location_;
    FrameRow& row_;
    FrameRow initial_;
    std::size_t remembered_ = 0;
    FrameRow stack_[max_remembered];
};

}  // namespace

bool compute_frame_row(const FrameDescription& description, std::uintptr_t address, FrameRow* row) {
    if (description.return_column != column::rip) {
        return false;
    }
    *row = FrameRow{};
    return Program(description, address, *row).run();
}

}  // namespace memlab::profiler::unwind
