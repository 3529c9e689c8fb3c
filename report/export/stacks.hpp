// The call stacks of a report with what each of them weighs: what folded, speedscope, pprof and
// flamegraph write, each in its own way.
//
// Stacks run from the outermost frame to the call into CUDA, and end with the function that the
// program called there (cuMemAlloc_v2). Memory that is no device memory (pinned, managed, imported)
// is below a frame of its own ("[pinned]"), since it is not part of what fills the GPU; so is what
// a report sums up without naming its sites. Where several GPUs were used, each has a frame.
//
// Frames are few where stacks are many, so each frame is resolved and kept once, and stacks are
// built one at a time: a million call sites need no more memory than their report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "report/export/input.hpp"

namespace memlab::exports {

/// A frame as the formats write it; its texts are well-formed UTF-8 of one line.
struct NamedFrame {
    std::string function;  ///< "train::Step::run"; "libfoo.so+0x12" where that is unknown
    std::string file;      ///< empty: unknown
    int line = 0;
    std::uint64_t module = 0;   ///< index into Report::modules; 0: none
    std::uint64_t address = 0;  ///< relative to the module

    /// "train::Step::run (step.cpp:42)": two lines of one function are two frames.
    std::string label() const;
};

/// What a site weighs, of each kind.
struct Weights {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t peak_count = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;

    std::uint64_t of(Weight by) const;
};

struct WeighedStack {
    std::vector<std::uint32_t> frames;  ///< numbers of frames, the outermost first
    Weights weights;
    std::uint64_t device = 0;
    std::string_view kind;  ///< "device", "pinned", ...
};

/// Thread-safety: none. `input` must outlive it.
class Stacks {
  public:
    explicit Stacks(const Input& input);

    /// Calls `visit` for each site that is wanted, in the order of the report.
    void for_each(const std::function<void(const WeighedStack&)>& visit);

    /// Of those that for_each() has shown.
    const NamedFrame& frame(std::uint32_t number) const { return frames_[number]; }
    std::size_t frame_count() const { return frames_.size(); }

  private:
    std::uint32_t add(NamedFrame frame);
    std::uint32_t named(const std::string& name);
    /// The numbers of what a frame of the report stands for, innermost first.
    const std::vector<std::uint32_t>& of_frame(std::size_t frame);

    const Input& input_;
    const report::Report& report_;
    std::vector<bool> wanted_;  ///< by site
    bool many_devices_ = false;
    std::vector<NamedFrame> frames_;
    std::unordered_map<std::string, std::uint32_t> known_;
    std::vector<std::vector<std::uint32_t>> of_frame_;
};

}  // namespace memlab::exports
