"""CuPy on all GPUs of one process: each works on its own arrays, and arrays are copied from GPU to GPU and freed behind
the copy.
"""

import sys

import cupy


def main() -> None:
    if sys.argv[1:] == ["uncached"]:
        cupy.cuda.set_allocator(None)
    count = cupy.cuda.runtime.getDeviceCount()
    total = []
    for number in range(count):
        with cupy.cuda.Device(number):
            values = cupy.arange(1 << 20, dtype=cupy.float64) % (7 + number)
            matrix = values.reshape(1024, 1024)
            total.append(float((matrix @ matrix.T).sum()))
    print(total)
    for number in range(count):
        following = (number + 1) % count
        for size in (1 << 10, 1 << 18, 1 << 22):
            with cupy.cuda.Device(number):
                source = cupy.arange(size, dtype=cupy.int64) * (number + 1)
            with cupy.cuda.Device(following):
                copied = cupy.asarray(source)
                del source
                copied += 1
                print(number, following, size, copied.device.id, int(copied.sum()))


main()
