"""Fills the device by 8 MiB a call, until there is no more."""

import ctypes

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0


def allocate():
    return cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(8 << 20))


def fill():
    while allocate() == 0:
        pass


fill()
