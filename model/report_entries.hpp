// The tables of a report that name code: call sites, call stacks, frames, Python frames, modules.
// Sites, stacks and frames grow with the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/report_shape.hpp"

namespace memlab::model {

/// The program's names of one site's memory, the largest first.
inline constexpr int max_site_labels = 16;

struct Lifetime {
    std::uint64_t min = 0;
    std::uint64_t median = 0;
    std::uint64_t max = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("min", self.min);
        visit.number("median", self.median);
        visit.number("max", self.max);
    }
    bool operator==(const Lifetime&) const = default;
};

/// A name that the program gave to allocations of a site.
struct SiteLabel {
    std::string name = {};
    std::uint64_t count = 0;  ///< allocations that were given this name
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text("name", self.name);
        visit.number("count", self.count);
        visit.number("live_count", self.live_count);
        visit.number("live_bytes", self.live_bytes);
    }
    bool operator==(const SiteLabel&) const = default;
};

/// What of a site was freed by a garbage collector of the program's language.
struct Collected {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t at_peak_count = 0;  ///< of these, live at the device's allocated peak
    std::uint64_t at_peak_bytes = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("count", self.count);
        visit.number("bytes", self.bytes);
        visit.number("at_peak_count", self.at_peak_count);
        visit.number("at_peak_bytes", self.at_peak_bytes);
    }
    bool operator==(const Collected&) const = default;
};

struct Site {
    std::uint64_t device = 0;
    std::string kind = {};
    std::string api = {};
    std::size_t stack = 0;  ///< index into Report::stacks; 0: none
    std::uint64_t count = 0;
    std::uint64_t requested_bytes = 0;
    std::uint64_t bytes = 0;
    std::uint64_t peak_bytes = 0;     ///< the site's own peak
    std::uint64_t peak_time_ns = 0;   ///< 0 if the report does not say
    std::uint64_t at_peak_count = 0;  ///< live at the device's allocated peak
    std::uint64_t at_peak_bytes = 0;
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;
    std::uint64_t temporaries = 0;
    std::uint64_t freed_elsewhere = 0;  ///< 0 if the report does not say
    std::uint64_t segment_count = 0;
    std::uint64_t segment_bytes = 0;
    std::optional<Lifetime> lifetime = {};
    std::vector<SiteLabel> labels = {};  ///< most live bytes at the end first
    std::optional<Collected> collected = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.position("id");
        visit.number("device", self.device);
        visit.text("kind", self.kind);
        visit.text("api", self.api);
        visit.index("stack", self.stack, Table::stacks);
        visit.number("count", self.count);
        visit.number("requested_bytes", self.requested_bytes);
        visit.number("bytes", self.bytes);
        visit.number("peak_bytes", self.peak_bytes);
        visit.extra("peak_time_ns", self.peak_time_ns);
        visit.number("at_peak_count", self.at_peak_count);
        visit.number("at_peak_bytes", self.at_peak_bytes);
        visit.number("live_count", self.live_count);
        visit.number("live_bytes", self.live_bytes);
        visit.number("temporaries", self.temporaries);
        visit.extra("freed_elsewhere", self.freed_elsewhere);
        visit.number("segment_count", self.segment_count);
        visit.number("segment_bytes", self.segment_bytes);
        visit.object_or_null("lifetime_ns", self.lifetime);
        visit.list_if_any("labels", self.labels);
        visit.object_if_any("collected", self.collected);
    }
    bool operator==(const Site&) const = default;
};

struct Stack {
    std::vector<std::size_t> frames =
        {};  ///< indexes into Report::frames, the call into CUDA first
    bool truncated = false;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.indexes("frames", self.frames, Table::frames);
        visit.flag("truncated", self.truncated);
    }
    bool operator==(const Stack&) const = default;
};

/// A function and source line, as found by the symbolizer or stored in a report. Empty members are
/// unknown.
struct SourceFrame {
    std::string function = {};  ///< demangled, with its parameters
    std::string file = {};      ///< absolute if the debug information says so
    int line = 0;
    bool inlined = false;  ///< inlined into the function of the next frame

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text("function", self.function);
        visit.text("file", self.file);
        visit.source_line("line", self.line);
        visit.flag("inlined", self.inlined);
    }
    bool operator==(const SourceFrame&) const = default;
};

struct Frame {
    std::size_t module = 0;     ///< index into Report::modules; 0: unknown
    std::uint64_t address = 0;  ///< in the module; in a report that was read 0 without one
    std::size_t python = 0;     ///< index into Report::python_frames; 0: a native frame
    /// Found by memlab-report symbolize, innermost first; empty: nothing found, or not symbolized.
    std::vector<SourceFrame> source = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.index("module", self.module, Table::modules);
        visit.number("address", self.address);
        visit.index_if_any("python", self.python, Table::python_frames);
        visit.list_if_any("source", self.source);
    }
    bool operator==(const Frame&) const = default;
};

/// A line of Python code on a call stack.
struct PythonFrame {
    std::string function = {};  ///< qualified name
    std::string file = {};
    std::uint32_t line = 0;        ///< 0: unknown
    std::uint32_t first_line = 0;  ///< of the function; 0: unknown

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text("function", self.function);
        visit.text("file", self.file);
        visit.source_line("line", self.line);
        visit.source_line("first_line", self.first_line);
    }
    bool operator==(const PythonFrame&) const = default;
};

/// A loaded object; the addresses of its symbols are those in the process less `bias`.
struct Module {
    std::string path = {};
    std::string build_id = {};
    std::uint64_t bias = 0;
    std::uint64_t start = 0;
    std::uint64_t end = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text("path", self.path);
        visit.text("build_id", self.build_id);
        visit.extra("bias", self.bias);
        visit.extra("start", self.start);
        visit.extra("end", self.end);
    }
    bool operator==(const Module&) const = default;
};

}  // namespace memlab::model
