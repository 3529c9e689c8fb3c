"""A matrix product by cuBLAS, called with ctypes and nothing else; then a child that counts the files it inherits, which
neither CUDA nor NVML may add to. Exit code 77 when there is no cuBLAS."""

from __future__ import annotations

import ctypes
import glob
import site
import subprocess
import sys
import time


def library(name: str) -> ctypes.CDLL | None:
    places = [name, f"/usr/local/cuda/lib64/{name}"]
    for packages in [*site.getsitepackages(), site.getusersitepackages()]:
        places += sorted(glob.glob(f"{packages}/nvidia/*/lib/{name}"))
    for place in places:
        try:
            return ctypes.CDLL(place)
        except OSError:
            continue
    return None


def main() -> int:
    cublas = library("libcublas.so.13") or library("libcublas.so.12")
    cuda = library("libcuda.so.1")
    if cublas is None or cuda is None:
        print("no cuBLAS")
        return 77

    def check(code: int) -> None:
        if code != 0:
            raise RuntimeError(f"a call returned {code}")

    context, handle = ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    n = 2048
    matrices = [ctypes.c_uint64() for _ in range(3)]
    for matrix in matrices:
        check(cuda.cuMemAlloc_v2(ctypes.byref(matrix), ctypes.c_size_t(4 * n * n)))
        check(cuda.cuMemsetD32_v2(matrix, 0, ctypes.c_size_t(n * n)))
    check(cublas.cublasCreate_v2(ctypes.byref(handle)))
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    for _ in range(50):
        check(cublas.cublasSgemm_v2(handle, 0, 0, n, n, n, ctypes.byref(one), matrices[0], n, matrices[1], n,
                                    ctypes.byref(zero), matrices[2], n))
        check(cuda.cuCtxSynchronize())
        time.sleep(0.03)
    result = ctypes.c_float(1)
    check(cuda.cuMemcpyDtoH_v2(ctypes.byref(result), matrices[2], ctypes.c_size_t(4)))
    check(cublas.cublasDestroy_v2(handle))
    inherited = subprocess.run(["ls", "/proc/self/fd"], close_fds=False, capture_output=True, check=True, text=True)
    print(f"{result.value}, files of a child: {len(inherited.stdout.split())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
