// Resolves the stacks of a report to frames, and to the place that represents each stack.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/report.hpp"
#include "report/symbols/frame_choice.hpp"
#include "report/symbols/symbolizer.hpp"

namespace memlab::report {

/// The place in the code that a stack stands for: one frame of it ("place" in JSON).
struct Place {
    std::string function;  ///< short name; empty when unknown
    std::string file;
    int line = 0;
    std::string module;         ///< path; empty when unknown
    std::uint64_t address = 0;  ///< relative to the module
    /// The library between it and CUDA; of an operator's line that stands for what its backward
    /// allocates, the name of that ("AddmmBackward0"). Empty for a direct call.
    std::string through;
    std::string problem;    ///< why function or line is unknown
    bool recorded = false;  ///< false: there is no stack

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        name_fields(self, visit);
        visit.number_or_null({"address", "in the binary, where function and file are unknown"},
                             if_known(self.address));
        visit.text_or_null({"through",
                            "the library between it and CUDA, or the operator whose backward "
                            "allocates; null where it called itself"},
                           self.through);
        visit.text_or_null({"problem", "why function or line is unknown"}, self.problem);
    }
    template <typename Self, typename Visitor>
    static void name_fields(Self& self, Visitor& visit) {
        visit.text_or_null({"function", "short name; null where it is unknown"}, self.function);
        visit.text_or_null({"file", "of the source; null where it is unknown"}, self.file);
        visit.number_or_null({"line", "in that file; null where it is unknown"},
                             if_known(self.line));
        visit.text_or_null({"module", "path of the binary; null where it is unknown"}, self.module);
    }

    /// Places that read the same are one place.
    // NOLINTNEXTLINE(modernize-use-nullptr): the 0 it complains of is the compiler's own.
    auto operator<=>(const Place&) const = default;
};

/// Thread-safety: none. `report` and `symbolizer` must outlive it. Caches resolved frames and the
/// place of each stack: both are far fewer than the frames of all stacks.
class Resolver {
  public:
    /// Names in the report (memlab-report symbolize) take precedence over those from binaries.
    /// Without a symbolizer all other frames are module+address. `skips`: what may not be a place.
    Resolver(const model::Report& report, Symbolizer* symbolizer, FrameSkips skips = {});

    /// Frames of a stack, the call into CUDA first; inlined functions are separate frames. The
    /// reference is valid until `max_cached` other stacks have been requested.
    const std::vector<StackFrame>& frames(std::size_t stack);

    const Place& place(std::size_t stack);

    /// The index into frames() of the place; no_frame for an empty stack.
    std::size_t chosen(std::size_t stack);

    /// Appends the frames (with inlined ones) of an entry of Report::frames, innermost first.
    void add_frames(std::size_t frame, std::vector<StackFrame>& out);

    /// A sentence on the places so far that have no function's name since their binary is not here,
    /// or not the one that ran: which binaries, and what to do. Empty: there are none.
    std::string missing_names() const;

    const model::Report& report() const { return report_; }

  private:
    /// The place of a stack (in places_) and its index in frames().
    struct Chosen {
        const Place* place = nullptr;  ///< null: not chosen yet
        std::size_t frame = no_frame;
    };
    static constexpr std::size_t max_cached = 1024;

    const Chosen& choose(std::size_t stack);
    void resolve_frame(std::size_t frame, std::vector<StackFrame>& out);
    const std::vector<StackFrame>& of_frame(std::size_t frame);
    void fill(std::size_t stack, std::vector<StackFrame>& out);

    const model::Report& report_;
    Symbolizer* symbolizer_;
    FrameSkips skips_;
    std::vector<std::optional<std::vector<StackFrame>>> of_frame_;
    std::vector<Chosen> chosen_;
    std::set<Place> places_;
    std::vector<StackFrame> scratch_;
    std::unordered_map<std::size_t, std::vector<StackFrame>> cache_;  ///< frames()
    std::deque<std::size_t> cache_order_;
};

}  // namespace memlab::report
