"""Makes its interpreter one that memlab does not know in one respect, while it allocates for the first time, and goes
on with the interpreter as it is.

usage: other_layouts.py WHAT [NAME]
    type NAME    the size of the code objects, strings or generators: code, str, generator
    code NAME    where a code object has its type, its texts or its line table: type, texts, table
    version      the version, which the interpreter says as a text
    word NUMBER  what _Py_DebugOffsets has in its 64-bit word of that number
    nothing
"""

import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
WORD = ctypes.sizeof(ctypes.c_void_p)
OBJECT_TYPE = object.__basicsize__ - WORD
context = ctypes.c_void_p()
pointer = ctypes.c_uint64()
changes = []  # (where, what is there, what is to be there)


def allocate():
    for where, _, other in changes:
        where.value = other
    failed = (cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
              or cuda.cuCtxSetCurrent(context) or cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4096)))
    for where, value, _ in changes:
        where.value = value
    assert failed == 0, failed


def change(address, other):
    where = ctypes.c_uint64.from_address(address)
    changes.append((where, where.value, other))


def change_type(name):
    changed = {"code": type(allocate.__code__), "str": str, "generator": type(_ for _ in ())}[name]
    size = id(changed) + OBJECT_TYPE + 3 * WORD  # behind the type's own size and its name
    assert ctypes.c_uint64.from_address(size).value == changed.__basicsize__
    change(size, changed.__basicsize__ + WORD)


def change_code(name):
    code = allocate.__code__
    if name == "type":
        change(id(code) + OBJECT_TYPE, id(int))
        return
    there = [code.co_filename, code.co_name, getattr(code, "co_qualname", "")] if name == "texts" else \
        [code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab]
    for address in range(id(code), id(code) + type(code).__basicsize__, WORD):
        if ctypes.c_uint64.from_address(address).value in map(id, there):
            change(address, id(cuda))
    assert changes


def change_version():
    get = ctypes.pythonapi.Py_GetVersion
    get.restype = ctypes.c_void_p
    ctypes.memmove(get(), b"3.99", 4)
    assert ctypes.string_at(get()).startswith(b"3.99")  # it is not made again


def change_word(number):
    start = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    change(start + int(number) * WORD, 1 << 40)


{"type": change_type, "code": change_code, "version": change_version, "word": change_word,
 "nothing": lambda: None}[sys.argv[1]](*sys.argv[2:])
allocate()
changes.clear()
allocate()
print("went on")
