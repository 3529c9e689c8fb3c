"""framework_steps.py torch|cupy|jax|numba [uncached]

A small workload of each framework whose sizes vary from step to step, as docs/frameworks.md times it.
Prints one line of JSON: "ms", the median of the later steps' times, and "sum", a figure of the result
that does not depend on what serves the memory. `uncached` is for CuPy, whose switch is a line in the
program.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable


def timed(step: Callable[[int], float], steps: int) -> None:
    times, total = [], 0.0
    for number in range(steps):
        start = time.perf_counter()
        total += step(number)
        times.append((time.perf_counter() - start) * 1000)
    print(json.dumps({"ms": round(statistics.median(times[steps // 3:]), 3), "sum": total}))


def use_torch() -> None:
    import torch

    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 6).to("cuda")
    optimizer = torch.optim.Adam(model.parameters())

    def step(number: int) -> float:
        batch = torch.full((16, 64 + 8 * (number % 12), 512), 0.5, device="cuda")
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        return float(number == 0 and round(loss.item(), 3))

    timed(step, 45)


def use_cupy() -> None:
    import cupy

    if "uncached" in sys.argv:
        cupy.cuda.set_allocator(None)
    weights = (cupy.arange(1 << 20, dtype=cupy.float32) % 7).reshape(1024, 1024)

    def step(number: int) -> float:
        rows = 256 + 128 * (number % 6)
        batch = (cupy.arange(rows * 1024, dtype=cupy.float32) % 5).reshape(rows, 1024)
        for _ in range(4):
            batch = cupy.maximum(batch @ weights, 0) % 11 + 1
        result = float(batch[3, 5])
        cupy.cuda.Device().synchronize()
        return result

    timed(step, 60)


def use_jax() -> None:
    import jax
    import jax.numpy as jnp

    weights = [(jnp.arange(1 << 20, dtype=jnp.float32) % 7).reshape(1024, 1024) / 4096 for _ in range(4)]

    def loss(parameters, batch):
        for weight in parameters:
            batch = jnp.tanh(batch @ weight)
        return (batch * batch).mean()

    gradient = jax.jit(jax.value_and_grad(loss))

    def step(number: int) -> float:
        batch = jnp.ones((256 + 256 * (number % 3), 1024))
        value, slopes = gradient(weights, batch)
        jax.block_until_ready(slopes)
        return round(float(value), 3)

    timed(step, 60)


def use_numba() -> None:
    import numpy
    from numba import cuda

    host = numpy.arange(1 << 20, dtype=numpy.float32)
    order = random.Random(1)

    def step(_: int) -> float:
        length = order.randrange(1 << 18, 1 << 20)
        device = cuda.to_device(host[:length])
        copies = [cuda.device_array_like(device) for _ in range(4)]
        for copy in copies:
            copy.copy_to_device(device)
        return float(copies[-1].copy_to_host()[100])

    timed(step, 60)


if __name__ == "__main__":
    {"torch": use_torch, "cupy": use_cupy, "jax": use_jax, "numba": use_numba}[sys.argv[1]]()
