"""A program that knows nothing of memlab: models, their gradients and an optimizer, from stand-ins for PyTorch. What it
prints is the same with memlab's names and without.

usage: names.py LIBTORCH_CPU FOLDER [watch]    where torch/nn/modules/module.py is; watch: one model gets a name
"""

import ctypes
import gc
import json
import sys
import threading

sys.path.insert(0, sys.argv[2])
from torch.nn.modules.module import Module, Parameter  # noqa: E402
from torch.optim.optimizer import Adam  # noqa: E402

KIB = 1024

cuda = ctypes.CDLL("libcuda.so.1")
library = ctypes.CDLL(sys.argv[1])
library.torch_without_gradient.argtypes = [ctypes.c_uint64]
context = ctypes.c_void_p()


def memory():
    pointer = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(64 * KIB)) == 0
    return pointer.value


def tensor():
    return Parameter(memory())


class Linear(Module):
    def __init__(self, weight=None):
        super().__init__()
        self.weight = weight or tensor()

    def forward(self):
        library.torch_without_gradient(8 * KIB)


class Net(Module):
    def __init__(self):
        super().__init__()
        self.embedding = Linear()
        self.layer = Linear()
        self.head = Linear(self.embedding.weight)

    def forward(self):
        self.embedding()
        self.layer()
        self.head()
        if "extra" in self._modules:
            self.extra()


class Critic(Linear):
    pass


class Sampler(Linear):
    pass


class Wrapper(Module):
    """As DistributedDataParallel."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self):
        self.module()


def generate():
    """Its model is gone before the program ends."""
    model = Sampler()
    for _ in range(3):
        model()


class Node:
    """A part of a cycle, which the garbage collector frees."""


def work():
    net, critic, teacher = Wrapper(Net()), Critic(), Net()
    if "watch" in sys.argv:
        import memlab
        memlab.watch(teacher, "teacher")
    optimizer = Adam([parameter for _, parameter in net.named_parameters()], tensor)
    for step in range(3):
        net()
        critic()
        teacher()
        generate()
        for _, parameter in net.named_parameters():
            parameter.grad = tensor()
        if step == 1:
            teacher.extra = Linear()
        optimizer.step()
    other = Critic()
    thread = threading.Thread(target=lambda: cuda.cuCtxSetCurrent(context) == 0 and other())
    thread.start()
    thread.join()
    return net, critic, teacher, optimizer, other


assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
kept = work()
cycle = Node()
cycle.itself = cycle
print(json.dumps([len(kept), sorted(module for module in sys.modules if "sitecustomize" in module),
                  [path for path in sys.path if "memlab" in path], gc.isenabled(),
                  [thread.name for thread in threading.enumerate()]]))
