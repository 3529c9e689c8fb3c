#include "report/html/memory_map.hpp"

#include <algorithm>
#include <vector>

#include "report/pool_view/layout.hpp"
#include "trace/aggregate/aggregator.hpp"

namespace memlab::report {

namespace {

/// Blocks and gaps smaller than `cell` join their neighbours.
std::vector<History::Part> parts_of(const SegmentLayout& segment, std::uint64_t cell) {
    std::vector<History::Part> parts;
    bool open = false;  // the last part may grow
    for (const BlockLayout& block : segment.blocks) {
        const std::uint64_t offset = block.address - segment.address;
        const bool small = block.size < cell;
        if (open && small) {
            History::Part& last = parts.back();
            if (offset - (last.offset + last.length) < cell) {
                last.length = offset + block.size - last.offset;
                last.site = last.site == block.site ? last.site : History::Part::several;
                last.nn_modules = last.nn_modules == block.nn_modules ? last.nn_modules : 0;
                if (last.label != block.label || last.label_detail != block.label_detail) {
                    last.label_detail.clear();
                }
                last.label = last.label == block.label ? last.label : std::string();
                continue;
            }
        }
        parts.push_back(
            {offset, block.size, block.site, block.nn_modules, block.label, block.label_detail});
        open = small;
    }
    return parts;
}

}  // namespace

void MapMaker::add(const trace::Aggregator& state, std::uint32_t device, std::size_t parts,
                   History::Map& map) {
    const std::vector<SegmentLayout> segments = snapshot_segments(state, device);
    std::size_t blocks = 0;
    std::uint64_t bytes = 0;
    for (const SegmentLayout& segment : segments) {
        blocks += segment.blocks.size();
        bytes += segment.size;
    }
    const std::uint64_t cell = blocks > parts ? bytes / parts + 1 : 0;
    merged_below_ = std::max(merged_below_, cell);
    for (const SegmentLayout& segment : segments) {
        map.segments.push_back({device, segment.address, segment.size, parts_of(segment, cell)});
    }
}

}  // namespace memlab::report
