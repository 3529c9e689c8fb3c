"""A stand-in for CuPy's package of this name."""

from cupy.cuda import memory_hook  # noqa: F401
