"""What tests under pytest --memlab allocate of the GPU, through the driver alone (tests/interpose/test_pytest_plugin.py)."""

import ctypes

KIB, MIB = 1 << 10, 1 << 20
_cuda = None


def _driver(device):
    """The driver, with that GPU's context current."""
    global _cuda
    if _cuda is None:
        _cuda = ctypes.CDLL("libcuda.so.1")
        assert _cuda.cuInit(0) == 0
    context, handle = ctypes.c_void_p(), ctypes.c_int()
    assert _cuda.cuDeviceGet(ctypes.byref(handle), device) == 0
    assert _cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle) == 0 and _cuda.cuCtxSetCurrent(context) == 0
    return _cuda


class Memory:
    """Freed with the object, as a tensor is, unless it is leaked."""

    def __init__(self, size, device=0, kind="device"):
        self._free = None
        cuda, self._pointer = _driver(device), ctypes.c_uint64()
        pointer, size = ctypes.byref(self._pointer), ctypes.c_size_t(size)
        self._free = cuda.cuMemFreeHost if kind == "pinned" else cuda.cuMemFree_v2
        self._free.argtypes = [ctypes.c_uint64]
        if kind == "pinned":
            answer = cuda.cuMemHostAlloc(pointer, size, 0)
        elif kind == "managed":
            answer = cuda.cuMemAllocManaged(pointer, size, 1)
        else:
            answer = cuda.cuMemAlloc_v2(pointer, size)
        assert answer == 0, answer

    def leak(self):
        """It stays until the process ends."""
        self._free = None

    def free(self):
        """Now."""
        free, self._free = self._free, None
        if free is not None:
            assert free(self._pointer) == 0

    def __del__(self):
        self.free()


def peak_of(size, **where):
    """Allocates and frees."""
    Memory(size, **where).free()


def library_work(path):
    """A library allocates 40000 and 60000 bytes, and keeps the latter."""
    _driver(0)
    assert ctypes.CDLL(path).plugin_work(1) == 1
