// Names for the pool's policy, so that a what-if can set any of it: PyTorch's where PyTorch has the
// setting (docs.pytorch.org, "Optimizing memory usage with PYTORCH_ALLOC_CONF"), else PoolOptions'
// own. What the environment calls MEMLAB_... is the option table's, which knows these names
// nothing.
#pragma once

#include <string>
#include <string_view>

#include "allocator/pool_options.hpp"

namespace memlab::whatif {

/// Sets one value; sizes are "64MiB", "512" (bytes). False with `problem` set to one sentence when
/// the name is unknown or the value is not what it takes.
bool set_pool_option(std::string_view name, std::string_view value, allocator::PoolOptions* options,
                     std::string* problem);

/// The names that set_pool_option() takes, comma-separated, for an error message.
std::string pool_option_names();

/// "64MiB", "64 MiB", "64M", "512" (bytes): false when it is none of these or exceeds 64 bits.
bool parse_size(std::string_view text, std::uint64_t* bytes);

}  // namespace memlab::whatif
