"""What the package brings along: the library to preload and the programs."""

from __future__ import annotations

import os

__version__ = "@VERSION@"

_HERE = os.path.dirname(os.path.abspath(__file__))


def preload_path() -> str:
    """The path of libmemlab.so, for LD_PRELOAD:

        LD_PRELOAD=$(python3 -c 'import memlab; print(memlab.preload_path())') ./app
    """
    return os.path.join(_HERE, "lib", "libmemlab.so")


def tool_path(name: str) -> str:
    """The path of the program "memlab-run" or "memlab-report"."""
    return os.path.join(_HERE, "bin", name)
