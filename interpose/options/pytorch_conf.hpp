// PYTORCH_ALLOC_CONF (before: PYTORCH_CUDA_ALLOC_CONF): PyTorch's settings of the cache that
// memlab's pool replaces when PYTORCH_NO_CUDA_MEMORY_CACHING is set. Whoever tuned that cache finds
// the tuning in force here. Keys:
// https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace memlab::interpose {

/// The options of memlab that stand for `conf`'s keys, with their values as text:
/// "max_split_size_mb:512,expandable_segments:True" is {MEMLAB_MAX_SPLIT_SIZE_MB, 512},
/// {MEMLAB_BACKEND, vmm}. Keys that mean nothing to a pool of device memory are left out.
std::vector<std::pair<std::string, std::string>> options_of_pytorch_conf(std::string_view conf);

}  // namespace memlab::interpose
