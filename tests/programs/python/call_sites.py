"""Allocates from Python code of every shape, and says from where: what the report must say too.

usage: call_sites.py GROUP[,...] EXPECTED_FILE

Each allocation has a size of its own. Beside it the program writes down the stack as Python itself
gives it: function (qualified name), file and line of every frame, innermost first.
"""

import ctypes
import functools
import gc
import itertools
import json
import sys
import threading
import traceback

cuda = ctypes.CDLL("libcuda.so.1")  # releases the GIL around a call
cuda_with_gil = ctypes.PyDLL("libcuda.so.1")
expected = {}  # stack -> [allocations, bytes]
expected_lock = threading.Lock()
sizes = itertools.count(1000, 8)


def note(frame, size):
    """Writes down the caller's stack. Its lines must be those of the call that follows."""
    stack = []
    summary = traceback.extract_stack(frame)
    while frame is not None:
        code = frame.f_code
        stack.append((getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno or 0))
        frame = frame.f_back
    assert [(file, line) for _, file, line in reversed(stack)] == \
        [(entry.filename, entry.lineno) for entry in summary], summary
    with expected_lock:
        entry = expected.setdefault(tuple(stack), [0, 0])
        entry[0] += 1
        entry[1] += size


def allocate(library=cuda):
    pointer = ctypes.c_uint64()
    size = next(sizes)
    wanted = ctypes.c_size_t(size)
    note(sys._getframe(), size); failed = library.cuMemAlloc_v2(ctypes.byref(pointer), wanted)
    assert failed == 0, failed
    return pointer


context = ctypes.c_void_p()


def start():
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0


# ---- plain code


class Model:
    def __init__(self):
        self.weight = allocate()

    def __call__(self, x):
        return self.forward(x)

    def forward(self, x):
        def inner():
            return allocate()
        return inner() if x else (lambda: allocate())()

    @property
    def state(self):
        return allocate()

    @staticmethod
    def static():
        return allocate()

    @classmethod
    def of_class(cls):
        return allocate()

    def __getattr__(self, name):
        return allocate()

    def __del__(self):
        allocate()


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)
    return wrapper


@decorated
@functools.lru_cache(None)
def cached(_key):
    return allocate()


def plain():
    model = Model()
    model(True)
    model(False)
    model.state
    Model.static()
    Model.of_class()
    model.missing
    cached(1)
    del model
    allocate(

    )
    result = [
        allocate(),
        allocate(), allocate(),
    ]
    assert (
        result
        and
        allocate()
    )
    try:
        raise ValueError(allocate())
    except ValueError:
        allocate()
    finally:
        allocate()
    with Context():
        allocate()
    for _ in range(3): allocate()
    grüße_ñ_日本語()


class Context:
    def __enter__(self):
        return allocate()

    def __exit__(self, *_):
        allocate()


def grüße_ñ_日本語():
    return allocate()


def recursion():
    def down(depth):
        return allocate() if depth == 0 else down(depth - 1)

    def even(depth):
        return allocate() if depth == 0 else odd(depth - 1)

    def odd(depth):
        return even(depth - 1)
    down(10)
    even(20)
    sys.setrecursionlimit(20000)
    for depth in (200, 300, 5000):
        down(depth)


# ---- generators, coroutines, comprehensions


def generators():
    def numbers():
        yield allocate()
        yield from nested()

    def nested():
        yield allocate()
        yield allocate()
    for _ in numbers():
        allocate()
    list(allocate() for _ in range(2))
    [allocate() for _ in range(2)]
    {allocate().value for _ in range(2)}
    {index: allocate() for index in range(2)}
    [[allocate() for _ in range(2)] for _ in range(2)]
    receiver = echo()
    next(receiver)
    receiver.send(1)
    try:
        receiver.throw(KeyError())
    except StopIteration:
        pass


def echo():
    try:
        while True:
            yield allocate()
    except KeyError:
        allocate()


