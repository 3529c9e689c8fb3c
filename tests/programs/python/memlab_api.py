"""The Python API of memlab, used in every way. Prints what it answers as JSON.

usage: memlab_api.py peaks | parts | names | forks | threads | many | cache LIBC10_CUDA | nothing
"""

import ctypes
import functools
import json
import os
import sys
import threading

import memlab

MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()


def start():
    device = ctypes.c_int()
    assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    use()


def use():
    assert cuda.cuCtxSetCurrent(context) == 0


def allocate(mebibytes):
    pointer = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mebibytes * MIB)) == 0
    return pointer.value


def free(pointer):
    assert cuda.cuMemFree_v2(ctypes.c_uint64(pointer)) == 0


def caller(site):
    """The function that asked allocate() for it."""
    own = [frame.function for frame in site.frames if frame.file == __file__]
    return own[1] if own else None


def figures(p):
    return {"bytes": p.bytes, "growth": p.growth_bytes, "begin": p.begin_bytes, "end": p.end_bytes,
            "allocated": p.allocated_bytes, "allocations": p.allocated_count, "freed": p.freed_bytes,
            "frees": p.freed_count, "at_least": p.at_least, "other": p.other_bytes,
            "sites": None if p.sites is None else [[site.bytes, site.count, caller(site), site.gpu, site.allocator]
                                                   for site in p.sites],
            "lines": None if p.lines is None else [[line.function, line.bytes, line.count] for line in p.lines]}


def weights():
    return allocate(10)


def activations():
    return allocate(6)


def temporary():
    free(allocate(20))


def peaks():
    """Before the first use of CUDA, around each other, and one that nothing happens in."""
    with memlab.peak() as unused:
        pass
    with memlab.peak() as early, memlab.scope("early"):
        start()
        kept = weights()
    with memlab.peak() as outer, memlab.scope("outer"):
        pointer = activations()
        with memlab.peak(limit=1) as inner, memlab.scope("inner"):
            temporary()
        free(pointer)
        with memlab.peak() as later, memlab.scope("later"):
            again = activations(), activations()
        for pointer in again:
            free(pointer)
    with memlab.peak() as still:
        pass
    p = memlab.peak()
    before = figures(p)
    for _ in range(2):
        with p:
            try:
                p.__enter__()
            except RuntimeError as error:
                assert "has not ended yet" in str(error)
            free(activations())
    free(kept)
    return {"unused": figures(unused), "early": figures(early), "outer": figures(outer), "inner": figures(inner),
            "later": figures(later), "still": figures(still), "again": figures(p), "before": before}


def pinned(mebibytes):
    pointer = ctypes.c_void_p()
    assert cuda.cuMemHostAlloc(ctypes.byref(pointer), ctypes.c_size_t(mebibytes * MIB), 0) == 0


def parts():
    """Of one GPU, or of one kind of memory, from before the first use of CUDA on."""
    wanted = {"first": {"device": 0}, "second": {"device": 1}, "pinned": {"kind": "pinned"}, "managed": {"kind": "managed"},
              "all": {}, "pinned of second": {"device": type("Device", (), {"index": 1}), "kind": "pinned"},
              "by name": {"device": "cuda:1"}}
    measured = {name: memlab.peak(**which) for name, which in wanted.items()}
    for p in measured.values():
        p.__enter__()
    start()
    weights()
    pinned(7)
    for p in measured.values():
        p.__exit__(None, None, None)
    wrong = [{"device": "cuda:x"}, {"device": -1}, {"device": True}, {"device": 1 << 32}, {"limit": "validation"},
             {"kind": "vmm"}, {"kind": None}]
    return {"parts": {name: figures(p) for name, p in measured.items()}, "moments": measured["all"].moments,
            "gpus": measured["all"].gpu_names, "refused": [refused(lambda: memlab.peak(**which)) for which in wrong]}


class Tensor:
    """As PyTorch's: a view knows the storage that it lies in."""

    dtype = "torch.int64"
    shape = (4, 2)

    def __init__(self, storage, offset=0):
        self.storage, self.offset = storage, offset

    def data_ptr(self):
        return self.storage + self.offset

    def untyped_storage(self):
        return Tensor(self.storage)


class Model:
    """As PyTorch's nn.Module: `tensors` are named, the last one is a buffer; two names may share memory."""

    def __init__(self, tensors=()):
        self.tensors = dict(tensors)
        for tensor in self.tensors.values():
            tensor.is_cuda = True

    def named_modules(self):
        return [("", self)]

    def named_parameters(self, remove_duplicate=True):
        assert not remove_duplicate
        return list(self.tensors.items())[:-1]

    def named_buffers(self, remove_duplicate=True):
        return list(self.tensors.items())[-1:]


class Array:
    def __init__(self, pointer):
        self.__cuda_array_interface__ = {"data": (pointer, False), "shape": (1,), "typestr": "<f4", "version": 3}


@memlab.scope("decorated")
def decorated(pointers, depth):
    """What it returns and takes is its own."""
    pointers.append(allocate(1))
    return depth if depth == 2 else decorated(pointers, depth=depth + 1)


class Methods:
    @memlab.scope("of a class")
    @classmethod
    def of_class(cls, number):
        return [cls.__name__, number]

    @memlab.scope("static")
    @staticmethod
    def static(number):
        return number


def refused(function, *arguments):
    try:
        function(*arguments)
    except (TypeError, AttributeError, ValueError) as error:
        return type(error).__name__
    return "nothing"


