// The setting names of the pool's policy in a what-if: PyTorch's where PyTorch has the setting
// (docs.pytorch.org, "Optimizing memory usage with PYTORCH_ALLOC_CONF"), else the members of
// PoolOptions. MEMLAB_... names are handled by the option table.
#pragma once

#include <string>
#include <string_view>

#include "allocator/pool_options.hpp"

namespace memlab::report::whatif {

/// Sets one value; sizes are "64MiB", "512" (bytes). False with `problem` set to one sentence when
/// the name is unknown or the value is invalid.
bool set_pool_option(std::string_view name, std::string_view value, allocator::PoolOptions* options,
                     std::string* problem);

/// The names that set_pool_option() takes, comma-separated, for an error message.
std::string pool_option_names();

}  // namespace memlab::report::whatif