def coroutines():
    import asyncio

    async def leaf():
        allocate()
        await asyncio.sleep(0)
        return allocate()

    async def items():
        for _ in range(2):
            await asyncio.sleep(0)
            yield allocate()

    async def tree():
        await asyncio.gather(leaf(), leaf())
        async for _ in items():
            allocate()
        return [allocate() async for _ in items()]
    asyncio.run(tree())


# ---- C code that calls back


class Ordered:
    def __lt__(self, other):
        allocate()
        return True

    def __eq__(self, other):
        return bool(allocate())

    def __hash__(self):
        return allocate().value & 1


def callbacks():
    sorted([3, 1, 2], key=lambda value: allocate().value)
    list(map(lambda _: allocate(), range(2)))
    functools.partial(allocate)()
    functools.reduce(lambda a, b: allocate().value, range(3))
    min(Ordered(), Ordered())
    {Ordered(): 1, Ordered(): 2}
    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(compare)
    values = (ctypes.c_int * 3)(3, 1, 2)
    ctypes.CDLL(None).qsort(values, 3, 4, callback)
    super_nested(4)
    import re
    re.sub("a", lambda _: str(allocate().value), "aa")
    type("Made", (Meta,), {})


def compare(_a, _b):
    allocate()
    return 0


def super_nested(depth):
    """Python, C and Python again, several times on one stack."""
    if depth == 0:
        return allocate()
    return sorted([0], key=lambda _: super_nested(depth - 1).value)[0] or ctypes.c_uint64()


class Meta:
    def __init_subclass__(cls):
        allocate()


# ---- code made at run time


def compiled():
    exec("allocate()")
    eval("allocate()")
    exec(compile("\n" * 700 + "allocate()", "far_away.py", "exec"))
    space = {"allocate": allocate}
    exec("def first():\n" + "\n" * 300 + "    return allocate()\n" + "\n" * 70000 +
         "def second(): return (1,\n" + "\n" * 500 + "allocate())", space)
    space["first"]()
    space["second"]()
    name = "co_qualname" if hasattr(allocate.__code__, "co_qualname") else "co_name"  # 3.10
    renamed = type(allocate)(allocate.__code__.replace(co_filename="päth ✓.py", **{name: "x.<y>"}),
                             globals(), "renamed", (cuda,))
    renamed()
    exec(compile("allocate()", "z" * 6000 + ".py", "exec"))
    exec(compile("allocate()", "", "exec"))


def addresses_used_again():
    """Code objects are made, run and dropped, so that others lie where they lay."""
    seen = {}
    again = 0
    for number in range(3000):
        lines = number % 7
        name = f"made_{number % 40:02}"
        space = {"allocate": allocate}
        exec(compile("\n" * lines + f"def {name}():\n" + "\n" * (number % 5) +
                     "    return allocate()", f"made{number % 11:02}.py", "exec"), space)
        function = space[name]
        address = id(function.__code__)
        now = (name, lines, number % 5, number % 11)
        again += address in seen and seen[address] != now
        seen[address] = now
        function()
        function()
        del function, space
        if number % 50 == 0:
            gc.collect()
    assert again > 100, again  # else this tests nothing


# ---- threads, tracing


