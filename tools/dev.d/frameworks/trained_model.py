"""trained_model.py TENSORS STANDIN: a few steps of a training on the CPU by this machine's PyTorch, whose tensors are
reported as a GPU's by the stand-in for libc10_cuda.so and the library TENSORS (tensors.cpp). Prints JSON: the losses,
and how many blocks were handed out and are left.
"""

import ctypes
import json
import sys

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(64, 256)
        self.second = torch.nn.Linear(256, 8)

    def forward(self, batch):
        return self.second(torch.relu(self.first(batch)))


class Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in
                ("allocated", "peak_allocated", "reserved", "peak_reserved", "blocks", "live_blocks", "segments")]


def main():
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    standin = ctypes.CDLL(sys.argv[2], mode=ctypes.RTLD_GLOBAL)
    standin.torch_stats.restype = Stats
    torch.ops.load_library(sys.argv[1])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.ops.memlab.begin(context.value)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch, target = torch.randn(32, 64), torch.randn(32, 8)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch), target)
        torch.ops.memlab.backward(loss)
        optimizer.step()
        losses.append(float(loss.detach()))
    stats = standin.torch_stats(0)
    print(json.dumps({"version": torch.__version__, "losses": losses, "blocks": stats.blocks,
                      "live_blocks": stats.live_blocks, "peak": stats.peak_allocated}), flush=True)


main()
