// PYTORCH_ALLOC_CONF (formerly PYTORCH_CUDA_ALLOC_CONF): PyTorch's settings of the cache that
// memlab's pool replaces when PYTORCH_NO_CUDA_MEMORY_CACHING is set. They then apply to the pool.
// Keys: https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace memlab::interpose {

/// Translates `conf` into memlab's options, with their values as text:
/// "max_split_size_mb:512,expandable_segments:True" gives {MEMLAB_MAX_SPLIT_SIZE_MB, 512},
/// {MEMLAB_BACKEND, vmm}. Keys without a counterpart are dropped.
std::vector<std::pair<std::string, std::string>> parse_pytorch_conf(std::string_view conf);

}  // namespace memlab::interpose
