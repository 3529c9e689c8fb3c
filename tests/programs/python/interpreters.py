"""Allocates in a second interpreter of the process, and in the first one before and after.

usage: interpreters.py [own]: an interpreter with a GIL of its own (3.13 and later), and one in each of several threads
"""

import ctypes
import sys
import threading

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

ALLOCATE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def allocate(size):
    pointer = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
def outer_{name}():
    allocate({size})
"""

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
exec(ALLOCATE.format(name="main", size=1000))


def run_in(interpreter, text):
    failure = interpreters.run_string(interpreter, text)
    if failure is not None:
        print(failure, file=sys.stderr)
        sys.exit(3)


def through(size):
    allocate(size)


def work(size):
    """Allocates in an interpreter of its own, beside others that do."""
    assert cuda.cuCtxSetCurrent(context) == 0
    mine = interpreters.create("isolated")
    for _ in range(20):
        run_in(mine, ALLOCATE.format(name=f"of_{size}", size=size) + f"outer_of_{size}()\n")
        through(9000)
    interpreters.destroy(mine)


through(2000)
if sys.version_info < (3, 13):
    other = interpreters.create(isolated=False)
else:
    other = interpreters.create("isolated" if "own" in sys.argv else "legacy")
for _ in range(3):
    run_in(other, ALLOCATE.format(name="sub", size=3000) + "outer_sub()\n")
through(4000)
interpreters.destroy(other)
through(5000)
if "own" in sys.argv:
    workers = [threading.Thread(target=work, args=(size,)) for size in (6000, 7000, 8000)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
