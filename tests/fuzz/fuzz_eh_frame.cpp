// libFuzzer: any bytes as an object's .eh_frame_hdr and .eh_frame, then as an expression. Nothing
// is read outside of them, nothing loops forever, and what comes out is about the address asked
// for.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "profiler/unwind/expression.hpp"
#include "profiler/unwind/frame_row.hpp"
#include "profiler/unwind/frame_step.hpp"
#include "profiler/unwind/frame_tables.hpp"
#include "profiler/unwind/rules.hpp"
#include "profiler/unwind/stack_memory.hpp"

using namespace memlab::profiler::unwind;

namespace {

void require(bool condition) {
    if (!condition) {
        __builtin_trap();
    }
}

bool is_within(const Bytes& inner, const Bytes& outer) {
    return inner.begin >= outer.begin && inner.end <= outer.end && inner.begin <= inner.end;
}

// A stack for the expressions to read, and registers that point into it.
struct Frame {
    std::uintptr_t words[64] = {};
    Registers registers{};

    Frame() {
        for (std::size_t i = 0; i < 64; ++i) {
            words[i] = reinterpret_cast<std::uintptr_t>(&words[(i * 7) % 64]);
        }
        for (const std::size_t reg : {column::rbp, column::rsp, column::rip}) {
            registers.set(reg, reinterpret_cast<std::uintptr_t>(&words[reg]));
        }
    }
};

void try_row(UnwindInfo& info, const Bytes& bytes) {
    FrameRow& row = info.row;
    if (row.cfa.how == RegisterRule::How::is_expression) {
        require(is_within(row.cfa.expression(), bytes));
    }
    for (const RegisterRule& rule : row.registers) {
        if (rule.how == RegisterRule::How::at_expression ||
            rule.how == RegisterRule::How::is_expression) {
            require(is_within(rule.expression(), bytes));
        }
    }
    const Rule rule = Rule::from_row(row, info.signal_frame);
    require(rule.kind() != Rule::Kind::none);
    require(rule.kind() != Rule::Kind::plain ||
            (rule.distance() >= 8 && rule.saved_frame_pointer() <= rule.distance()));
    Frame frame;
    const StackMemory memory(reinterpret_cast<std::uintptr_t>(frame.words));
    std::uintptr_t cfa = 0;
    step_by_row(info, memory, &frame.registers, &cfa);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 8) {
        return 0;
    }
    // A copy of its exact size, so that a byte too many is seen.
    const std::vector<std::uint8_t> image(data + 4, data + size);
    const auto begin = reinterpret_cast<std::uintptr_t>(image.data());
    const Bytes bytes{begin, begin + image.size()};
    std::uint16_t where[2];
    std::memcpy(where, data, sizeof where);
    FrameTables tables;
    tables.segments[tables.segment_count++] = bytes;
    tables.header = begin + where[0] % 16;
    // The tables are relative to themselves, so what they describe lies near them.
    const std::uintptr_t address = begin + where[1] - 1024U;
    UnwindInfo info{};
    info.source = UnwindInfo::Source::tables;
    FrameDescription description;
    for (const bool by_header : {true, false}) {
        if (by_header
                ? find_frame_description(tables, address, &description)
                : read_frame_description(tables, begin + where[0] % image.size(), &description)) {
            require(!by_header || description.code.contains(address));
            require(is_within(description.program, bytes));
            require(is_within(description.initial_program, bytes));
            info.signal_frame = description.signal_frame;
            if (compute_frame_row(description, address, &info.row)) {
                try_row(info, bytes);
            }
        }
    }
    // Programs and expressions of their own: no table keeps the fuzzer out.
    description = {};
    description.code = {address, address + 4096};
    description.initial_program = {begin, begin};
    description.program = bytes;
    description.data_alignment = -8;
    if (compute_frame_row(description, address + where[0] % 256, &info.row)) {
        try_row(info, bytes);
    }
    const Frame frame;
    const StackMemory memory(reinterpret_cast<std::uintptr_t>(frame.words));
    std::uintptr_t value = 0;
    evaluate(bytes, frame.registers, memory, &address, &value);
    return 0;
}
