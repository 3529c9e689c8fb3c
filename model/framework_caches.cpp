#include "model/framework_caches.hpp"

namespace memlab::model {

namespace {

constexpr FrameworkCache caches[] = {
    {.key = "pytorch",
     .name = "PyTorch",
     .library = "libc10_cuda",
     .switch_name = "PYTORCH_NO_CUDA_MEMORY_CACHING",
     .switch_value = "1",
     .any_value = true,
     .changes = "PyTorch's own memory statistics read 0, it cannot capture CUDA graphs unless "
                "memlab's pool serves them, and CUDA tensors cannot be shared between processes."},
    {.key = "jax",
     .name = "XLA",
     .library = "xla_cuda_plugin",
     .switch_name = "XLA_PYTHON_CLIENT_ALLOCATOR",
     .switch_value = "cuda_async",
     .other_value = "platform",
     .also_name = "XLA_PYTHON_CLIENT_PREALLOCATE",
     .also_value = "false",
     .changes = "JAX does not take 75% of the GPU at its start. Each array is an allocation of the "
                "driver's stream-ordered pool (kind async_pool), or, with platform, a mapping of "
                "its own (kind vmm): memlab records each and pools none."},
    {.key = "tensorflow",
     .name = "TensorFlow",
     .library = "libtensorflow",
     .switch_name = "TF_GPU_ALLOCATOR",
     .switch_value = "cuda_malloc_async",
     .changes = "The driver's stream-ordered pool serves TensorFlow: memlab records each tensor "
                "(kind async_pool) and pools none."},
    {.key = "dali",
     .name = "DALI",
     .library = "libdali",
     .switch_name = "DALI_USE_DEVICE_MEM_POOL",
     .switch_value = "0",
     .changes = "DALI calls cudaMalloc for each buffer and memlab's pool answers."},
    {.key = "cupy",
     .name = "CuPy",
     .library = "/cupy/cuda/memory.",
     .line = "cupy.cuda.set_allocator(None)"},
    {.key = "rmm",
     .name = "RMM",
     .library = "librmm",
     .line = "rmm.reinitialize(pool_allocator=False)"},
};

}  // namespace

std::span<const FrameworkCache> framework_caches() {
    return caches;
}

const FrameworkCache* framework_of_library(std::string_view path) {
    for (const FrameworkCache& cache : caches) {
        if (path.find(cache.library) != std::string_view::npos) {
            return &cache;
        }
    }
    return nullptr;
}

bool switches_off(const FrameworkCache& cache, std::string_view name, std::string_view value) {
    return cache.switch_name != nullptr && name == cache.switch_name &&
           (cache.any_value || value == cache.switch_value ||
            (cache.other_value != nullptr && value == cache.other_value));
}

}  // namespace memlab::model
