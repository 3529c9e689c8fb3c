"""A stand-in for CuPy: the module with its hooks, one that it imports later, and a pool that tells hooks of its blocks."""

from cupy import cuda  # noqa: F401
from cupy import random  # noqa: F401
