"""Blocks of a pool that is hooked as CuPy's is, taken by the main thread, one of threading's and one that is not.

usage: cupy_blocks.py FOLDER    where the stand-in for CuPy is
"""

import _thread
import ctypes
import sys
import threading

sys.path.insert(0, sys.argv[1])
import cupy  # noqa: E402

KIB = 1024
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()


def take(place, kibibytes):
    of = {"size": kibibytes * KIB - 8, "mem_size": kibibytes * KIB, "mem_ptr": segment + place * 64 * KIB}
    cupy.random.tell("malloc_preprocess", size=of["size"], mem_size=of["mem_size"])
    cupy.random.tell("malloc_postprocess", **of)


def give_back(place, kibibytes):
    for when in ("free_preprocess", "free_postprocess"):
        cupy.random.tell(when, mem_size=kibibytes * KIB, mem_ptr=segment + place * 64 * KIB)


def weights():
    take(0, 8)


def in_thread():
    assert cuda.cuCtxSetCurrent(context) == 0
    take(1, 16)
    take(2, 4)
    give_back(2, 4)


def unseen():
    assert cuda.cuCtxSetCurrent(context) == 0
    take(3, 32)
    done.release()


assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
pointer = ctypes.c_uint64()
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4 << 20)) == 0
segment = pointer.value
weights()
thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
done = _thread.allocate_lock()
done.acquire()
_thread.start_new_thread(unseen, ())
done.acquire()
cupy.random.tell("malloc_postprocess", size=1, mem_size=512, mem_ptr=0)  # it failed
