// Draws the timeline for a terminal: allocated as a solid area, above it what is freed and not yet
// reusable (active) as a dark shade and what is reserved as a light one, and a line where the whole
// GPU's use is. Below the time axis: marks and failures to point at, and scopes as bars.
//
// A column shows the *largest* value of its span of time, so that a peak of a microsecond is still
// seen: the plot never claims less memory than was in use. Solid and shade differ without colour,
// so that a plot survives a pipe, a log file and a monochrome terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memlab::report {

/// The curves from `time_ns` until the next point.
struct PlotPoint {
    std::uint64_t time_ns = 0;
    std::uint64_t allocated = 0;
    std::uint64_t reserved = 0;
    std::uint64_t active = 0;       ///< 0, or at least allocated
    std::uint64_t device_used = 0;  ///< 0: not known, or not to be drawn
};

/// Something that lasts, drawn as a bar in the row of its lane.
struct PlotSpan {
    std::uint64_t begin_ns = 0;
    std::uint64_t end_ns = 0;
    std::string name;  ///< printable; shown where the bar has room
    std::size_t lane = 0;
};

/// Something to point at below the time axis: a mark ("1".."9", "+") or an OOM ("X").
struct PlotNote {
    std::uint64_t time_ns = 0;
    char symbol = '^';
};

struct PlotOptions {
    int width = 80;   ///< columns in all, labels included; at least 40
    int height = 10;  ///< rows of the area itself; at least 2
    bool ascii = false;
    std::uint64_t from_ns = 0;  ///< where the picture begins
    /// Escape sequences put around the two areas; empty: none.
    std::string_view allocated_color;
    std::string_view reserved_color;
    std::string_view reset;
};

/// Lines without trailing newlines or spaces; empty when there is nothing to draw. `points` are in
/// order of time, none before options.from_ns; `end_ns` is where the last value ends. `spans` may
/// reach beyond the picture; a lane has a row, where bars that share a column are drawn as one.
std::vector<std::string> plot_timeline(const std::vector<PlotPoint>& points, std::uint64_t end_ns,
                                       const std::vector<PlotNote>& notes,
                                       const PlotOptions& options,
                                       const std::vector<PlotSpan>& spans = {});

}  // namespace memlab::report
