"""JAX without its preallocated arena (XLA_PYTHON_CLIENT_ALLOCATOR=platform is set by the suite):
compiled functions on integer-valued data, so that every result is exact.
"""

import jax
import jax.numpy as jnp


def main() -> None:
    @jax.jit
    def work(matrix: jax.Array) -> jax.Array:
        return (matrix @ matrix.T) % 17 + jnp.cumsum(matrix, axis=0) % 5

    total = jnp.float32(0)
    for size in (128, 256, 384):
        matrix = (jnp.arange(size * size, dtype=jnp.float32) % 7).reshape(size, size)
        total = total + work(matrix).sum()
    print(jax.devices()[0].platform, float(total))
    print(float(jax.grad(lambda x: (x * x).sum())(jnp.arange(4096.0))[4095]))


main()
