#include "report/symbols/allocator_frames.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "report/text/names.hpp"

namespace memlab::report {

namespace {

enum class Where : std::uint8_t {
    anywhere,   ///< a function, or the class or namespace that it is in; ending in *: how it begins
    header,     ///< the last part of a qualified name, in a header
    torch,      ///< as anywhere, in PyTorch's libraries and headers
    arrayfire,  ///< as anywhere, in ArrayFire's libraries
    binary,     ///< how the binary's file name begins
    path,       ///< part of the path of a Python file or of a binary
    call_layer,  ///< a method in torch/nn/modules/module.py
};

struct Entry {
    Where where;
    std::string_view text;
};

constexpr std::array table = {
    // The C++ library: containers, smart pointers, function and invoke run what others give them.
    Entry{Where::anywhere, "std"},
    Entry{Where::anywhere, "__gnu_cxx"},
    // CUDA's C++ libraries: device_vector, temporary storage, memory resources. A namespace cuda of
    // a program's own is no plumbing.
    Entry{Where::anywhere, "thrust"},
    Entry{Where::anywhere, "cub"},
    Entry{Where::anywhere, "cuda::std"},
    Entry{Where::anywhere, "cuda::mr"},
    Entry{Where::anywhere, "cuda::__*"},
    Entry{Where::anywhere, "cuda::buffer"},
    Entry{Where::anywhere, "cuda::device_buffer"},
    Entry{Where::anywhere, "cuda::device_memory_pool*"},
    Entry{Where::anywhere, "cuda::managed_memory_pool*"},
    Entry{Where::anywhere, "cuda::pinned_memory_pool*"},
    Entry{Where::anywhere, "cuda::experimental"},
    // RMM: device_buffer, device_uvector and the resources behind them. cudf is who uses them.
    Entry{Where::anywhere, "rmm"},
    // Functions that are nothing but an allocation, where others include them from.
    Entry{Where::anywhere, "operator new*"},
    Entry{Where::header, "operator new"},
    Entry{Where::header, "operator new[]"},
    Entry{Where::header, "allocate"},
    Entry{Where::header, "do_allocate"},
    // PyTorch's layers between an operator and its memory: allocators, empty tensors, dispatch.
    Entry{Where::anywhere, "c10::cuda::CUDACachingAllocator"},
    Entry{Where::torch, "c10"},
    Entry{Where::torch, "at::detail"},
    Entry{Where::torch, "at::(anonymous namespace)"},
    Entry{Where::torch, "at::meta"},
    Entry{Where::torch, "at::TensorBase"},
    Entry{Where::torch, "at::TensorIterator*"},
    Entry{Where::torch, "at::empty*"},
    Entry{Where::torch, "at::_ops::empty*"},
    Entry{Where::torch, "at::_ops::resize*"},
    Entry{Where::torch, "at::native::allocate_*"},
    Entry{Where::torch, "at::native::create_out*"},
    Entry{Where::torch, "at::native::empty*"},
    Entry{Where::torch, "at::native::maybe_resize*"},
    Entry{Where::torch, "at::native::resize*"},
    // The same in Python: how an nn.Module and operators are called.
    Entry{Where::call_layer, "_call_impl"},
    Entry{Where::call_layer, "_wrapped_call_impl"},
    Entry{Where::path, "/torch/_ops.py"},
    Entry{Where::path, "/torch/utils/_contextlib.py"},
    Entry{Where::path, "/torch/autograd/function.py"},
    // Kokkos: views and the allocations behind them.
    Entry{Where::anywhere, "Kokkos::Impl"},
    Entry{Where::anywhere, "Kokkos::View"},
    Entry{Where::anywhere, "Kokkos::DualView"},
    Entry{Where::anywhere, "Kokkos::CudaSpace"},
    Entry{Where::anywhere, "Kokkos::CudaUVMSpace"},
    Entry{Where::anywhere, "Kokkos::CudaHostPinnedSpace"},
    Entry{Where::anywhere, "Kokkos::kokkos_malloc"},
    Entry{Where::anywhere, "Kokkos::resize"},
    Entry{Where::anywhere, "Kokkos::realloc"},
    // ArrayFire: arrays and their memory manager.
    Entry{Where::anywhere, "af"},
    Entry{Where::anywhere, "arrayfire"},
    Entry{Where::arrayfire, "common"},
    Entry{Where::arrayfire, "cuda"},
    Entry{Where::arrayfire, "memory"},
    // CuPy: arrays, its pool, and its wrappers of CUDA.
    Entry{Where::path, "/cupy/_core/"},
    Entry{Where::path, "/cupy/cuda/memory"},
    Entry{Where::path, "/cupy_backends/"},
    // numba: its driver layer.
    Entry{Where::path, "/numba/cuda/cudadrv/"},
    // JAX: what it leaves out of its own tracebacks, and the allocators of its runtime.
    Entry{Where::path, "/jax/_src/"},
    Entry{Where::path, "/jaxlib/"},
    Entry{Where::anywhere, "stream_executor"},
    Entry{Where::anywhere, "tsl::BFCAllocator"},
    // The Python interpreter: it runs what the Python frames say.
    Entry{Where::binary, "python"},
    Entry{Where::binary, "libpython"},
};

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

bool starts_with_one(std::string_view text, std::initializer_list<std::string_view> prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(),
                       [text](std::string_view prefix) { return text.starts_with(prefix); });
}

/// Whether the function is `entry`, or in the class or namespace of that name.
bool is_in(std::string_view name, std::string_view entry) {
    if (entry.ends_with('*')) {
        return name.starts_with(entry.substr(0, entry.size() - 1));
    }
    return name.starts_with(entry) &&
           (name.size() == entry.size() || name.substr(entry.size()).starts_with("::"));
}

bool is_header(std::string_view file) {
    const std::size_t dot = file.rfind('.');
    const std::string_view extension =
        dot == std::string_view::npos ? std::string_view() : file.substr(dot);
    static constexpr std::array<std::string_view, 7> all = {".h",   ".hpp", ".cuh", ".hh",
                                                            ".hxx", ".inl", ".ipp"};
    return std::find(all.begin(), all.end(), extension) != all.end();
}

bool is_python_plumbing(const StackFrame& frame) {
    return std::any_of(table.begin(), table.end(), [&frame](const Entry& entry) {
        if (entry.where == Where::path) {
            return contains(frame.file, entry.text);
        }
        return entry.where == Where::call_layer &&
               frame.file.ends_with("/torch/nn/modules/module.py") &&
               std::string_view(frame.function).substr(frame.function.rfind('.') + 1) == entry.text;
    });
}

}  // namespace

bool is_allocator_frame(const StackFrame& frame) {
    if (frame.python) {
        return is_python_plumbing(frame);
    }
    const std::string module = base_name(frame.module);
    const std::string name = bare_function_name(frame.function);
    const bool in_torch =
        starts_with_one(module, {"libtorch", "libc10"}) || contains(frame.file, "/torch/include/");
    const bool in_arrayfire = starts_with_one(module, {"libaf.", "libafcuda."});
    const bool in_header = is_header(frame.file);
    return std::any_of(table.begin(), table.end(), [&](const Entry& entry) {
        switch (entry.where) {
            case Where::anywhere:
                return is_in(name, entry.text);
            case Where::header:
                return in_header && name.size() > entry.text.size() + 2 &&
                       name.ends_with(entry.text) &&
                       name.substr(0, name.size() - entry.text.size()).ends_with("::");
            case Where::torch:
                return in_torch && is_in(name, entry.text);
            case Where::arrayfire:
                return in_arrayfire && is_in(name, entry.text);
            case Where::binary:
                return module.starts_with(entry.text);
            case Where::path:
                return contains(frame.module, entry.text);
            case Where::call_layer:
                break;  // Python's
        }
        return false;
    });
}

}  // namespace memlab::report
