"""pytorch_memlab's Courtesy: the GPU for somebody else, and back. Here everything of memlab's pool leaves, also what no
tensor of Python's refers to (docs/step-aside.md)."""

from __future__ import annotations

import ctypes
import sys
from types import TracebackType
from typing import Optional, Type

from . import _library


class NotMovedWarning(UserWarning):
    """The GPU's memory stayed where it is; the message says why."""


class Courtesy:
    """Gives the GPU's memory to others for a while.

        courtesy = memlab.Courtesy()
        courtesy.yield_memory()              # to the host, at unchanged addresses
        ...                                  # another program has the GPU
        courtesy.restore()                   # back; so does the next work on the GPU, whoever submits it

        with memlab.Courtesy():              # the same
            evaluate_elsewhere()

    Needs a process under memlab with MEMLAB_YIELD=on. Where nothing could be moved it warns (NotMovedWarning), and the
    program goes on as without it. Waits for work that was submitted before.
    """

    def yield_memory(self) -> bool:
        """Whether the memory has left the GPU. What PyTorch caches is given back first."""
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        problem = ctypes.create_string_buffer(1024)
        result = _library.call("yield", problem, len(problem))
        if result:
            why = problem.value.decode("utf-8", "replace") or "this process has not used a GPU yet"
            _library.warn(f"the GPU's memory was not moved: {why}", NotMovedWarning)
        return bool(result == 0)

    def restore(self) -> bool:
        """Whether memory has come back; False: none was away."""
        return bool(_library.call("restore") == 0)

    def __enter__(self) -> Courtesy:
        self.yield_memory()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.restore()
