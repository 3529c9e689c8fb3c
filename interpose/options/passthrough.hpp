// MEMLAB_PASSTHROUGH: allocations that go to plain CUDA instead of the pool, by size or by who
// makes them. Terms are separated by '|', any of them suffices:
// "size>1GiB|size<=4KiB|site=libnccl.so".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memlab::interpose {

class Passthrough {
  public:
    /// False when `text` is not of the form above; nothing has changed then. Empty text: no terms.
    bool parse(std::string_view text);

    bool empty() const { return sizes_.empty() && sites_.empty(); }

    /// True when `bytes` alone decides for plain CUDA.
    bool takes_size(std::uint64_t bytes) const;

    /// True when there are terms about call sites: they need a stack.
    bool asks_for_site() const { return !sites_.empty(); }

    /// True when an object with this path on the call stack decides for plain CUDA: its file name
    /// contains the term's text.
    bool takes_object(std::string_view path) const;

  private:
    struct SizeRange {
        std::uint64_t smallest;
        std::uint64_t largest;
    };
    std::vector<SizeRange> sizes_;
    std::vector<std::string> sites_;
};

}  // namespace memlab::interpose
