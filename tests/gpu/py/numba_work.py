"""numba's CUDA target: arrays to the device and back, and a kernel of its own."""

import numpy
from numba import cuda


@cuda.jit
def scale(values, factor):
    """values[i] *= factor"""
    i = cuda.grid(1)
    if i < values.size:
        values[i] *= factor


def main() -> None:
    host = numpy.arange(100_000, dtype=numpy.float64)
    device = cuda.to_device(host)
    scratch = cuda.device_array(250_000, dtype=numpy.float32)
    scale[(host.size + 255) // 256, 256](device, 3.0)
    result = device.copy_to_host()
    print(bool((result == host * 3).all()), scratch.nbytes)


main()
