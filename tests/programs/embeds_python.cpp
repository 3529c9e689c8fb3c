// An application that loads a Python library of its own long after its first use of CUDA, and ends
// the interpreter and starts it again.
//
// usage: embeds_python LIBPYTHON STARTS
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace {

bool allocate(std::size_t bytes) {
    CUdeviceptr pointer = 0;
    return cuMemAlloc_v2(&pointer, bytes) == CUDA_SUCCESS;
}

// Line 3 allocates, line 5 calls it, line 6 is the module's.
constexpr const char* script =
    "import ctypes\n"
    "def inner(size):\n"
    "    ctypes.CDLL('libcuda.so.1').cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), size)\n"
    "def outer(size):\n"
    "    inner(size)\n"
    "outer(ctypes.c_size_t(%d))\n";

}  // namespace

int main(int argc, char** argv) {
    CUcontext context = nullptr;
    if (argc != 3 || cuInit(0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS || !allocate(1000)) {
        return 1;
    }
    void* python = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (python == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    auto* const begin = reinterpret_cast<void (*)(int)>(dlsym(python, "Py_InitializeEx"));
    auto* const run = reinterpret_cast<int (*)(const char*)>(dlsym(python, "PyRun_SimpleString"));
    auto* const end = reinterpret_cast<int (*)()>(dlsym(python, "Py_FinalizeEx"));
    for (int starts = std::atoi(argv[2]); starts > 0; --starts) {
        char text[1024];
        std::snprintf(text, sizeof(text), script, 1000 * (1 + starts));
        begin(0);
        if (run(text) != 0 || end() != 0) {
            return 3;
        }
    }
    return allocate(1000) ? 0 : 4;
}
