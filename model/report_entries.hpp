// The tables of a report that name code: call sites, call stacks, frames, Python frames, modules.
// Sites, stacks and frames grow with the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/report_shape.hpp"
#include "trace/event.hpp"

namespace memlab::model {

/// The program's names of one site's memory, the largest first; with more, the last is other_names,
/// with the sum of the others.
inline constexpr int max_site_labels = 16;

struct Lifetime {
    std::uint64_t min = 0;
    std::uint64_t median = 0;
    std::uint64_t max = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"min", "the shortest"}, self.min);
        visit.number({"median", "from a histogram: within 6.25 % of the true one"}, self.median);
        visit.number({"max", "the longest"}, self.max);
    }
    bool operator==(const Lifetime&) const = default;
};

/// A name that the program gave to allocations of a site.
struct SiteLabel {
    std::string name = {};
    std::uint64_t count = 0;
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;
    std::string detail = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text({"name", "the program's name"}, self.name);
        visit.number({"count", "allocations with this name"}, self.count);
        visit.number({"live_count", "of these held at the end"}, self.live_count);
        visit.number({"live_bytes", "their sum"}, self.live_bytes);
        visit.text_if_any(
            {"detail", "what each of them holds (float32[512, 512]), if all hold the same"},
            self.detail);
    }
    bool operator==(const SiteLabel&) const = default;
};

/// What of a site was freed by a garbage collector of the program's language.
struct Collected {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t at_peak_count = 0;
    std::uint64_t at_peak_bytes = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"count", "how many"}, self.count);
        visit.number({"bytes", "their sum"}, self.bytes);
        visit.number(
            {"at_peak_count",
             "the part of them that was held when the device's allocated curve was at its peak"},
            self.at_peak_count);
        visit.number({"at_peak_bytes", "their sum"}, self.at_peak_bytes);
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
    std::uint64_t peak_bytes = 0;
    std::uint64_t peak_time_ns = 0;  ///< 0 if the report does not say
    std::uint64_t at_peak_count = 0;
    std::uint64_t at_peak_bytes = 0;
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;
    std::uint64_t temporaries = 0;
    std::uint64_t freed_elsewhere = 0;  ///< 0 if the report does not say
    std::uint64_t segment_count = 0;
    std::uint64_t segment_bytes = 0;
    std::optional<Lifetime> lifetime = {};
    std::vector<SiteLabel> labels = {};
    std::optional<Collected> collected = {};

    /// What an entry of Report::nn_modules held of a call site.
    struct Part {
        std::size_t of = 0;          ///< index into Report::sites
        std::size_t nn_modules = 0;  ///< index into Report::nn_modules

        bool operator==(const Part&) const = default;
    };
    std::optional<Part> part = {};  ///< in no file: made for views that tell nn.Modules apart

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.position({"id", "its own index"});
        visit.number({"device", "the index of the device"}, self.device);
        visit.text({"kind", "the kind of memory", NameOf<trace::MemoryKind>{}}, self.kind);
        visit.text({"api",
                    "the function that the program called: the driver's (`cuMemAlloc_v2`), or, "
                    "where CUPTI told (`MEMLAB_CUPTI`), the runtime's around it (`cudaMalloc`)"},
                   self.api);
        visit.index({"stack", "the call stack"}, self.stack, Table::stacks);
        visit.number({"count", "allocations over the whole run"}, self.count);
        visit.number({"requested_bytes", "what was asked for"}, self.requested_bytes);
        visit.number({"bytes", "what served them"}, self.bytes);
        visit.number({"peak_bytes", "the most that it held at once"}, self.peak_bytes);
        visit.extra({"peak_time_ns", "when first"}, self.peak_time_ns);
        visit.number(
            {"at_peak_count", "allocations held when the device's allocated curve was at its peak"},
            self.at_peak_count);
        visit.number({"at_peak_bytes", "their sum"}, self.at_peak_bytes);
        visit.number({"live_count", "allocations held at the end"}, self.live_count);
        visit.number({"live_bytes", "their sum"}, self.live_bytes);
        visit.number({"temporaries", "freed before their thread allocated anything else"},
                     self.temporaries);
        visit.extra({"freed_elsewhere",
                     "freed by another thread than the one that allocated "
                     "them"},
                    self.freed_elsewhere);
        visit.number({"segment_count", "segments that the pool took from the driver for it"},
                     self.segment_count);
        visit.number({"segment_bytes", "their sum"}, self.segment_bytes);
        visit.object_or_null({"lifetime_ns", "of those that ended; null when none did"},
                             self.lifetime);
        visit.list_if_any({"labels",
                           "the program's names for its allocations, most bytes live at the end "
                           "first; with more, the last is `(other names)`, the sum of all others",
                           AtMost{max_site_labels}},
                          self.labels);
        visit.object_if_any(
            {"collected", "freed while the thread was in Python's garbage collector"},
            self.collected);
    }
    bool operator==(const Site&) const = default;
};

