"""Frees device memory inside the garbage collector, beside it and around it. Each way has a size of
its own.

usage: collector.py [LIBC10_CUDA]: with memory of that library's cache instead of the driver's
"""

import ctypes
import gc
import sys
import threading
import weakref

cuda = ctypes.CDLL("libcuda.so.1")  # releases the GIL around a call
KIB = 1024
# (size, allocations) of what a collection alone frees, and of what is freed otherwise.
COLLECTED = {4096 * KIB: 8, 8 * KIB: 3, 16 * KIB: 3, 24 * KIB: 3, 32 * KIB: 50, 40 * KIB: 3}
FREED = {8192 * KIB: 1, 64 * KIB: 3, 72 * KIB: 3, 80 * KIB: 3, 88 * KIB: 2}
context = ctypes.c_void_p()
torch = ctypes.CDLL(sys.argv[1]) if len(sys.argv) > 1 else None


def allocate(size):
    if torch is not None:
        torch.torch_allocate.restype = ctypes.c_uint64
        return torch.torch_allocate(0, ctypes.c_uint64(size), False)
    pointer = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
    return pointer.value


def free(pointer):
    if torch is not None:
        torch.torch_free(0, ctypes.c_uint64(pointer))
    else:
        assert cuda.cuMemFree_v2(ctypes.c_uint64(pointer)) == 0


class Buffer:
    """Device memory that goes with the object."""

    alive = 0

    def __init__(self, size):
        Buffer.alive += 1
        self.pointer = allocate(size)

    def __del__(self):
        Buffer.alive -= 1
        free(self.pointer)


class Holder:
    """An object that refers to itself, with what it holds."""

    def __init__(self, held):
        self.held = held
        self.self = self


def of(size):
    """As many buffers as are to be made of this size."""
    return [Buffer(size) for _ in range((COLLECTED | FREED)[size])]


def leave(buffers):
    """Leaves a cycle to the collector for each."""
    for buffer in buffers:
        Holder(buffer)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def free_capsule(capsule):
    ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
    free(ctypes.pythonapi.PyCapsule_GetPointer(ctypes.c_void_p(capsule), None))


def capsule(size):
    """An object of C, freed when its last reference goes, as a tensor is."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return make(allocate(size), None, ctypes.cast(free_capsule, ctypes.c_void_p))


def at_the_peak():
    kept = of(8192 * KIB)
    leave(of(4096 * KIB))  # the peak: 40 MiB
    gc.collect()
    kept.clear()


def in_finalizers():
    leave(of(8 * KIB))
    gc.collect()
    leave(of(24 * KIB))
    gc.collect(0)


def in_destructors():
    leave([capsule(16 * KIB) for _ in range(COLLECTED[16 * KIB])])
    gc.collect()


def in_callbacks_of_weak_references():
    for _ in range(COLLECTED[40 * KIB]):
        weakref.finalize(Holder(None), free, allocate(40 * KIB))
    gc.collect()


def when_python_itself_collects():
    gc.enable()
    gc.set_threshold(10, 2, 2)
    before = Buffer.alive
    for _ in range(COLLECTED[32 * KIB]):
        Holder(Buffer(32 * KIB))
    while Buffer.alive > before:
        Holder([])
    gc.disable()


def by_references():
    of(64 * KIB).clear()


def beside_the_collector():
    """By another thread, while this one waits inside the collector, without the GIL."""
    collecting = threading.Event()
    freed = threading.Event()

    class Waits(Holder):
        def __del__(self):
            collecting.set()
            assert freed.wait(60)

    def work():
        assert cuda.cuCtxSetCurrent(context) == 0
        buffers = of(72 * KIB)
        Waits(None)
        ready.set()
        assert collecting.wait(60)
        buffers.clear()
        freed.set()

    ready = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(60)
    gc.collect()
    thread.join()


def around_a_collection():
    """By what the program runs at the start and the end of each collection."""
    buffers = of(80 * KIB)
    gc.callbacks.append(lambda phase, info: buffers and buffers.pop())
    gc.collect()
    gc.collect()
    gc.callbacks.clear()


def work():
    at_the_peak()
    in_finalizers()
    in_destructors()
    in_callbacks_of_weak_references()
    when_python_itself_collects()
    by_references()
    beside_the_collector()
    around_a_collection()


assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
gc.disable()
work()
# What lives until the end of the interpreter, where it collects once more.
sys.last_buffers = of(88 * KIB)
leave(sys.last_buffers)
