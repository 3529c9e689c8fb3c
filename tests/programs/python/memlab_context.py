"""The context of the first GPUs, for programs without a framework."""

import ctypes

cuda = ctypes.CDLL("libcuda.so.1")


def start(gpu=0):
    """Makes the GPU's primary context the thread's."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), gpu) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
