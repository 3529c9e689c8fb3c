"""backward_lines.py MODE FILE

Trains for a few steps and writes to FILE, as JSON, what PyTorch itself says of its backward: "nodes", a list of the
Python stack in which each node of the graphs was made (of anomaly detection), innermost first; "gradients", a list of
[number of the stack, bytes, count] of the tensors that each node's backward made. memlab's stacks of backward are
compared with that. Prints the losses.

MODE: layers, retained (graphs go backward twice), twice (double backward), checkpoint and reentrant (checkpointing),
function (a torch.autograd.Function), threads, compiled.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections import Counter

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402  (cuBLAS reads the variable when it is loaded)
from torch.utils.checkpoint import checkpoint  # noqa: E402

Stack = tuple[tuple[str, int, str], ...]
made: Counter[tuple[Stack, int]] = Counter()
stacks: set[Stack] = set()
lock = threading.Lock()


def stack_of(node) -> Stack | None:
    """(file, line, function) of the Python frames in which the node was made, innermost first."""
    lines = node.metadata.get("traceback_")
    if not lines:
        return None
    frames = (re.match(r'  File "(.*)", line (\d+), in (.*)', line) for line in lines)
    return tuple((match[1], int(match[2]), match[3].split("\n")[0]) for match in frames if match)[::-1]


def storage(tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def watch(loss, follow: bool = True) -> None:
    """Notes where each node of the graph was made, and what it makes when it goes backward."""
    todo, seen = [loss.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        todo += [following for following, _ in node.next_functions]
        stack = stack_of(node)
        if stack is None or node.name() == "torch::autograd::AccumulateGrad":
            continue
        if isinstance(node, torch.autograd.function.BackwardCFunction):  # Python code, with lines of its own
            stacks.add(stack)
            continue
        stacks.add(stack)
        if not follow:
            continue

        def note(inputs, outputs, stack=stack):
            given = {storage(tensor) for tensor in outputs if tensor is not None}
            fresh = {storage(tensor): tensor.untyped_storage().nbytes() for tensor in inputs
                     if tensor is not None and tensor.is_cuda and storage(tensor) not in given}
            with lock:
                for size in fresh.values():
                    made[stack, size] += 1

        node.register_hook(note)


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


class Layers(torch.nn.Module):
    """Each operator on a line of its own, with sizes of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(251, 257)
        self.second = torch.nn.Linear(257, 263)
        self.norm = torch.nn.LayerNorm(263)
        self.third = torch.nn.Linear(132, 269)
        self.conv = torch.nn.Conv1d(1, 3, 5)
        self.scale = torch.nn.Parameter(torch.ones(1))

    def middle(self, x):
        x = self.second(x)
        x = torch.nn.functional.gelu(x)
        return self.norm(x)

    def forward(self, x, how: str = ""):
        x = self.first(x)
        x = torch.relu(x)
        if how in ("checkpoint", "reentrant"):
            x = checkpoint(self.middle, x, use_reentrant=how == "reentrant")
        else:
            x = self.middle(x)
        with torch.no_grad():
            torch.ones_like(x)  # nobody's
        half = x[:, :132]
        mask = torch.arange(132, device="cuda") % 2
        half = half * mask
        if how == "function":
            half = Squared.apply(half)
        half = half + self.scale.expand(half.shape)
        wide = self.third(half)
        both = torch.cat([wide, x], dim=1)
        parts = both.split(350, dim=1)
        last = parts[0] * 2
        last.mul_(0.5)
        soft = torch.softmax(last, dim=1)
        turned = soft.transpose(0, 1).reshape(1, 1, -1)
        return self.conv(turned).square().mean() + parts[1].exp().mean()


def make(seed: int) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    torch.manual_seed(seed)
    return Layers().cuda(), [torch.randn(37, 251).cuda() for _ in range(3)]


def train(mode: str, model: torch.nn.Module, inputs: list[torch.Tensor]) -> list[float]:
    forward = torch.compile(model) if mode == "compiled" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []
    for x in inputs:
        x.requires_grad_(mode in ("reentrant", "twice"))
        loss = forward(x) if mode == "compiled" else forward(x, mode)
        if mode != "compiled":
            watch(loss)
        if mode == "twice":
            (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
            loss = loss + gradient.square().sum()
            watch(loss, follow=False)
        optimizer.zero_grad()
        if mode == "retained":
            loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    mode, path = sys.argv[1:]
    torch.use_deterministic_algorithms(True)
    losses: dict[int, list[float]] = {}
    with torch.autograd.set_detect_anomaly(mode != "compiled", check_nan=False):
        if mode == "threads":
            made_before = [make(number) for number in range(3)]  # threads share the random numbers

            def work(number: int) -> None:
                with torch.autograd.set_detect_anomaly(True, check_nan=False):
                    losses[number] = train(mode, *made_before[number])

            threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            losses[0] = train(mode, *make(7))
    for number in sorted(losses):
        print(number, [repr(loss) for loss in losses[number]])
    torch.cuda.synchronize()
    numbers = {stack: number for number, stack in enumerate(sorted(stacks))}
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"nodes": sorted(stacks),
                   "gradients": [[numbers[stack], size, count] for (stack, size), count in made.items()]}, file)


main()
