"""nn.Modules that allocate, from stand-ins for PyTorch: each allocation has a size of its own. Prints a
line of JSON: of each size the qualified names of the nn.Modules that called it, outermost first.

usage: nn_modules.py LIBTORCH_CPU FOLDER [watch]    where torch/nn/modules/module.py is; watch: names are those of
                                                    memlab.watch()
"""

import ctypes
import json
import sys
import threading

sys.path.insert(0, sys.argv[2])
from torch.nn.modules.module import Module  # noqa: E402

if "watch" in sys.argv:
    import memlab as package
else:
    package = None

KIB = 1024
DENSE = 0

cuda = ctypes.CDLL("libcuda.so.1")
torch = ctypes.CDLL(sys.argv[1])
memlab = ctypes.CDLL(None)
context = ctypes.c_void_p()
u64 = ctypes.c_uint64
torch.torch_operator.argtypes = [ctypes.c_int, u64, u64, ctypes.c_uint32]
torch.torch_operator.restype = u64
torch.torch_without_gradient.argtypes = [u64]
torch.torch_backward.argtypes = [u64, ctypes.c_bool]
torch.torch_function.argtypes = [ctypes.c_void_p]
torch.torch_function.restype = u64
memlab.memlab_api_nn_module.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
memlab.memlab_api_nn_module_end.argtypes = [ctypes.c_void_p]

expected = {}  # by size
nodes = []  # whose backward is to come
functions = []  # that nodes call
calls = threading.local()
next_size = 4  # 2 KiB are no module's; all fit into one segment, since the engine's thread has no context


def new_size(modules):
    global next_size
    next_size += 1
    expected[next_size * KIB // 2] = list(modules)
    return next_size * KIB // 2


class Named(Module):
    """Knows its name, and notes its calls as the test expects them."""

    def name(self, name):
        self.qualified = name
        if package is None:
            assert memlab.memlab_api_nn_module(id(self), name.encode(), type(self).__name__.encode()) == 0
        return self

    def watch(self, name=""):
        """As its users name it."""
        if package is not None:
            assert package.watch(self, name) == len(list(self.named_modules()))

    def named_modules(self):
        yield "", self
        for name, each in vars(self).items():
            children = each if isinstance(each, list) else [each]
            for i, child in enumerate(children):
                if isinstance(child, Named):
                    for qualified, module in child.named_modules():
                        yield ".".join(filter(None, (f"{name}.{i}" if child is not each else name, qualified))), module

    def named_parameters(self):
        return iter(())

    named_buffers = named_parameters

    def forward(self, *args):
        stack = calls.__dict__.setdefault("stack", [])
        stack.append(self.qualified)
        try:
            self.run(stack, *args)
        finally:
            stack.pop()


class Linear(Named):
    def run(self, stack):
        """All that differs between two of them is the object: the stack is the same."""
        nodes.append(torch.torch_operator(DENSE, new_size(stack), new_size(stack), 1))


class OwnBackward(Named):
    """Calls a torch.autograd.Function, whose backward is Python code."""

    def run(self, stack):
        torch.torch_without_gradient(new_size(stack))
        size = new_size(stack)
        functions.append(ctypes.CFUNCTYPE(None)(lambda: torch.torch_without_gradient(size)))
        nodes.append(torch.torch_function(ctypes.cast(functions[-1], ctypes.c_void_p)))


class Block(Named):
    def run(self, stack, again=0):
        torch.torch_without_gradient(new_size(stack))
        if again:
            self(again - 1)  # itself
            return
        self.first()
        self.second()
        self.first()


class Model(Named):
    def run(self, stack):
        for block in self.blocks:
            block()
        torch.torch_without_gradient(new_size(stack))


def make():
    model = Model().name("")
    model.blocks = [Block().name(f"blocks.{i}") for i in range(3)]
    for block in model.blocks:
        block.first = Linear().name(block.qualified + ".first")
        block.second = Linear().name(block.qualified + ".second")
    model.last = OwnBackward().name("last")
    model.watch()
    return model


def in_thread(work):
    def run():
        assert cuda.cuCtxSetCurrent(context) == 0
        work()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def of_the_same_address():
    """An nn.Module that ends, and another at its address."""
    before = Linear().name("before")
    before.watch("before")
    before()
    address = id(before)
    if package is None:
        memlab.memlab_api_nn_module_end(address)
    del before
    others = []
    while not others or id(others[-1]) != address:
        others.append(Linear())
        assert len(others) < 10000
    others[-1].name("after").watch("after")
    others[-1]()


def recomputed(block):
    """A backward in Python that calls an nn.Module: it is that one's."""
    def backward():
        block()

    called = ctypes.CFUNCTYPE(None)(backward)
    torch.torch_backward(torch.torch_function(ctypes.cast(called, ctypes.c_void_p)), False)


def deep(block, levels):
    if levels == 0:
        block()
    else:
        deep(block, levels - 1)


def work():
    torch.torch_without_gradient(new_size([]))
    model = make()
    for _ in range(2):
        model()
    model.last()
    in_thread(model.blocks[1])
    model.blocks[0](3)
    deep(model.blocks[2], 100)  # beyond the limit of stacks
    recomputed(model.blocks[0])
    of_the_same_address()
    torch.torch_without_gradient(new_size([]))
    for node in nodes:
        torch.torch_backward(node, False)


assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
for _ in range(8):
    torch.torch_operator(DENSE, 2 * KIB, 0, 1)  # no node is believed before
if package is None:
    work()
else:
    with package.peak() as p:
        work()
    held = {}
    for size, names in expected.items():
        if names:
            count, total = held.get(names[-1], (0, 0))
            held[names[-1]] = count + 1, total + size
    assert {each.name: (each.count, each.bytes) for each in p.nn_modules} == held, (p.nn_modules, held)
    assert [each.class_name for each in p.nn_modules if each.name == ""] == ["Model"]
    assert [each.bytes for each in p.nn_modules] == sorted((each.bytes for each in p.nn_modules), reverse=True)
print(json.dumps(expected))
