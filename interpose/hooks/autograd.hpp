// PyTorch's backward graph, as far as allocations have to do with it: whose line an allocation of
// backward gets (hooks/autograd_nodes.hpp).
#pragma once

#include <cstdint>

#include "profiler/stack_capture.hpp"

namespace memlab::interpose {

/// One allocation of PyTorch's. Thread-safe; takes no lock, but that of the loader's list once and
/// after libraries were unloaded.
class Backward {
  public:
    Backward();

    /// For whom the allocation is made, if backward makes it.
    profiler::CallOrigin origin() const { return {begin_, bytes_, forward_stack}; }

    /// It was recorded with this stack.
    void allocated(std::uint32_t stack) const;

  private:
    static std::uint32_t forward_stack() noexcept;

    std::uintptr_t begin_;  ///< of the engine's evaluate_function()
    std::uintptr_t bytes_;
    std::uint64_t (*peek_)();  ///< the thread's next sequence number
};

}  // namespace memlab::interpose
