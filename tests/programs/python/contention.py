"""Many threads that want the GIL and allocate without it, while the collector runs.

usage: contention.py SECONDS
"""

import ctypes
import gc
import sys
import threading
import time

cuda = ctypes.CDLL("libcuda.so.1")
cuda_with_gil = ctypes.PyDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
deadline = time.monotonic() + float(sys.argv[1])
sys.setswitchinterval(1e-5)
gc.set_threshold(50, 2, 2)


class Cycle:
    """Allocates when the collector finds it, on whatever thread and stack that is."""

    def __init__(self):
        self.self = self

    def __del__(self):
        allocate(cuda)


def allocate(library):
    pointer = ctypes.c_uint64()
    if library.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(512)) == 0:
        library.cuMemFree_v2(pointer)
    return 1


def made(number):
    space = {"allocate": allocate, "cuda": cuda}
    exec(f"def made_{number}(depth):\n" + "\n" * (number % 9) +
         f"    return allocate(cuda) if depth == 0 else made_{number}(depth - 1)\n", space)
    return space[f"made_{number}"]


def work(number):
    cuda.cuCtxSetCurrent(context)
    while time.monotonic() < deadline:
        made(number % 100)(number % 30)
        [Cycle() for _ in range(5)]
        sum(allocate(cuda) for _ in range(5))
        sorted((2, 1), key=lambda _: allocate(cuda_with_gil))
        number += 1


workers = [threading.Thread(target=work, args=(index * 7,)) for index in range(8)]
for worker in workers:
    worker.start()
short = 0
while time.monotonic() < deadline:  # threads that come and go
    thread = threading.Thread(target=lambda: (cuda.cuCtxSetCurrent(context), allocate(cuda)))
    thread.start()
    thread.join()
    short += 1
for worker in workers:
    worker.join()
print("ended", short > 0)
