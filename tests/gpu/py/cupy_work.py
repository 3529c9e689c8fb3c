"""CuPy with its own cache off and on: products, a sort and a reduction on known data."""

import sys

import cupy


def main() -> None:
    if sys.argv[1:] == ["uncached"]:
        cupy.cuda.set_allocator(None)
    values = cupy.arange(1 << 20, dtype=cupy.float64)
    matrix = (values % 7).reshape(1024, 1024)
    product = matrix @ matrix.T
    print(float(product.sum()), float(product[3, 5]))
    shuffled = (values * 7919) % (1 << 20)
    ordered = cupy.sort(shuffled)
    print(bool((ordered[1:] >= ordered[:-1]).all()), float(ordered[12345]))
    print(int(cupy.count_nonzero(values % 3 == 0)))


main()
