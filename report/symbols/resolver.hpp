// Stacks of a report as readable frames, and the place that stands for each of them.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "report/model.hpp"
#include "report/symbols/frame_choice.hpp"
#include "report/symbols/symbolizer.hpp"

namespace memlab::report {

/// Where something was allocated: one frame of its stack.
struct Place {
    std::string function;  ///< short name; empty when unknown
    std::string file;
    int line = 0;
    std::string module;         ///< path; empty when unknown
    std::uint64_t address = 0;  ///< relative to the module
    std::string through;        ///< library between here and CUDA; empty for a direct call
    std::string problem;        ///< why function or line is unknown
    bool recorded = false;      ///< false: there is no stack

    /// Places that read the same are one place.
    // NOLINTNEXTLINE(modernize-use-nullptr): the 0 it complains of is the compiler's own.
    auto operator<=>(const Place&) const = default;
};

/// Thread-safety: none. `report` and `symbolizer` must outlive it. What frames stand for is kept,
/// and the place of each stack: there are far fewer of both than there are frames in stacks.
class Resolver {
  public:
    /// Names that the report carries (memlab-report symbolize) come before those that binaries
    /// give. Without a symbolizer every frame is module+address.
    Resolver(const Report& report, Symbolizer* symbolizer);

    /// Frames of a stack, the call into CUDA first; inlined functions are frames of their own.
    /// Holds until those of many other stacks were asked for.
    const std::vector<StackFrame>& frames(std::size_t stack);

    const Place& place(std::size_t stack);

    /// The index into frames() of the place; no_frame for an empty stack.
    std::size_t chosen(std::size_t stack);

    /// What one entry of Report::frames stands for, innermost first, added to `out`.
    void add_frames(std::size_t frame, std::vector<StackFrame>& out);

    /// Modules whose file is not the one that ran, as far as frames were asked for.
    std::vector<std::string> changed_modules() const;

  private:
    /// Of a stack: where its place is among places_, and its number in frames().
    struct Chosen {
        const Place* place = nullptr;  ///< null: not known yet
        std::size_t frame = no_frame;
    };
    static constexpr std::size_t max_kept = 1024;

    const Chosen& choose(std::size_t stack);
    void resolve_frame(std::size_t frame, std::vector<StackFrame>& out);
    const std::vector<StackFrame>& of_frame(std::size_t frame);
    void fill(std::size_t stack, std::vector<StackFrame>& out);

    const Report& report_;
    Symbolizer* symbolizer_;
    std::vector<std::optional<std::vector<StackFrame>>> of_frame_;
    std::vector<Chosen> chosen_;
    std::set<Place> places_;
    std::vector<StackFrame> scratch_;
    std::unordered_map<std::size_t, std::vector<StackFrame>> kept_;  ///< frames()
    std::deque<std::size_t> kept_order_;
    std::map<std::string, bool> changed_;
};

}  // namespace memlab::report
