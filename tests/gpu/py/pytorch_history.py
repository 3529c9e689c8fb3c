"""pytorch_history.py WORKLOAD STEPS [OUT.xz] [--limit BYTES]

Trains WORKLOAD (transformer or convnet) for STEPS steps of varying size and writes what PyTorch's
own allocator did, event by event: the recordings against which the what-if model of that allocator
is checked (tests/unit/whatif). The allocator's settings are PYTORCH_ALLOC_CONF's; --limit lets
PyTorch believe that it may use no more than so many bytes. Without OUT it only trains: so any other
allocator sees the same program.

The file is xz-packed text. First line: JSON (versions, settings, the allocator's statistics at the
end, after how many allocations each step ended). Then a line per event in the allocator's order:

    a ADDRESS REQUESTED [STREAM]   an allocation; ADDRESS in units of 512 bytes, hexadecimal
    f ADDRESS                      free_requested, and free_completed at once
    r ADDRESS / c ADDRESS          free_requested / free_completed where others lie between
    S ADDRESS SIZE / s ADDRESS SIZE   segment_alloc / segment_free
    M ADDRESS SIZE / m ADDRESS SIZE   segment_map / segment_unmap
    o REQUESTED                    out of memory

STREAM is left out for the default stream. Sizes in bytes, decimal.
"""

from __future__ import annotations

import argparse
import lzma
import json
import os
import random
import time

import torch


class Transformer:
    """Sequences of random length: no step's tensors are as large as the last one's."""

    def __init__(self) -> None:
        layer = torch.nn.TransformerEncoderLayer(512, 8, dim_feedforward=2048, batch_first=True)
        self.model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.random = random.Random(1)

    def step(self) -> float:
        batch = torch.randn(16, self.random.randint(64, 256), 512, device="cuda")
        loss = self.model(batch).square().mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item()


class Convnet:
    """Batches of random size through convolutions, whose workspaces vary too."""

    def __init__(self) -> None:
        layers: list[torch.nn.Module] = []
        channels = 3
        for wider in (32, 64, 128, 256):
            layers += [torch.nn.Conv2d(channels, wider, 3, padding=1), torch.nn.BatchNorm2d(wider),
                       torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
            channels = wider
        self.model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.LazyLinear(100)).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.random = random.Random(2)

    def step(self) -> float:
        batch = self.random.randint(8, 64)
        images = torch.randn(batch, 3, 96, 96, device="cuda")
        labels = torch.randint(0, 100, (batch,), device="cuda")
        loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item()


WORKLOADS = {"transformer": Transformer, "convnet": Convnet}
SEGMENT_LETTERS = {"segment_alloc": "S", "segment_free": "s", "segment_map": "M", "segment_unmap": "m"}


def lines_of(trace: list[dict]) -> list[str]:
    """The events as the file's lines. Two events of one free become one line where they are neighbours."""
    lines: list[str] = []
    for event in trace:
        action, address = event["action"], event["addr"]
        if action == "alloc":
            stream = f" {event['stream']:x}" if event["stream"] else ""
            lines.append(f"a {address // 512:x} {event['size']}{stream}")
        elif action == "free_requested":
            lines.append(f"r {address // 512:x}")
        elif action == "free_completed":
            if lines and lines[-1] == f"r {address // 512:x}":
                lines[-1] = f"f {address // 512:x}"
            else:
                lines.append(f"c {address // 512:x}")
        elif action in SEGMENT_LETTERS:
            lines.append(f"{SEGMENT_LETTERS[action]} {address // 512:x} {event['size']}")
        elif action == "oom":
            lines.append(f"o {event['size']}")
        elif action not in ("snapshot", "user_defined"):
            raise ValueError(f"an action that this file format does not know: {action}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("steps", type=int)
    parser.add_argument("out", nargs="?")
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()

    torch.manual_seed(1234)
    total = torch.cuda.get_device_properties(0).total_memory
    if arguments.limit:
        torch.cuda.set_per_process_memory_fraction(arguments.limit / total)
    if arguments.out:
        torch.cuda.memory._record_memory_history(context=None, max_entries=10_000_000)
    workload = WORKLOADS[arguments.workload]()
    allocations_by_step = []
    started = time.monotonic()
    warm = started
    for step in range(arguments.steps):
        workload.step()
        if step == 2:
            warm = time.monotonic()
        if arguments.out:
            allocations_by_step.append(torch.cuda.memory_stats()["allocation.all.allocated"])
    torch.cuda.synchronize()
    steps_timed = max(arguments.steps - 3, 1)
    print(f"{arguments.workload}: {1e3 * (time.monotonic() - warm) / steps_timed:.2f} ms a step "
          f"(after the first three)", flush=True)
    if not arguments.out:
        return
    stats = torch.cuda.memory_stats()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    head = {
        "workload": arguments.workload, "steps": arguments.steps, "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(0), "total_bytes": total,
        "settings": os.environ.get("PYTORCH_ALLOC_CONF", ""),
        "limit_bytes": int(arguments.limit / total * total) if arguments.limit else 0,
        "allocations_by_step": allocations_by_step,
        "stats": {name: value for name, value in stats.items()
                  if name.startswith(("reserved_bytes.all", "allocated_bytes.all", "num_", "segment.all"))},
    }
    text = "\n".join([json.dumps(head), *lines_of(trace)]) + "\n"
    with lzma.open(arguments.out, "wt", encoding="ascii", preset=9 | lzma.PRESET_EXTREME) as file:
        file.write(text)
    mib = 1 << 20
    print(f"{arguments.out}: {len(trace)} events, allocated peak {stats['allocated_bytes.all.peak'] / mib:.2f} MiB, "
          f"reserved peak {stats['reserved_bytes.all.peak'] / mib:.2f} MiB, {os.path.getsize(arguments.out)} bytes")


main()
