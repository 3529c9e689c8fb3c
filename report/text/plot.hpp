// Draws a timeline for a terminal: allocated memory as a solid area, above it active memory (freed
// but not yet reusable) in dark shade and reserved memory in light shade, and the use of the whole
// GPU as a line. Below the time axis: marks, failures, and scopes as bars.
//
// A column shows the *maximum* over its time span, so that a peak of a microsecond is visible and
// the plot never shows less memory than was in use. Areas differ without colour, so that a plot can
// be piped, logged and shown on a monochrome terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memlab::report {

/// Values of the curves from `time_ns` until the next point.
struct PlotPoint {
    std::uint64_t time_ns = 0;
    std::uint64_t allocated = 0;
    std::uint64_t reserved = 0;
    std::uint64_t active = 0;       ///< 0, or at least `allocated`
    std::uint64_t device_used = 0;  ///< 0: unknown, or not drawn
};

/// An interval of time, drawn as a bar in the row of its lane.
struct PlotSpan {
    std::uint64_t begin_ns = 0;
    std::uint64_t end_ns = 0;
    std::string name;  ///< printable; in the bar, or left of the row if no bar has room for it
    std::size_t lane = 0;
};

/// A point in time, shown below the axis: a mark ("1".."9", "+") or an OOM ("X").
struct PlotNote {
    std::uint64_t time_ns = 0;
    char symbol = '^';
};

struct PlotOptions {
    int width = 80;   ///< columns in all, labels included; at least 40
    int height = 10;  ///< rows of the area itself; at least 2
    bool ascii = false;
    std::uint64_t from_ns = 0;  ///< start of the time axis
    /// Escape sequences put around the two areas; empty: none.
    std::string_view allocated_color;
    std::string_view reserved_color;
    std::string_view reset;
};

/// One of the areas that lie on each other, lowest first.
struct PlotLayer {
    std::string_view glyph;
    std::string_view color;  ///< an escape sequence; empty: none
};

/// Bytes of each layer from `time_ns` until the next point.
struct PlotStack {
    std::uint64_t time_ns = 0;
    std::vector<std::uint64_t> bytes;
};

/// Lines without trailing newlines or spaces; empty if there is nothing to draw. `points` are in
/// order of time, none before options.from_ns; `end_ns` is the end of the last value. `spans` may
/// extend beyond the time axis; each lane is one row, where bars that share a column are merged.
std::vector<std::string> plot_timeline(const std::vector<PlotPoint>& points, std::uint64_t end_ns,
                                       const std::vector<PlotNote>& notes,
                                       const PlotOptions& options,
                                       const std::vector<PlotSpan>& spans = {});

/// The same of layers. A column shows the point of its time with the highest sum; a cell the layer
/// that covers its middle, the lowest cell the largest layer where it would be empty.
std::vector<std::string> plot_stacks(const std::vector<PlotStack>& points,
                                     const std::vector<PlotLayer>& layers, std::uint64_t end_ns,
                                     const std::vector<PlotNote>& notes, const PlotOptions& options,
                                     const std::vector<PlotSpan>& spans = {});

}  // namespace memlab::report
