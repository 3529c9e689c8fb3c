"""memlab: where did the GPU memory go?

memlab-run and memlab-report are commands; the library can be preloaded by hand:

    LD_PRELOAD=$(python -c 'import memlab; print(memlab.preload_path())') ./app

Nothing here runs in a program that is recorded, and nothing depends on CUDA or on the version of Python.
"""

import os

__version__ = "@VERSION@"
__all__ = ["__version__", "preload_path", "tool_path"]

_HERE = os.path.dirname(os.path.abspath(__file__))


def preload_path():
    """The path of libmemlab.so, for LD_PRELOAD."""
    return os.path.join(_HERE, "lib", "libmemlab.so")


def tool_path(name):
    """The path of the program "memlab-run" or "memlab-report"."""
    return os.path.join(_HERE, "bin", name)
