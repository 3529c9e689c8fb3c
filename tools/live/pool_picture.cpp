#include "tools/live/pool_picture.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "report/text/units.hpp"

namespace memlab::tools {
namespace {

using model::PoolDocument;
using report::format_bytes;

constexpr std::size_t bytes_width = 12;
constexpr std::size_t count_width = 8;
constexpr std::size_t before_picture = 2 * bytes_width + count_width + 2;
constexpr std::size_t least_cells = 16;

std::string right(const std::string& text, std::size_t width) {
    return std::string(width - std::min(width, text.size()), ' ') + text;
}

std::string row(const std::string& size, const std::string& free, const std::string& blocks,
                const std::string& last) {
    return right(size, bytes_width) + right(free, bytes_width) + right(blocks, count_width) + "  " +
           last;
}

/// With fewer cells than it came with: each is what is most important of its part.
std::string drawn(const std::string& picture, std::size_t cells, bool ascii) {
    cells = std::min(cells, picture.size());
    std::string out;
    for (std::size_t i = 0; i < cells; ++i) {
        const std::size_t begin = i * picture.size() / cells;
        const std::size_t end = std::max((i + 1) * picture.size() / cells, begin + 1);
        const std::string_view part = std::string_view(picture).substr(begin, end - begin);
        const bool active = part.find('#') != std::string_view::npos;
        const bool pending = part.find('o') != std::string_view::npos;
        if (ascii) {
            out += active ? '#' : pending ? 'o' : '.';
        } else {
            out += active ? "█" : pending ? "▒" : "·";
        }
    }
    return out;
}

}  // namespace

std::vector<std::string> pool_picture(const PoolDocument::Gpu& gpu, std::size_t width, bool ascii) {
    std::vector<std::string> lines;
    const std::size_t cells =
        width > before_picture + least_cells ? width - before_picture : least_cells;
    lines.push_back(row(
        "size", "free", "blocks",
        ascii ? "# active, o freed and pending, . free" : "█ active  ▒ freed and pending  · free"));
    std::uint64_t shown_free = 0;
    for (const PoolDocument::Segment& each : gpu.segments) {
        const std::uint64_t used = std::min(each.bytes, each.active_bytes + each.pending_bytes);
        shown_free += each.bytes - used;
        lines.push_back(row(format_bytes(each.bytes), format_bytes(each.bytes - used),
                            report::format_count(each.block_count),
                            drawn(each.picture, cells, ascii)));
    }
    const std::uint64_t shown = gpu.segments.size() + gpu.empty_count;
    if (gpu.segment_count > shown) {
        const std::uint64_t in_use = gpu.active_bytes + gpu.pending_bytes + gpu.empty_bytes;
        const std::uint64_t free = gpu.reserved_bytes - std::min(gpu.reserved_bytes, in_use);
        lines.push_back(
            row("", format_bytes(free - std::min(free, shown_free)), "",
                "[" + report::format_plural(gpu.segment_count - shown, "segment") + " more]"));
    }
    if (gpu.empty_count != 0) {
        lines.push_back(row(format_bytes(gpu.empty_bytes), format_bytes(gpu.empty_bytes), "0",
                            "[" + report::format_plural(gpu.empty_count, "empty segment") + "]"));
    }
    return lines;
}

}  // namespace memlab::tools
