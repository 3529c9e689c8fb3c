"""A stand-in for PyTorch: tensors in the cache of the test's libc10_cuda.so, which LIBC10_CUDA names."""

import ctypes
import os

from memlab_context import start

from . import cuda

_library = ctypes.CDLL(os.environ["LIBC10_CUDA"])
_library.torch_allocate.restype = ctypes.c_uint64


class device:
    def __init__(self, name, index=None):
        self.type, _, number = str(name).partition(":")
        self.index = int(number) if number else index

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other):
        return str(self) == str(other)

    def __hash__(self):
        return hash(str(self))


class UntypedStorage:
    """Memory that Python holds, or with `of_cpp` C++ alone, as what autograd keeps."""

    def __init__(self, size, gpu=0):
        self.size, self.gpu = size, gpu
        start(gpu)
        self.address = _library.torch_allocate(gpu, ctypes.c_uint64(size), False)
        start(0)

    def __del__(self):
        _library.torch_free(self.gpu, ctypes.c_uint64(self.address))

    def nbytes(self):
        return self.size

    def data_ptr(self):
        return self.address


class Tensor:
    layout = "torch.strided"
    grad = None
    requires_grad = False
    is_leaf = True

    def __init__(self, *shape, storage=None, gpu=0):
        self.shape = shape
        self.device = device(f"cuda:{gpu}")
        self.storage_ = storage or UntypedStorage(4 * self.numel(), gpu)

    def size(self):
        return self.shape

    def numel(self):
        count = 1
        for size in self.shape:
            count *= size
        return count

    def untyped_storage(self):
        return self.storage_

    def detach(self):
        return self

    def __matmul__(self, other):
        return Tensor(self.shape[0], other.shape[1])

    def relu(self):
        return Tensor(*self.shape)


def randn(*shape, device):
    return Tensor(*shape)


class SparseTensor(Tensor):
    layout = "torch.sparse_coo"

    def _indices(self):
        return Tensor(2, 8, storage=self.storage_)

    def _values(self):
        return Tensor(8, storage=self.storage_)


class Parameter(Tensor):
    requires_grad = True


class Module:
    """Of an nn.Module what its parameters and buffers need."""

    def __init__(self, parameters, buffers=()):
        self.parameters_, self.buffers_ = dict(parameters), dict(buffers)

    def named_parameters(self):
        return iter(self.parameters_.items())

    def named_buffers(self):
        return iter(self.buffers_.items())


class Adam:
    """An optimizer; its step is what gives it state."""

    def __init__(self, parameters):
        self.parameters, self.state = list(parameters), {}

    def step(self):
        for parameter in self.parameters:
            self.state[parameter] = {"step": 1, "exp_avg": Tensor(*parameter.shape)}
