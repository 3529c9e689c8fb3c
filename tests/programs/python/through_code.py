"""Allocates through code without tables between Python and CUDA, as JIT compilers and assembly put it
there: the Python frames must be in the call sites anyway.

usage: through_code.py

Each function calls with a size of its own, through code made at run time that
8000 has a frame pointer, 8008 only makes room, 8016 hides its caller.
"""

import ctypes
import mmap

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0

# mov rax, rdi; mov rdi, rsi; mov rsi, rdx; call rax
CALL = "4889f8" "4889f7" "4889d6" "ffd0"
FRAME_POINTER = "55" "4889e5" + CALL + "0f1f00" "5d" "c3"
ROOM = "4883ec08" + CALL + "4883c408" "c3"
# push rbp; xor ebp, ebp; ...; mov rax, rax; pop rbp; ret
HIDING = "55" "31ed" + CALL + "4889c0" "5d" "c3"


def made(code):
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(bytes.fromhex(code))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return function(address), memory


def allocate(code, size):
    function, _memory = made(code)
    pointer = ctypes.c_uint64()
    assert function(ctypes.cast(cuda.cuMemAlloc_v2, ctypes.c_void_p),
                    ctypes.cast(ctypes.byref(pointer), ctypes.c_void_p), size) == 0
    kept.append(_memory)


def hiding():
    allocate(HIDING, 8016)


def with_room():
    allocate(ROOM, 8008)


def with_frame_pointer():
    allocate(FRAME_POINTER, 8000)


kept = []
hiding()  # first of all: no stack has led through the interpreter yet
with_room()
with_frame_pointer()
