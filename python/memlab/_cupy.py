"""CuPy's arrays, each with its line (MEMLAB_NAMES=auto): its pool tells of blocks by a hook of the thread that asks for one.

The main thread has the hook, and each thread that the module threading starts; blocks that other threads take are not seen,
and those that they give back stay until the place is taken again. Blocks are those of an allocator of the program's, "CuPy".
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from . import _library

_NAME = b"CuPy"


def start() -> None:
    """The program imports CuPy, and has its module of hooks already."""
    module = sys.modules["cupy.cuda.memory_hook"]
    allocated, freed = _library.function("suballoc"), _library.function("subfree")
    if allocated is not None and freed is not None:
        _hook_threads(_make_hook(module.MemoryHook, allocated, freed))


def _make_hook(base: Any, allocated: Any, freed: Any) -> Any:
    class MemlabHook(base):  # type: ignore[misc]
        """Tells memlab of each block."""

        name = "memlab"

        def malloc_postprocess(self, *, mem_ptr: int, mem_size: int, **_: Any) -> None:
            if mem_ptr:
                allocated(_NAME, mem_ptr, mem_size)

        def free_preprocess(self, *, mem_ptr: int, **_: Any) -> None:
            freed(_NAME, mem_ptr)

    return MemlabHook()


def _hook_threads(hook: Any) -> None:
    """This one, and each that begins from here on: it says its number when it does."""
    hook.__enter__()
    said: Any = getattr(threading.Thread, "_set_ident", None)
    if said is None:
        return

    def _set_ident(thread: Any) -> None:
        said(thread)
        try:
            hook.__enter__()
        except Exception:  # the thread has it
            pass

    setattr(threading.Thread, "_set_ident", _set_ident)
