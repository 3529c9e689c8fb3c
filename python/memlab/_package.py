"""What the package brings along: the library to preload and the programs."""

from __future__ import annotations

import os

__version__ = "@VERSION@"

_HERE = os.path.dirname(os.path.abspath(__file__))


def preload_path() -> str:
    """The path of libmemlab.so, for LD_PRELOAD:

        LD_PRELOAD=$(python3 -c 'import memlab; print(memlab.preload_path())') ./app
    """
    return _path("lib", "libmemlab.so")


def _path(*below: str) -> str:
    """In the wheel's package; else below the prefix whose share/memlab/python this package is in."""
    own = os.path.join(_HERE, *below)
    installed = os.path.normpath(os.path.join(_HERE, "..", "..", "..", "..", *below))
    return installed if os.path.exists(installed) and not os.path.exists(own) else own


def tool_path(name: str) -> str:
    """The path of the program "memlab-run", "memlab-ctl", "memlab-top" or "memlab-report"."""
    return _path("bin", name)
