"""python_stacks.py [EXPECTED_FILE]: calls PyTorch operators, each with a tensor of a size of its own, from every kind
of Python code, and notes for each the stack as Python itself gives it. PyTorch releases the GIL around its operators,
so memlab cannot ask the interpreter.

With EXPECTED_FILE it writes down the stacks: a list of {"count", "bytes", "stack": [[function, file, line], ...]},
innermost first. A matrix product's may have more allocations: cuBLAS's workspace. Run with
PYTORCH_NO_CUDA_MEMORY_CACHING=1, so that every tensor reaches memlab.
"""

from __future__ import annotations

import functools
import json
import sys
import threading
import traceback

import torch

expected: dict[tuple, list[int]] = {}
sizes = iter(range(3 << 20, 1 << 30, 8192))  # bytes


def note(frame, size: int) -> None:
    stack = []
    summary = [(entry.filename, entry.lineno) for entry in traceback.extract_stack(frame)]
    while frame is not None:
        stack.append((frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    assert [entry[1:] for entry in reversed(stack)] == summary
    entry = expected.setdefault(tuple(stack), [0, 0])
    entry[0] += 1
    entry[1] += size


def empty():
    size = next(sizes)
    note(sys._getframe(), size); return torch.empty(size // 4, device="cuda")


def added():
    size = next(sizes)
    a = torch.zeros(size // 4, device="cuda")
    note(sys._getframe(), size); return a + 1


def multiplied():
    size = next(sizes)
    a = torch.zeros(size // 4096, 4, device="cuda")
    b = torch.zeros(4, 1024, device="cuda")
    note(sys._getframe(), size); return a @ b


class Layer(torch.nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return [self.make() for _ in range(2)]


class Square(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        empty()
        return x * x

    @staticmethod
    def backward(context, gradient):
        empty()  # on the autograd engine's own thread
        return gradient


def generator():
    yield empty()
    yield added()


def main() -> None:
    torch.zeros(1, device="cuda")
    with torch.no_grad():
        for make in (empty, added, multiplied):
            make()
            functools.partial(make)()
            list(map(lambda _: make(), range(2)))
            torch.nn.Sequential(Layer(make), torch.nn.Identity())(None)
            workers = [threading.Thread(target=make) for _ in range(3)]
            for worker in workers:
                worker.start()
                worker.join()
    list(generator())
    x = torch.ones(4, device="cuda", requires_grad=True)
    x.register_hook(lambda gradient: (empty(), None)[1])
    Square.apply(x).sum().backward()
    torch.cuda.synchronize()
    print(len(expected) >= 20)
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="utf-8") as out:
            json.dump([{"count": count, "bytes": size, "stack": stack}
                       for stack, (count, size) in expected.items()], out)


if __name__ == "__main__":
    main()
