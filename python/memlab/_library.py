"""The C API of the libmemlab.so in this process (memlab.h), by ctypes.

It is there if memlab was preloaded; a call releases the GIL, so that no thread of Python's waits for memlab's locks while
it holds that. Without it each call is a no-op, and the first one says how to start a program under memlab.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from typing import Any, Dict, List, Optional, Tuple, Type

_LONG = ctypes.c_uint64

# memlab_api_...: what it returns, what it takes.
FUNCTIONS: Dict[str, Tuple[Any, Tuple[Any, ...]]] = {
    "scope_begin": (None, (ctypes.c_char_p,)),
    "scope_end": (None, ()),
    "mark": (None, (ctypes.c_char_p,)),
    "label": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p)),
    "label_detail": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)),
    "suballoc": (ctypes.c_int, (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)),
    "subfree": (ctypes.c_int, (ctypes.c_char_p, ctypes.c_void_p)),
    "nn_module": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)),
    "nn_module_end": (ctypes.c_int, (ctypes.c_void_p,)),
    "nn_modules_unnamed": (ctypes.c_size_t, (ctypes.c_void_p, ctypes.c_size_t)),
    "nn_modules_tell": (None, (ctypes.c_void_p, ctypes.c_void_p)),
    "empty_cache": (_LONG, ()),
    "yield": (ctypes.c_int, (ctypes.c_char_p, ctypes.c_size_t)),
    "restore": (ctypes.c_int, ()),
    "snapshot": (ctypes.c_int, (ctypes.c_char_p,)),
    "stats": (ctypes.c_int, (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)),
    "interval_begin": (_LONG, ()),
    "interval_begin_of": (_LONG, (ctypes.c_int, ctypes.c_char_p)),
    "interval_end": (ctypes.c_size_t, (_LONG, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)),
    "cache_stats": (ctypes.c_size_t, (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)),
    "cache_holders": (ctypes.c_size_t, (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_char_p,
                                        ctypes.c_size_t)),
    "moment": (_LONG, ()),
    "made_between": (ctypes.c_size_t, (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)),
    "recording": (ctypes.c_size_t, (ctypes.c_char_p, ctypes.c_size_t)),
}


class DeviceStats(ctypes.Structure):
    """struct memlab_device_stats."""

    _fields_ = [("size", ctypes.c_size_t)] + [(name, _LONG) for name in (
        "requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes", "requested_peak_bytes",
        "allocated_peak_bytes", "active_peak_bytes", "reserved_peak_bytes", "allocation_count", "live_count", "oom_count")]


class NotRecordedWarning(UserWarning):
    """memlab's functions are called in a process without memlab, where they do nothing. Said once in a process."""


forks = 0  #: how often it was forked: a child has another number than its parent


def _forked() -> None:
    global forks
    forks += 1


os.register_at_fork(after_in_child=_forked)

LARGE = 1 << 18  #: bytes that most documents fit into
_buffers: List[Any] = []  # of that size, at rest
_found: Dict[str, Optional[Any]] = {}
_said = False


def _find(name: str) -> Optional[Any]:
    result, arguments = FUNCTIONS[name]
    try:
        found = getattr(ctypes.CDLL(None), "memlab_api_" + name)
    except (AttributeError, OSError):  # not loaded; a platform without dlopen(NULL)
        return None
    found.restype, found.argtypes = result, list(arguments)
    return found


def advice() -> str:
    """How a process like this one gets memlab."""
    if "ipykernel" in sys.modules:
        return f"run {sys.executable} -m memlab kernelspec install, and choose the kernel \"Python 3 (memlab)\""
    return f"start it with: memlab-run -- {'ipython' if 'IPython' in sys.modules else 'python3 PROGRAM'}"


def _say_once() -> None:
    global _said
    if _said:
        return
    _said = True
    warn(f"this process runs without memlab: memlab's functions do nothing in it, and figures are None; {advice()}",
         NotRecordedWarning)


def warn(message: str, kind: Type[Warning]) -> None:
    """At the program's line that called memlab."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("memlab."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, kind, stacklevel=level)


def has(name: str) -> bool:
    """Whether there is a memlab_api_NAME in this process."""
    return function(name) is not None


def function(name: str) -> Optional[Any]:
    """memlab_api_NAME; None in a process without memlab."""
    try:
        return _found[name]
    except KeyError:
        return _found.setdefault(name, _find(name))


def call(name: str, *arguments: Any) -> Any:
    """What memlab_api_NAME returns; None in a process without memlab."""
    called = function(name)
    if called is None:
        _say_once()
        return None
    return called(*arguments)


def text(value: str) -> bytes:
    """A name, for C. Of it 255 bytes are kept. TypeError: it is no str."""
    if not isinstance(value, str):
        raise TypeError(f"memlab takes a name, a str, not {value!r}")
    return value.encode("utf-8", "replace")


def filled(name: str, *arguments: Any, room: int = 4096) -> Optional[str]:
    """The text that memlab_api_NAME writes into a buffer, its last two arguments; None if it has none."""
    while True:
        buffer = _take_buffer(room)
        length = int(call(name, *arguments, buffer, room) or 0)
        found = str(buffer.value, "utf-8", "surrogateescape") if 0 < length < room else None
        if room == LARGE and not _buffers:
            _buffers.append(buffer)
        if length < room:
            return found
        room = length + 1


def _take_buffer(room: int) -> Any:
    """Nobody else has it. To make a large one costs more than the call."""
    if room == LARGE:
        try:
            return _buffers.pop()
        except IndexError:
            pass
    return ctypes.create_string_buffer(room)