struct Stack {
    std::vector<std::size_t> frames =
        {};  ///< indexes into Report::frames, the call into CUDA first
    bool truncated = false;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.indexes({"frames", "the call into CUDA first"}, self.frames, Table::frames);
        visit.flag({"truncated",
                    "its outer frames are missing: deeper than `MEMLAB_STACK_DEPTH`, not "
                    "found, or folded beyond `MEMLAB_MAX_STACKS`"},
                   self.truncated);
    }
    bool operator==(const Stack&) const = default;
};

/// A function and source line, as found by the symbolizer or stored in a report. Empty members are
/// unknown.
struct SourceFrame {
    std::string function = {};
    std::string file = {};  ///< absolute if the debug information says so
    int line = 0;
    bool inlined = false;  ///< inlined into the function of the next frame

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text({"function", "demangled, with its parameters; empty: unknown"}, self.function);
        visit.text({"file", "the source file; empty: unknown"}, self.file);
        visit.source_line({"line", "the line in it; 0: unknown"}, self.line);
        visit.flag({"inlined", "its code lies within the next one's function"}, self.inlined);
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
        visit.index({"module", "where the code lies"}, self.module, Table::modules);
        visit.number({"address",
                      "the return address less the module's bias, or the plain address where the "
                      "module is unknown"},
                     self.address);
        visit.index_if_any({"python",
                            "this is a frame of Python, in place of the interpreter's C "
                            "function that ran it; `module` and `address` are 0"},
                           self.python, Table::python_frames);
        visit.list_if_any({"source",
                           "put there by `memlab-report symbolize`, so that the report can be read "
                           "where the binaries are not: the innermost inlined function first. "
                           "Readers take these before they look for the binary"},
                          self.source);
    }
    bool operator==(const Frame&) const = default;
};

/// A line of Python code on a call stack.
struct PythonFrame {
    std::string function = {};
    std::string file = {};
    std::uint32_t line = 0;        ///< 0: unknown
    std::uint32_t first_line = 0;  ///< of the function; 0: unknown

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text({"function", "the qualified name"}, self.function);
        visit.text({"file", "as the code object has it"}, self.file);
        visit.source_line({"line", "the line that was running; 0: unknown"}, self.line);
        visit.source_line({"first_line", "of the function"}, self.first_line);
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
        visit.text({"path", "the file"}, self.path);
        visit.text(
            {"build_id", "lower-case hexadecimal; empty when it has none", Matching{"^[0-9a-f]*$"}},
            self.build_id);
        visit.extra({"bias", "what its addresses in the process are above those of its symbols"},
                    self.bias);
        visit.extra({"start", "where it begins in the process"}, self.start);
        visit.extra({"end", "where it ends"}, self.end);
    }
    bool operator==(const Module&) const = default;
};

}  // namespace memlab::model
