"""pytorch_categories.py MODEL FILE

Trains MODEL (transformer, resnet or gpt2) for a few steps under PyTorch's own memory profiler and writes what it
says to FILE, as JSON: by category, the bytes at the peak of what it saw. memlab's categories are compared with that.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402  (cuBLAS reads the variable when it is loaded)
from torch.profiler import ProfilerActivity, profile  # noqa: E402

Step = Callable[[], torch.Tensor]


class Block(torch.nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.first_norm = torch.nn.BatchNorm2d(out)
        self.second = torch.nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.second_norm = torch.nn.BatchNorm2d(out)
        self.beside = torch.nn.Identity() if channels == out else torch.nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        inner = torch.relu(self.first_norm(self.first(batch)))
        return torch.relu(self.second_norm(self.second(inner)) + self.beside(batch))


def transformer() -> tuple[torch.nn.Module, Step]:
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).cuda()
    return model, lambda: model(torch.randn(8, 96, 256).cuda()).square().mean()


def resnet() -> tuple[torch.nn.Module, Step]:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 7, 2, 3), torch.nn.BatchNorm2d(64), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1),
        Block(64, 64, 1), Block(64, 128, 2), Block(128, 256, 2), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(256, 100)).cuda()

    def step() -> torch.Tensor:
        images, labels = torch.randn(16, 3, 96, 96).cuda(), torch.randint(100, (16,)).cuda()
        return torch.nn.functional.cross_entropy(model(images), labels)
    return model, step


def gpt2() -> tuple[torch.nn.Module, Step]:
    from transformers import GPT2Config, GPT2LMHeadModel

    # Training reads no cache of keys and values.
    model = GPT2LMHeadModel(GPT2Config(vocab_size=5000, n_positions=128, n_embd=256, n_layer=2, n_head=4,
                                       use_cache=False)).cuda()

    def step() -> torch.Tensor:
        tokens = torch.randint(5000, (8, 128)).cuda()
        return model(tokens, labels=tokens).loss
    return model, step


def peak_by_category(memory: object) -> dict[str, int]:
    """Of a MemoryProfile of torch.profiler: what lived when the sum was largest."""
    live: dict[int, tuple[str, int]] = {}
    held, most, at_peak = 0, 0, {}
    for _, action, (key, version), size in memory.timeline:
        if key.device.type != "cuda":
            continue
        begins = action.name in ("CREATE", "PREEXISTING")
        storage = getattr(key, "storage", None)
        if storage is None:  # memory of no tensor that the profiler knows
            if begins or action.name == "DESTROY":
                held += size if begins else -size
        elif begins:
            category = memory._categories.get(key, version)
            live[storage.ptr] = ("none" if category is None else category.name.lower(), size)
            held += size
        elif action.name == "DESTROY" and storage.ptr in live:
            held -= live.pop(storage.ptr)[1]
        if held > most:
            most, at_peak = held, dict(live)
    sums: Counter[str] = Counter()
    for category, size in at_peak.values():
        sums[category] += size
    return dict(sums)


def main() -> None:
    name, path = sys.argv[1:]
    if name == "gpt2":  # the profiler would record each call of Python's that the import makes, which are millions
        from transformers import GPT2Config, GPT2LMHeadModel  # noqa: F401
    torch.manual_seed(3)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True,
                 with_stack=True) as recorded:
        model, step = {"transformer": transformer, "resnet": resnet, "gpt2": gpt2}[name]()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        for number in range(3):
            loss = step()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {number} loss {loss.item()!r}")
    said = peak_by_category(recorded._memory_profile())
    with open(path, "w", encoding="utf-8") as file:
        json.dump(said, file)


main()
