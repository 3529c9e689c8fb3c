// MEMLAB_PASSTHROUGH: rules for allocations that plain CUDA serves instead of the pool, by size or
// by calling library. Terms are separated by '|' and any of them suffices:
// "size>1GiB|size<=4KiB|site=libnccl.so".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memlab::interpose {

class Passthrough {
  public:
    /// False, with nothing changed, when `text` is not of the form above. Empty text: no terms.
    bool parse(std::string_view text);

    bool empty() const { return sizes_.empty() && sites_.empty(); }

    /// True when a size term matches `bytes`.
    bool matches_size(std::uint64_t bytes) const;

    /// True when there are site terms, which need a call stack.
    bool needs_call_stack() const { return !sites_.empty(); }

    /// True when a site term matches an object on the call stack: the path's file name contains the
    /// term's text.
    bool matches_object(std::string_view path) const;

  private:
    struct SizeRange {
        std::uint64_t min;
        std::uint64_t max;
    };
    std::vector<SizeRange> sizes_;
    std::vector<std::string> sites_;
};

}  // namespace memlab::interpose
