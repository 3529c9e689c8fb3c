"""nn_modules.py FILE

Trains a stack of linear layers for a step, keeps what each returned and each gradient, and writes to FILE, as JSON, the
bytes of both by the layer's qualified name. memlab's memory by nn.Module at the peak is compared with that, which is a
large tensor at the end. Prints the loss.
"""

from __future__ import annotations

import ctypes
import json
import sys

import torch

BATCH = 8192


class Layer(torch.nn.Module):
    def __init__(self, width: int, kept: list) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(256, width)
        self.back = torch.nn.Linear(width, 256)
        self.kept = kept

    def forward(self, batch):
        for each in (self.linear, self.back):
            batch = each(batch)
            self.kept.append(batch)
        return batch


def give_names(model: torch.nn.Module) -> None:
    give = getattr(ctypes.CDLL(None), "memlab_api_nn_module", None)
    for name, each in model.named_modules():
        if give is not None:
            assert give(ctypes.c_void_p(id(each)), name.encode(), type(each).__name__.encode()) == 0


def main() -> None:
    kept: list[torch.Tensor] = []
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(Layer(256 + 128 * i, kept) for i in range(6))).cuda()
    give_names(model)
    loss = model(torch.randn(BATCH, 256, device="cuda")).square().mean()
    loss.backward()
    print(f"{loss.item():.4f}")
    peak = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    expected = {}
    for name, each in model.named_modules():
        if isinstance(each, torch.nn.Linear):
            output = kept[len(expected)]
            expected[name] = sum(tensor.untyped_storage().nbytes() for tensor in (output, each.weight.grad))
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(expected, file)
    assert peak.numel() > 0


main()
