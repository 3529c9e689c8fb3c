// The call chains shown in views of stacks: from the allocating place outwards to main.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "report/symbols/resolver.hpp"

namespace memlab::report {

/// Computes and caches call chains. Thread-safety: none.
class CallChains {
  public:
    /// `resolver` must outlive this. Unless `all_frames`, leaves out frames that every allocation
    /// has: those between the place and CUDA, allocators, containers and interpreters
    /// (allocator_frames.hpp), what --skip names, and the C library's startup code outside of main.
    /// Of an allocation of PyTorch's backward at a line of the forward, the operator's backward and
    /// the marker come first.
    CallChains(Resolver& resolver, bool all_frames)
        : resolver_(resolver), all_frames_(all_frames) {}

    /// The chain of a stack, innermost first; a single Place without `recorded` if it has no
    /// frames.
    const std::vector<Place>& chain(std::size_t stack);
    /// Frees what chain() keeps of the stack: of a million stacks that is much.
    void forget(std::size_t stack) { chains_.erase(stack); }

    /// Of each of the resolver's frames() of a stack, whether the chain has it.
    std::vector<bool> shown(std::size_t stack);

  private:
    Place make_place(const StackFrame& frame);

    Resolver& resolver_;
    bool all_frames_;
    std::unordered_map<std::size_t, std::vector<Place>> chains_;
    std::unordered_map<std::string, std::string> short_names_;
};

}  // namespace memlab::report
