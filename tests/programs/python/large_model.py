"""A model of thousands of parameters of different shapes, from stand-ins for PyTorch; and an optimizer.

usage: large_model.py FOLDER PARAMETERS    where torch/nn/modules/module.py is
"""

import ctypes
import sys

sys.path.insert(0, sys.argv[1])
from torch.nn.modules.module import Module, Parameter  # noqa: E402
from torch.optim.optimizer import Adam  # noqa: E402

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()


def tensor(rows):
    pointer = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(512)) == 0
    return Parameter(pointer.value, (rows, 4))


class Linear(Module):
    def __init__(self, rows):
        super().__init__()
        self.weight = tensor(rows)


class Net(Module):
    def __init__(self, layers):
        super().__init__()
        for layer in range(layers):
            setattr(self, f"layer{layer}", Linear(1 + layer))

    def forward(self):
        assert cuda.cuMemFree_v2(ctypes.c_uint64(tensor(1).data_ptr())) == 0


assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
net = Net(int(sys.argv[2]))
parameters = [parameter for _, parameter in net.named_parameters()]
rows = {parameter: parameter.shape[0] for parameter in parameters}
made = iter([each for parameter in parameters for each in (parameter, parameter)])
optimizer = Adam(parameters, lambda: tensor(rows[next(made)]))
net()
for parameter in parameters:
    parameter.grad = tensor(rows[parameter])
optimizer.step()
