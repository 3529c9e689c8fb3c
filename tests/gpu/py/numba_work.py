"""numba's CUDA target: arrays on the device, copied to and from it.

No kernel: compiling one needs numba and numpy to agree on their versions, and memory does not.
"""

import numpy
from numba import cuda


def main() -> None:
    host = numpy.arange(100_000, dtype=numpy.float64)
    device = cuda.to_device(host)
    scratch = cuda.device_array(250_000, dtype=numpy.float32)
    copy = cuda.device_array_like(device)
    copy.copy_to_device(device)
    print(bool((copy.copy_to_host() == host).all()), scratch.nbytes)


main()
