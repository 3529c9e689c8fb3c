// The weighted call stacks of a report: the input of folded, speedscope and pprof.
//
// Stacks run from the outermost frame to the call into CUDA and end with the CUDA function that was
// called (cuMemAlloc_v2). Memory other than device memory (pinned, managed, imported) is below a
// frame such as "[pinned]", since it does not fill the GPU; so is memory that a report has without
// its sites. Where several GPUs were used, each has a root frame.
//
// Each frame is resolved and stored once, and stacks are built one at a time: a million call sites
// need no more memory than their report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "report/exports/input.hpp"
#include "report/views/site_stats.hpp"

namespace memlab::report::exports {

/// A frame for output; its texts are one line of well-formed UTF-8.
struct NamedFrame {
    std::string function;  ///< "train::Step::run"; "libfoo.so+0x12" when unknown
    std::string file;      ///< empty: unknown
    int line = 0;
    std::uint64_t module = 0;   ///< index into Report::modules; 0: none
    std::uint64_t address = 0;  ///< relative to the module

    /// "train::Step::run (step.cpp:42)": frames differ by line.
    std::string label() const;
};

/// The weights of a site.
struct Weights {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t peak_count = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;

    std::uint64_t of(Weight by) const;
};

struct WeightInfo {
    const char* name;   ///< in --by
    const char* title;  ///< of a profile
    std::uint64_t Weights::*figure;
};
/// In the order of Weight.
inline constexpr WeightInfo weight_infos[] = {
    {"peak", "held at the peak", &Weights::peak_bytes},
    {"bytes", "allocated in all", &Weights::bytes},
    {"count", "allocations", &Weights::count},
    {"live", "never freed", &Weights::live_bytes},
};
constexpr const WeightInfo& info_of(Weight weight) {
    return weight_infos[static_cast<std::size_t>(weight)];
}

struct WeighedStack {
    std::vector<std::uint32_t> frames;  ///< numbers of frames, the outermost first
    Weights weights;
    std::uint64_t device = 0;
    std::string_view kind;  ///< "device", "pinned", ...
};

/// The frames of an export by number: equal ones are one. Thread-safety: none.
class FrameTable {
  public:
    enum class Equal : std::uint8_t {
        exactly,
        /// Function and file name are the same: those of two recordings, whose lines and folders
        /// differ. What is ignored is not kept.
        by_function_and_file,
    };
    explicit FrameTable(Equal equal = Equal::exactly) : equal_(equal) {}

    std::uint32_t add(NamedFrame frame);
    /// The frame of a name that is no function's.
    std::uint32_t named(const std::string& name);

    const NamedFrame& operator[](std::uint32_t number) const { return frames_[number]; }
    std::size_t size() const { return frames_.size(); }

  private:
    Equal equal_;
    std::vector<NamedFrame> frames_;
    std::unordered_map<std::string, std::uint32_t> known_;
};

/// The call stacks of a report as frames of a table. Thread-safety: none. All that it is made of
/// must outlive it.
class StackFrames {
  public:
    StackFrames(const model::Report& report, report::Resolver& resolver, FrameTable& table)
        : report_(report), resolver_(resolver), table_(table), of_frame_(report.frames.size()) {}

    /// Appends the frames of an entry of Report::stacks, the outermost first.
    void append(std::uint64_t stack, std::vector<std::uint32_t>& to);

  private:
    /// The frames (with inlined ones) of a frame of the report, innermost first.
    const std::vector<std::uint32_t>& of_frame(std::size_t frame);

    const model::Report& report_;
    report::Resolver& resolver_;
    FrameTable& table_;
    std::vector<std::vector<std::uint32_t>> of_frame_;
};

/// Thread-safety: none. `input` and `table` must outlive it.
class Stacks {
  public:
    /// With `roots` each GPU has a root frame.
    Stacks(const Input& input, FrameTable& table, bool roots);

    /// Calls `visit` for each selected site, in the order of the report.
    void for_each(const std::function<void(const WeighedStack&)>& visit);

  private:
    const Input& input_;
    const model::Report& report_;
    FrameTable& table_;
    StackFrames frames_;
    std::vector<bool> wanted_;         ///< by site
    std::set<std::uint64_t> devices_;  ///< those of the chosen level
    /// Kinds of memory with a peak of their own, by device.
    std::map<std::pair<std::uint64_t, std::string>, ViewedMemory> kinds_;
    bool roots_;
};

/// Whether several of the selected GPUs were used, by what it is compared with, too.
bool has_several_devices(const Input& input);

/// Which frames of `input` and of what it is compared with are the same: two moments of a recording
/// have the same lines, two recordings need not.
FrameTable::Equal equality(const Input& input);

}  // namespace memlab::report::exports
