"""What a program under memlab says of itself, and asks: names for its phases and memory, figures of the GPU."""

from __future__ import annotations

import ctypes
import functools
import inspect
import os
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Type, TypeVar, Union, cast

from . import _library
from ._gpu import gpu_number

_Function = TypeVar("_Function", bound=Callable[..., Any])


class scope:
    """A phase of the program: what the calling thread allocates until its end belongs to it, and to the scopes around it.

        with memlab.scope("forward"):
            loss = model(batch)

        @memlab.scope("step")
        def step(batch): ...

    The report has peak, growth and what was left behind of each scope (docs/scopes.md). Begin and end cost 1 us in all.
    Threads have scopes of their own. An asynchronous function or a generator cannot be decorated (TypeError): other code
    runs in the thread before it ends; nor can a class or a property: decorate their functions.
    """

    def __init__(self, name: str) -> None:
        if callable(name):
            raise TypeError("memlab.scope takes a name: @memlab.scope(\"step\")")
        self.name = name
        self._encoded = _library.text(name)
        self._entered: List[int] = []  # at which fork: threads share a decorator, and it nests

    def __enter__(self) -> scope:
        self._entered.append(_library.forks)
        _library.call("scope_begin", self._encoded)
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        if self._entered.pop() == _library.forks:  # a forked child has none of its parent's scopes
            _library.call("scope_end")

    def __call__(self, function: _Function) -> _Function:
        if isinstance(function, (classmethod, staticmethod)):
            return cast(_Function, type(function)(self(function.__func__)))
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"memlab.scope decorates a function, not {function!r}: put it right above the function's def")
        if _returns_early(function) or _returns_early(getattr(function, "__call__")):
            raise TypeError(f"memlab.scope cannot decorate {getattr(function, '__name__', function)}: it returns before it has "
                            "run; use 'with memlab.scope(...)' around code that does not await or yield")

        @functools.wraps(function)
        def scoped(*arguments: Any, **named: Any) -> Any:
            with self:
                return function(*arguments, **named)

        return cast(_Function, scoped)


def _returns_early(function: Any) -> bool:
    return (inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function)
            or inspect.isasyncgenfunction(function))


def mark(name: str) -> None:
    """Puts a named mark on the timeline. A name that comes again delimits steps."""
    _library.call("mark", _library.text(name))


def label(memory: Any, name: str) -> bool:
    """Gives live GPU memory a name, which reports show beside its call site; a later one replaces it.

    `memory` is a PyTorch tensor, or anything with data_ptr() or __cuda_array_interface__ (CuPy, numba, JAX, RMM), or an
    address. A tensor's name is its storage's, which views share; data type and shape of `memory` are shown beside it
    ("float32[512, 512]"). False: memlab knows no such allocation, or there is no memlab. TypeError: `memory` is none of
    these.
    """
    return give_label(_address(memory), name, detail_of(memory))


def give_label(pointer: int, name: str, detail: str) -> bool:
    """Whether memlab knows memory there. A libmemlab.so that takes no detail gets the name."""
    if detail and _library.has("label_detail"):
        return bool(_library.call("label_detail", pointer, _library.text(name), _library.text(detail)) == 0)
    return bool(_library.call("label", pointer, _library.text(name)) == 0)


def detail_of(memory: Any) -> str:
    """Data type and shape of a tensor or an array, "float32[512, 512]"; empty for anything else. Never raises."""
    try:
        dtype, shape = memory.dtype, memory.shape
        return f"{str(dtype).rpartition('.')[2]}{[int(size) for size in shape]}"
    except Exception:  # neither has them; sparse, nested or not made yet
        return ""


def _address(memory: Any) -> int:
    if isinstance(memory, int):
        return memory
    storage = getattr(memory, "untyped_storage", None)
    pointer = getattr(storage() if callable(storage) else memory, "data_ptr", None)
    if callable(pointer):
        return int(pointer())
    interface = getattr(memory, "__cuda_array_interface__", None)
    if isinstance(interface, dict):
        return int(interface["data"][0])
    raise TypeError(f"memlab.label takes a tensor, an array on a GPU or an address, not {type(memory).__name__}")


def stats(device: Any = None) -> Optional[Dict[str, int]]:
    """The figures of a GPU by now, with the keys of torch.cuda.memory_stats(); what memlab does not know is absent.

    `device` is the GPU's number, "cuda:1" or a torch.device; without one it is the GPU of the current context. None: without
    memlab, without recording, or before the GPU was used. TypeError: `device` is none of these. They are the recorder's, of
    what the driver or memlab's pool handed out, all kinds of device memory: PyTorch's segments, where
    torch.cuda.memory_stats() has the tensors in them. Costs a lock.
    """
    number = -1 if device is None else gpu_number(device)
    figures = _library.DeviceStats()
    size = ctypes.sizeof(figures)
    if _library.call("stats", number, ctypes.byref(figures), size) != 0:
        return None
    named: Dict[str, int] = {}
    for key in ("active_bytes", "allocated_bytes", "requested_bytes", "reserved_bytes"):
        named[key + ".all.current"] = getattr(figures, key)
        named[key + ".all.peak"] = getattr(figures, key.replace("_bytes", "_peak_bytes"))
    named["allocation.all.allocated"] = figures.allocation_count
    named["allocation.all.current"] = figures.live_count
    named["allocation.all.freed"] = figures.allocation_count - figures.live_count
    named["num_ooms"] = figures.oom_count
    return named


def empty_cache() -> Optional[int]:
    """Gives the unused memory of memlab's pool back to the driver, after waiting for the work that still uses freed memory.

    Returns the bytes given back; None without memlab. PyTorch's own cache is emptied by torch.cuda.empty_cache(), best
    before.
    """
    given = _library.call("empty_cache")
    return None if given is None else int(given)


def snapshot(path: Union[str, os.PathLike[str]]) -> Optional[str]:
    """Writes a report of everything recorded so far to `path`, while the program goes on; a file of that name is replaced.

    Returns the absolute path; None without memlab, or before the first use of CUDA. OSError: it could not be written
    (stderr says why). Allocations wait while the report is put together, milliseconds.
    """
    absolute = os.path.abspath(path)
    written = _library.call("snapshot", os.fsencode(absolute))
    if written is None or (written != 0 and recording() is None):
        return None
    if written != 0:
        raise OSError(f"memlab wrote no report to {absolute}")
    return absolute


def recording() -> Optional[str]:
    """The path of the report that memlab writes at the end of this process. Until then load() takes the event log beside it.

    None: without memlab, without recording, or before the first use of CUDA.
    """
    return _library.filled("recording")