def in_threads():
    def work():
        cuda.cuCtxSetCurrent(context)
        for _ in range(50):
            plain_work(2)

    def plain_work(depth):
        return allocate() if depth == 0 else plain_work(depth - 1)
    workers = [threading.Thread(target=work, name=f"worker {index}") for index in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def traced():
    events = []

    def tracer(frame, event, argument):
        if frame.f_code.co_filename == __file__ and frame.f_code is not note.__code__:
            events.append(event)
            return tracer
        return None
    sys.settrace(tracer)
    try:
        plain()
        generators()
    finally:
        sys.settrace(None)
    assert len(events) > 100
    sys.setprofile(lambda *_: None)
    try:
        plain()
        generators()
        callbacks()
    finally:
        sys.setprofile(None)


class Operand:
    """Allocates in every method that an instruction of the loop calls. Many of them are rare: compilers put their
    code apart from the rest of the loop's."""

    def __getitem__(self, key): allocate(); return self
    def __setitem__(self, key, value): allocate()
    def __delitem__(self, key): allocate()
    def __setattr__(self, name, value): allocate()
    def __delattr__(self, name): allocate()
    def __contains__(self, item): allocate(); return False
    def __bool__(self): allocate(); return True
    def __len__(self): allocate(); return 1
    def __hash__(self): allocate(); return 1
    def __iter__(self): allocate(); return iter(("a", "b"))
    def __format__(self, how): allocate(); return "x"
    def __repr__(self): allocate(); return "x"
    def __enter__(self): allocate(); return self
    def __exit__(self, *error): allocate(); return True
    def __set_name__(self, owner, name): allocate()
    def __mro_entries__(self, bases): allocate(); return ()
    def keys(self): allocate(); return ("a", "b")


def _allocates(self, *others):
    allocate()
    return self


for _name in ("matmul add sub mul truediv floordiv mod pow lshift rshift and or xor lt le eq ne gt ge neg pos invert "
              "imatmul iadd isub imul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor").split():
    setattr(Operand, f"__{_name}__", _allocates)


def operators():
    x = y = Operand()
    x @ y; x + y; x - y; x * y; x / y; x // y; x % y; x ** y; x << y; x >> y; x & y; x | y; x ^ y
    x @= y; x += y; x -= y; x *= y; x /= y; x //= y; x %= y; x **= y; x <<= y; x >>= y; x &= y; x |= y; x ^= y
    -x; +x; ~x; not x; x and y; x or y
    x < y; x <= y; x == y; x != y; x > y; x >= y; 1 in x; 1 not in x
    x[1]; x[1:2]; x[1:2:3]
    x[1] = y; x[1] += y
    del x[1]
    x.a = 1
    del x.a
    a, b = x
    a, *b = x
    {x}; {x: 1}; [*x]; (*x, 1); {*"ab"}; {**x}; dict(**x); max(*x)
    {x for _ in (1,)}; {x: x for _ in (1,)}
    f"{x}"; f"{x!r}"; f"{x:>3}"
    if x: pass
    while not x: pass
    assert x
    with x: raise ValueError
    with x as _: pass
    for _ in x: pass
    class Owner: member = x
    class Derived(x): pass
    try:
        raise ValueError from Error()
    except ValueError:
        pass

    def annotated(value: allocate() = allocate(), *, word=allocate()) -> allocate(): pass
    def delegating(): yield from x
    list(delegating())


class Error(Exception):
    def __init__(self): allocate()


def with_gil():
    """With the GIL held memlab asks Python as well, and must find the same."""
    def own(depth):
        cuda.cuCtxSetCurrent(context)
        return allocate(cuda_with_gil) if depth == 0 else own(depth - 1)
    for depth in (0, 1, 40, 400):
        own(depth)
    list(map(lambda _: allocate(cuda_with_gil), range(2)))
    [allocate(cuda_with_gil) for _ in (1, 2)]

    def numbers():
        yield allocate(cuda_with_gil)
    list(numbers())
    exec("allocate(cuda_with_gil)")
    try:
        raise KeyError
    except KeyError:
        allocate(cuda_with_gil)
    workers = [threading.Thread(target=own, args=(3,)) for _ in range(4)]
    for worker in workers:
        worker.start()
        worker.join()


GROUPS = {"plain": plain, "recursion": recursion, "generators": generators,
          "coroutines": coroutines, "callbacks": callbacks, "compiled": compiled,
          "addresses": addresses_used_again, "threads": in_threads, "traced": traced,
          "operators": operators, "gil": with_gil}


def main():
    start()
    for name in sys.argv[1].split(","):
        GROUPS[name]()
    with open(sys.argv[2], "w", encoding="utf-8", errors="surrogatepass") as out:
        json.dump([{"stack": stack, "count": count, "bytes": size}
                   for stack, (count, size) in expected.items()], out)


if __name__ == "__main__":
    main()
