"""validation.py [grad|no_grad]

A small network in PyTorch, trained for three steps and then validated on sixteen batches whose losses are summed. With
"grad", the default, each loss keeps its graph, and with it what backward would need of every batch: the peak is in the
validation, where nobody expects it, and grows with each batch. "no_grad" keeps nothing.

What to look for, with `memlab-run -- python3 samples/validation.py`: at the allocated peak most is "activations" in "By
category", and the line with `model(batch)` in validate() holds it; the scope "validation" adds more at its peak than
"training". `memlab-report lines validation.py:validate REPORT` shows it in the source, `memlab-report diff` of both runs
what no_grad() saves.
"""

import sys

import torch


def make_model() -> torch.nn.Module:
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers).cuda()


def train(model: torch.nn.Module, steps: int) -> None:
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        batch = torch.randn(512, 1024).cuda()
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate(model: torch.nn.Module, batches: int) -> float:
    total = torch.zeros((), device="cuda")
    for _ in range(batches):
        batch = torch.randn(512, 1024).cuda()
        outputs = model(batch)
        total = total + outputs.square().mean()
    return total.item() / batches


def main() -> int:
    ways = {"grad": torch.enable_grad, "no_grad": torch.no_grad}
    way = sys.argv[1] if len(sys.argv) > 1 else "grad"
    if way not in ways or not torch.cuda.is_available():
        print(__doc__ if way not in ways else "PyTorch finds no GPU", file=sys.stderr)
        return 2
    torch.manual_seed(1)
    model = make_model()
    with torch.cuda.nvtx.range("training"):
        train(model, steps=3)
    with torch.cuda.nvtx.range("validation"), ways[way]():
        loss = validate(model, batches=16)
    print(f"validated: {loss == loss}, at most {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
