// The way from the place that allocated outwards to main, as views of stacks show it.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "report/symbols/resolver.hpp"

namespace memlab::report {

/// Thread-safety: none. Results are kept.
class Calls {
  public:
    /// `resolver` must outlive it. Unless `all_frames`, what every allocation passes is left out:
    /// frames between the place and CUDA, frameworks' allocators and interpreters, and outside of
    /// main the C library's start.
    Calls(Resolver& resolver, bool all_frames) : resolver_(resolver), all_frames_(all_frames) {}

    /// Of a stack, the innermost first; a single Place without `recorded` where there is none.
    const std::vector<Place>& of(std::size_t stack);

  private:
    Place place_of(const StackFrame& frame);

    Resolver& resolver_;
    bool all_frames_;
    std::unordered_map<std::size_t, std::vector<Place>> calls_;
    std::unordered_map<std::string, std::string> short_names_;
};

}  // namespace memlab::report
