#include "tools/doctor/known_preloads.hpp"

#include <array>

namespace memlab::tools {

namespace {

constexpr const char* host_malloc =
    "The host's malloc: it does not affect memlab, whose own memory does not come from it.";

// As published with each; none was run beside memlab.
constexpr std::array known_preloads = std::to_array<KnownPreload>({
    {"libcuinterpose", "the CUDA interposer of NVIDIA's Dynamo Snapshot",
     "Around a checkpoint it makes shared, mapped and multicast memory again, and for that follows "
     "the driver's calls for mapped memory, memlab's own too if it is behind memlab. Not tried "
     "together: MEMLAB_BACKEND=classic keeps memlab's pool out of mapped memory."},
    {"libnccl-checkpoint-shim", "NCCL's checkpoint shim",
     "It stands before the NCCL functions that make and end communicators. Between "
     "ncclCheckpointPrepare and ncclCheckpointRestore what NCCL gives back and takes again is "
     "recorded as frees and allocations of NCCL's."},
    {"libvgpu", "HAMi-core, which limits a container's GPU memory",
     "An allocation beyond CUDA_DEVICE_MEMORY_LIMIT fails although the GPU has free memory, and "
     "cuMemGetInfo and NVML answer by that limit: so do memlab's figures of the device."},
    {"libvglfaker", "VirtualGL", "For OpenGL; it does not affect CUDA or memlab."},
    {"libdlfaker", "VirtualGL", "It wraps dlopen for OpenGL; it does not affect CUDA or memlab."},
    {"libgefaker", "VirtualGL", "For OpenGL; it does not affect CUDA or memlab."},
    {"libtcmalloc", "gperftools' malloc", host_malloc},
    {"libprofiler.so", "gperftools' CPU profiler", "It samples the processor, memlab's code too."},
    {"libjemalloc", "jemalloc", host_malloc},
    {"libmimalloc", "mimalloc", host_malloc},
});

}  // namespace

const KnownPreload* known_preload(std::string_view path) {
    const std::size_t slash = path.rfind('/');
    const std::string_view file = slash == std::string_view::npos ? path : path.substr(slash + 1);
    for (const KnownPreload& each : known_preloads) {
        if (file.starts_with(each.prefix)) {
            return &each;
        }
    }
    return nullptr;
}

}  // namespace memlab::tools
