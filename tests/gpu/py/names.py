"""names.py FILE

Trains a model that knows nothing of memlab, and writes to FILE, as JSON, what memlab's names of it are: of nn.Modules, and
of parameters, gradients and states of the optimizer with their bytes. Prints the losses.
"""

from __future__ import annotations

import copy
import json
import sys

import torch

WIDTH = 512


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.ReLU(), torch.nn.Linear(4 * WIDTH, WIDTH))
        self.layers = torch.nn.ModuleList(copy.deepcopy(layer) for _ in range(3))
        self.head, self.tied = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.tied.weight = self.head.weight
        self.register_buffer("scale", torch.ones(WIDTH))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            batch = batch + layer(batch)
        return self.tied(self.head(batch * self.scale))


class Sampler(torch.nn.Linear):
    """Is gone when the function that uses it returns."""


def generate() -> float:
    model = Sampler(WIDTH, WIDTH).cuda()
    with torch.no_grad():
        return model(torch.ones(16, WIDTH, device="cuda")).sum().item()


def names_of(model: torch.nn.Module, prefix: str) -> dict[int, str]:
    """Of each parameter and buffer, by its storage."""
    names: dict[int, list[str]] = {}
    for named in (model.named_parameters(remove_duplicate=False), model.named_buffers()):
        for name, tensor in named:
            names.setdefault(tensor.data_ptr(), []).append(f"{prefix}.{name}")
    return {pointer: "+".join(each) for pointer, each in names.items()}


def main() -> None:
    torch.manual_seed(1)
    model, teacher = Net().cuda(), Net().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    criterion = torch.nn.MSELoss()
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        batch = torch.randn(256, WIDTH, device="cuda")
        loss = criterion(model(batch), teacher(batch).detach())
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 4))
    losses.append(round(generate(), 4))
    modules = {"MSELoss": "MSELoss", "Sampler": "Sampler"}
    labels = {}
    for prefix, each in (("Net", model), ("Net#2", teacher)):
        # A ModuleList is not called.
        modules |= {f"{prefix}.{name}" if name else prefix: type(module).__name__
                    for name, module in each.named_modules() if name != "layers"}
        names = names_of(each, prefix)
        for tensor in [*each.parameters(), *each.buffers()]:
            name = names[tensor.data_ptr()]
            labels[name] = tensor.nbytes
            if tensor.grad is not None:
                labels[name + ".grad"] = tensor.grad.nbytes
            labels |= {f"Adam.{name}.{key}": state.nbytes for key, state in optimizer.state.get(tensor, {}).items()
                       if state.is_cuda}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"modules": modules, "labels": labels}, file)
    print(losses)


main()
