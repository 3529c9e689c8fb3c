"""Ends while memory is still being allocated: by threads that never stop, by what runs at the end.

usage: endings.py SECONDS
"""

import atexit
import ctypes
import sys
import threading
import time

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()


def allocate():
    pointer = ctypes.c_uint64()
    cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4096))
    cuda.cuMemFree_v2(pointer)
    return 1


def forever():
    cuda.cuCtxSetCurrent(context)
    while True:
        allocate()
        [allocate() for _ in range(3)]
        sorted((2, 1), key=lambda _: allocate())


class Last:
    """Its end comes while modules are taken apart."""

    def __del__(self):
        pointer = ctypes.c_uint64()
        cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(8192))


assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
cuda.cuCtxSetCurrent(context)
last = Last()
atexit.register(allocate)
for _ in range(4):
    threading.Thread(target=forever, daemon=True).start()
time.sleep(float(sys.argv[1]))
