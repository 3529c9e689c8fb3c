"""Every stack that memlab captures in real programs is the one that libgcc's unwinder finds.

libmemlab_verified.so walks each stack both ways and aborts on a difference."""

from __future__ import annotations

import re
import sys
import unittest

from support import Build, EndToEnd, run

CTYPES = """
import ctypes, functools, threading
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
context = ctypes.c_void_p()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0

def allocate(size):
    pointer = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
    return pointer

def nested(depth, size):
    return allocate(size) if depth == 0 else nested(depth - 1, size)

@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
def compare(a, b):
    blocks.append(nested(2, 512))
    return a[0] - b[0]

def work():
    assert cuda.cuCtxSetCurrent(context) == 0
    for depth in range(30):
        blocks.append(nested(depth, 1000 + depth))
    values = (ctypes.c_int * 16)(*range(16, 0, -1))
    ctypes.CDLL(None).qsort(values, 16, 4, compare)
    blocks.extend(map(functools.partial(nested, 3), range(2000, 2020)))

blocks = []
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
work()
for block in blocks:
    assert cuda.cuMemFree_v2(block) == 0
print(len(blocks) > 250)
"""


class Unwind(EndToEnd):
    """Programs of the catalogue, and Python through ctypes."""

    def verify(self, command: list[str], at_least: int) -> bytes:
        library = self.layout.root / "lib" / "libmemlab_verified.so"
        if not library.exists():
            self.skipTest(f"{library.name} is not built with a sanitizer")
        settings = {"LD_PRELOAD": str(library)}
        outcome = run(command, self.layout.environment(memlab=True, output=self.output, settings=settings),
                      self.work)
        self.assertEqual(outcome.code, 0, outcome.describe())
        counts = [int(count) for count in re.findall(rb"memlab verified: (\d+) stacks", outcome.stderr)]
        self.assertGreaterEqual(sum(counts), at_least, outcome.describe())
        return outcome.stdout

    def test_programs(self) -> None:
        for name, at_least in (("threads", 100), ("plugin_host", 4), ("jumps", 200),
                               ("static_lifetime", 1), ("runtime_api", 4), ("kinds", 4)):
            with self.subTest(name):
                self.verify(self.program(name), at_least)

    def test_python_through_ctypes(self) -> None:
        self.assertEqual(self.verify([sys.executable, "-c", CTYPES], 400), b"True\n")


if __name__ == "__main__":
    assert Build is not None
    unittest.main()
