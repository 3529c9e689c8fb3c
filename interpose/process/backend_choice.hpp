// Chooses where the pool's memory comes from, for MEMLAB_BACKEND=auto, when memlab starts.
//
// Mapped memory. Segments from cuMemAlloc where an option of segments is set
// (MEMLAB_MAX_SPLIT_SIZE_MB, MEMLAB_GC_THRESHOLD), where another preloaded library tracks
// cuMemAlloc only (driver.hpp: mapped_memory_passes_wrapper_by), and where a library is loaded that
// gives the program's memory to hardware in ways that were not tried with mapped memory: RDMA,
// libfabric, UCX, GDRCopy, Mooncake, GPUDirect Storage, NVSHMEM. The last two come with every
// PyTorch and are loaded even if unused: they do not count beside it.
#pragma once

#include "interpose/options/option_table.hpp"

namespace memlab::interpose {

/// Whether a library that needs segments is loaded now. Takes the lock of the loader's list: call
/// without any of memlab's locks.
bool segments_are_needed();

/// Settles MEMLAB_BACKEND=auto, in both the settings and the values that are recorded.
void choose_backend(LoadedSettings* loaded, bool segments_needed);

}  // namespace memlab::interpose
