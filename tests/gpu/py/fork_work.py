"""fork_work.py torch|cupy|jax|numba: what a child that was forked after the first use of CUDA is told.

Prints the exception of the child's own use; the parent goes on as if nothing had been.
"""

from __future__ import annotations

import os
import sys


def use(framework: str) -> float:
    if framework == "torch":
        import torch
        return float(torch.ones(1000, device="cuda").sum())
    if framework == "cupy":
        import cupy
        return float(cupy.ones(1000).sum())
    if framework == "jax":
        import jax.numpy as jnp
        return float(jnp.ones(1000).sum())
    import numpy
    from numba import cuda
    return float(cuda.to_device(numpy.ones(1000)).copy_to_host().sum())


def main() -> None:
    framework = sys.argv[1]
    print("parent:", use(framework), flush=True)
    child = os.fork()
    if child == 0:
        try:
            print("child:", use(framework), flush=True)
        except BaseException as error:  # JAX's errors are none of Exception's
            print(f"child: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print("child ended with", os.waitstatus_to_exitcode(status), flush=True)
    print("parent:", use(framework), flush=True)


main()
