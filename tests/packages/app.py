"""As app.c, from Python."""

import ctypes

driver = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
first, second = ctypes.c_uint64(), ctypes.c_uint64()


def call(name, *arguments):
    result = getattr(driver, name)(*arguments)
    assert result == 0, (name, result)


def train():
    call("cuMemAlloc_v2", ctypes.byref(first), ctypes.c_size_t(1 << 20))
    call("cuMemAlloc_v2", ctypes.byref(second), ctypes.c_size_t(2 << 20))
    call("cuMemFree_v2", first)


call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
train()
print("allocated")
