// The JSON of an interval that a running program asks for (memlab.h, memlab_interval_end): its
// figures, and who held the memory at its peak. Call sites are not symbolized: of native frames it
// has module and address, of Python's all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/field_name.hpp"
#include "trace/aggregate/intervals.hpp"

namespace memlab::model {

struct IntervalDocument {
    static constexpr const char* format = "memlab-interval";
    static constexpr std::uint64_t known_version = 1;

    /// Of a call site.
    struct Frame {
        std::string function = {};
        std::string file = {};
        std::uint64_t line = 0;
        bool library = false;
        std::string module = {};
        std::optional<std::uint64_t> address = {};

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.text_if_any({"function", "of Python"}, self.function);
            visit.text_if_any({"file", "of Python, as the interpreter has it"}, self.file);
            visit.number_if_any({"line", "in that file"}, self.line);
            visit.flag_if_any({"library", "the file is one of an installed package"}, self.library);
            visit.text_if_any({"module", "path of a native frame's binary"}, self.module);
            visit.number_if_known({"address", "return address in that binary"}, self.address);
        }
    };
    /// Allocations of one kind from one call stack by one function on one device.
    struct Site {
        std::uint64_t bytes = 0;
        std::uint64_t count = 0;
        std::uint64_t gpu = 0;
        std::string allocator = {};
        std::string kind = {};
        std::string api = {};
        bool library = false;
        std::vector<Frame> frames = {};

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number({"bytes", "that it held"}, self.bytes);
            visit.number({"count", "of the allocations that were these"}, self.count);
            visit.number({"gpu", "its index in the program"}, self.gpu);
            visit.text_if_any({"allocator",
                               "the program's allocator that handed it out, such as PyTorch's "
                               "cache"},
                              self.allocator);
            visit.text({"kind", "of memory"}, self.kind);
            visit.text({"api", "the function that was called"}, self.api);
            visit.flag_if_any(
                {"library",
                 "a library allocated it for itself and keeps it: cuBLAS, cuDNN and NCCL with "
                 "their handles, PyTorch's CUDA code as workspaces of cuBLAS"},
                self.library);
            visit.list({"frames", "of the call stack, the call into CUDA first"}, self.frames);
        }
    };
    /// Of frames' binaries, those that have one.
    struct BuildId {
        std::string module = {};
        std::string build_id = {};

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.text({"module", "path of a binary of `frames`"}, self.module);
            visit.text({"build_id", "lower-case hexadecimal", Matching{"^[0-9a-f]+$"}},
                       self.build_id);
        }
    };
    struct Gpu {
        std::uint64_t gpu = 0;
        std::string name = {};

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number({"gpu", "its index in the program"}, self.gpu);
            visit.text({"name", "its model"}, self.name);
        }
    };
    struct NnModule {
        std::optional<std::string> name = {};
        std::optional<std::string> class_name = {};
        std::uint64_t bytes = 0;
        std::uint64_t count = 0;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.text_or_null({"name", "its qualified name; null: none was given yet"}, self.name);
            visit.text_or_null({"class", "its class; null: unknown"}, self.class_name);
            visit.number({"bytes", "held by it, without nn.Modules inside"}, self.bytes);
            visit.number({"count", "of the allocations that were these"}, self.count);
        }
    };
    trace::IntervalTotals totals = {};
    bool at_least = false;
    std::vector<Site> sites = {};
    std::vector<NnModule> nn_modules = {};
    std::vector<Gpu> gpus = {};
    std::vector<BuildId> build_ids = {};

    /// Empty: it has none.
    std::string build_id(const std::string& module) const {
        const auto found = std::find_if(build_ids.begin(), build_ids.end(),
                                        [&](const BuildId& each) { return each.module == module; });
        return found == build_ids.end() ? std::string() : found->build_id;
    }

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.constant({"format", "the format's name"}, format);
        visit.constant({"version", "of the format"}, known_version);
        auto& totals = self.totals;
        visit.number({"begin_ns", "since the process started"}, totals.begin_ns);
        visit.number({"end_ns", "the same"}, totals.end_ns);
        visit.number({"begin_bytes", "allocated when it began"}, totals.begin_bytes);
        visit.number({"end_bytes", "allocated when it ended"}, totals.end_bytes);
        visit.number({"peak_bytes", "the most that was allocated in it"}, totals.peak_bytes);
        visit.number({"peak_time_ns", "when that was reached first"}, totals.peak_time_ns);
        visit.number({"allocated_count", "allocations in it"}, totals.allocated_count);
        visit.number({"allocated_bytes", "of these"}, totals.allocated_bytes);
        visit.number({"freed_count", "frees in it"}, totals.freed_count);
        visit.number({"freed_bytes", "of these"}, totals.freed_bytes);
        visit.number({"library_count",
                      "allocations by libraries for themselves, kept at least until the end of "
                      "the interval"},
                     totals.library_count);
        visit.number({"library_bytes", "of these"}, totals.library_bytes);
        visit.number({"own_growth_bytes", "the highest growth over `begin_bytes`, without these"},
                     totals.own_growth_bytes);
        visit.flag({"at_least",
                    "memory may be missing from these figures: the report says why (`missed`)"},
                   self.at_least);
        visit.list({"sites", "who held the memory at the peak, largest first"}, self.sites);
        visit.number({"other_sites", "sites that held memory then and are not listed"},
                     totals.at_peak.other_sites);
        visit.number({"other_count", "allocations of these"}, totals.at_peak.other_count);
        visit.number({"other_bytes", "of these"}, totals.at_peak.other_bytes);
        visit.list(
            {"nn_modules", "PyTorch's nn.Modules that held memory at the peak, largest first"},
            self.nn_modules);
        visit.number({"begin_moment", "allocations in the process until it started"},
                     totals.begin_moment);
        visit.number({"peak_moment", "until the peak"}, totals.peak_moment);
        visit.number({"end_moment", "until it ended"}, totals.end_moment);
        visit.list({"gpus", "the GPUs used until then"}, self.gpus);
        visit.list({"build_ids", "by which a binary is known to be the one that ran"},
                   self.build_ids);
    }
};

/// May throw std::bad_alloc.
IntervalDocument interval_document(const trace::Aggregator& from,
                                   const trace::IntervalTotals& totals);
/// May throw std::bad_alloc.
std::string to_json(const IntervalDocument& document);

}  // namespace memlab::model
