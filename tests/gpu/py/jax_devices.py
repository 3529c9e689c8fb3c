"""JAX over all GPUs in one process: a sharded product, a sum over the devices and copies between them, on integer-valued
data, so that every result is exact.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec


def main() -> None:
    devices = jax.devices()
    count = len(devices)
    # The compiler chooses the shardings of results; newer releases of JAX demand them by default.
    mesh = jax.make_mesh((count,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = NamedSharding(mesh, PartitionSpec("rows"))

    @jax.jit
    def work(matrix: jax.Array) -> jax.Array:
        return (matrix @ matrix.T) % 17 + jnp.cumsum(matrix, axis=0) % 5

    for size in (256, 512, 1024):
        matrix = (jnp.arange(size * size, dtype=jnp.float32) % 7).reshape(size, size)
        shared = jax.device_put(matrix, rows)
        made = work(shared)
        moved = jax.device_put(made, devices[-1])
        print(size, len(made.sharding.device_set) == count, float(made.sum()), float((moved % 3).sum()), flush=True)
    print("gpu" if devices[0].platform in ("gpu", "cuda") else devices[0].platform)


main()