def names():
    async def later():
        pass

    answers = {"before": [memlab.recording(), memlab.stats(), memlab.stats(0), memlab.label(4096, "x"),
                          memlab.snapshot("nothing.json"), memlab.empty_cache()]}
    memlab.mark("not yet")
    answers["watched"] = [memlab.watch(Model())]
    start()
    pointers = []
    answers["returned"] = [decorated(pointers, 0), decorated.__name__, decorated.__doc__]
    try:
        with memlab.scope("raises"):
            raise KeyError("x")
    except KeyError:
        pass
    answers["labels"] = [memlab.label(Tensor(pointers[0], 512), "tensor"), memlab.label(Array(pointers[1]), "array"),
                         memlab.label(pointers[2], "ädress"), memlab.label(12345, "none")]
    known = memlab._library._found.pop("label_detail", None)
    memlab._library._found["label_detail"] = None  # as in a libmemlab.so that has no such function
    answers["labels"].append(memlab.label(Tensor(pointers[0]), "older"))
    memlab._library._found["label_detail"] = known
    long = Tensor(pointers[0])
    long.shape = (1, ) * 100  # more than a detail may have
    answers["labels"].append(memlab.label(long, "long"))
    answers["refused"] = [refused(memlab.label, "text", "x"), refused(memlab.label, None, "x"),
                          refused(memlab.scope("x"), later), refused(memlab.mark, 1), refused(memlab.scope, None),
                          refused(memlab.stats, "cuda:x"), refused(memlab.watch, []), refused(memlab.stats, 1.5),
                          refused(memlab.scope, later), refused(memlab.scope("x"), functools.partial(later)),
                          refused(memlab.scope("x"), staticmethod(later)), refused(memlab.scope("x"), property(later)),
                          refused(memlab.scope("x"), Methods), refused(memlab.profile_every, later)]
    answers["methods"] = [Methods.of_class(1), Methods().of_class(2), Methods.static(3), Methods().static(4)]
    model = Model({"embedding.weight": Tensor(pointers[1]), "head.weight": Tensor(pointers[1]),
                   "mask": Tensor(pointers[2])})
    answers["watched"] += [memlab.watch(model), memlab.watch(model, "teacher")]
    memlab.mark("made")
    answers["stats"] = memlab.stats()
    answers["same"] = [memlab.stats(0) == answers["stats"], memlab.stats(type("Device", (), {"index": 0})) ==
                       answers["stats"], memlab.stats(7)]
    free(pointers.pop())
    answers["released"] = memlab.empty_cache()
    answers["snapshot"] = memlab.snapshot("now.json")
    try:
        memlab.snapshot("no/such/folder/now.json")
    except OSError as error:
        answers["unwritten"] = str(error)
    answers["recording"] = memlab.recording()
    loaded = memlab.load(memlab.recording())
    answers["loaded"] = [loaded.path, loaded.devices[0].peak_bytes, len(list(loaded.events()))]
    answers["document"] = memlab._library.filled("interval_end", memlab._library.call("interval_begin"), 9, room=8)
    return answers


def forks():
    start()
    kept = weights()
    with memlab.peak() as p, memlab.scope("parent"):
        used = activations()
        child = os.fork()
        if child == 0:
            memlab.watch(Model())  # no use of CUDA, nor is its end, nor are figures
            memlab.stats()
            inner = memlab.peak()
            inner.__enter__()
    if child == 0:
        inner.__exit__(None, None, None)
        os.write(1, json.dumps({"inherited": figures(p), "own": figures(inner)}).encode() + b"\n")
        os._exit(0)
    os.waitpid(child, 0)
    free(used)
    free(kept)
    return figures(p)


def threads():
    """Each thread has scopes and peaks of its own, which count what all do."""
    start()
    answers = []
    entered, left = threading.Barrier(4), threading.Barrier(4)

    def work():
        use()
        with memlab.peak() as p, memlab.scope("thread"):
            entered.wait()
            pointers = [allocate(1) for _ in range(8)]
            left.wait()
        for pointer in pointers:
            free(pointer)
        answers.append(figures(p))

    all_threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    return answers


def many():
    """More at a time than there may be."""
    start()
    opened = [memlab.peak().__enter__() for _ in range(66)]
    pointer = allocate(3)
    for p in opened:
        p.__exit__(None, None, None)
    with memlab.peak() as after:
        pass
    free(pointer)
    return [[p.bytes for p in opened], after.bytes]


def tensor(mebibytes):
    torch = ctypes.CDLL(sys.argv[2])
    torch.torch_allocate.restype = ctypes.c_uint64
    return torch.torch_allocate(0, ctypes.c_uint64(mebibytes * MIB), False)


def layer(mebibytes):
    return tensor(mebibytes)


def release(pointer):
    ctypes.CDLL(sys.argv[2]).torch_free(0, ctypes.c_uint64(pointer))


def cache():
    """Tensors of PyTorch's cache, not its segments; of what was there before, too."""
    start()
    with memlab.peak() as first, memlab.scope("first"):
        kept = layer(3)
    driver = weights()
    with memlab.peak() as second, memlab.scope("second"):
        more = layer(4)
        release(more)
    release(kept)
    free(driver)
    return [figures(first), figures(second)]


def nothing():
    """In a process without memlab."""
    with memlab.peak() as p, memlab.scope("x"):
        memlab.mark("x")
    return {"peak": figures(p), "figures": [memlab.stats(), memlab.stats(0), memlab.empty_cache(), memlab.recording(),
                                            memlab.snapshot("x.json")],
            "watched": memlab.watch(Model()), "label": memlab.label(4096, "x"), "decorated": memlab.scope("x")(lambda x: x + 1)(1),
            "refused": refused(memlab.label, "text", "x")}


print(json.dumps(globals()[sys.argv[1]]()))
