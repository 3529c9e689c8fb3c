#include "profiler/python/loop_code.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "profiler/unwind/frame_tables.hpp"
#include "profiler/unwind/modules.hpp"

namespace memlab::profiler::python {
namespace {

// Debian's loop has 229 such branches to its second part. Bytes that only look like one lead
// anywhere.
constexpr std::size_t fewest_branches = 8;

/// A jcc with 32 bits of distance: 0f 8x. Functions are not called by it.
constexpr std::size_t branch_bytes = 6;

struct Target {
    unwind::Bytes code;
    std::size_t branches;
};

}  // namespace

LoopCode find_loop_code(std::uintptr_t loop) {
    unwind::FrameTables tables;
    unwind::FrameDescription description;
    if (unwind::find_frame_tables(loop, &tables) != unwind::ObjectTables::found ||
        !unwind::find_frame_description(tables, loop, &description)) {
        return {};
    }
    LoopCode result;
    unwind::Bytes& first = result.parts[0];
    first = description.code;
    first.end = std::min(first.end, tables.from(loop).end);
    Target targets[16] = {};
    for (std::uintptr_t at = first.begin; at + branch_bytes <= first.end; ++at) {
        const auto* const bytes = reinterpret_cast<const unsigned char*>(at);
        if (bytes[0] != 0x0f || (bytes[1] & 0xf0) != 0x80) {
            continue;
        }
        std::int32_t distance = 0;
        std::memcpy(&distance, bytes + 2, sizeof distance);
        const std::uintptr_t to = at + branch_bytes + static_cast<std::uintptr_t>(distance);
        if (first.contains(to)) {
            continue;
        }
        auto* target = std::find_if(
            std::begin(targets), std::end(targets),
            [to](const Target& each) { return each.branches == 0 || each.code.contains(to); });
        if (target == std::end(targets)) {
            continue;
        }
        if (target->branches == 0) {
            if (!unwind::find_frame_description(tables, to, &description)) {
                continue;
            }
            target->code = description.code;
        }
        ++target->branches;
    }
    const Target& most =
        *std::max_element(std::begin(targets), std::end(targets),
                          [](const Target& a, const Target& b) { return a.branches < b.branches; });
    if (most.branches >= fewest_branches) {
        result.parts[1] = most.code;
    }
    return result;
}

}  // namespace memlab::profiler::python
