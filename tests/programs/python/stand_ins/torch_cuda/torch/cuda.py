"""torch.cuda, of the cache's own figures. That what PyTorch alone knows is asked shows by requested_bytes."""

import ctypes

_NAMES = ("allocated", "peak_allocated", "reserved", "peak_reserved", "blocks", "live_blocks", "segments")


class _Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in _NAMES]


def _stats(gpu):
    from . import _library
    _library.torch_stats.restype = _Stats
    return _library.torch_stats(gpu)


def is_initialized():
    return True


def device_count():
    return 2


def current_device():
    return 0


def memory_allocated(gpu):
    return _stats(gpu).allocated


def memory_stats(gpu=0):
    stats = _stats(gpu)
    return {"allocated_bytes.all.current": stats.allocated, "reserved_bytes.all.current": stats.reserved,
            "active_bytes.all.current": stats.allocated, "active.all.current": stats.live_blocks,
            "allocation.all.current": stats.live_blocks, "requested_bytes.all.current": stats.allocated // 2,
            "segment.all.current": stats.segments}
