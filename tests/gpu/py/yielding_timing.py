"""yielding_timing.py MIB

Holds so many MiB in PyTorch's tensors, and says as JSON how long tensor.cpu() and back of the same take: into fresh
pageable memory, as pytorch_memlab's Courtesy does it. Then waits for lines: "check" is answered with whether the
contents are intact, which brings memory back that is away; anything else ends it."""

from __future__ import annotations

import json
import sys
import time

import torch


def main() -> None:
    count = int(sys.argv[1]) // 256
    held = [torch.arange(i, i + (256 << 20) // 4, dtype=torch.int32, device="cuda") for i in range(count)]
    sums = [int(each.to(torch.int64).sum().item()) for each in held]
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    begin = time.monotonic()
    away = [each.cpu() for each in held]
    out = time.monotonic() - begin
    begin = time.monotonic()
    back = [each.cuda() for each in away]
    torch.cuda.synchronize()
    print(json.dumps({"out": out, "in": time.monotonic() - begin}), flush=True)
    del away, back
    torch.cuda.empty_cache()
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() != "check":
            break
        same = sums == [int(each.to(torch.int64).sum().item()) for each in held]
        torch.cuda.empty_cache()
        print("intact" if same else "damaged", flush=True)


main()
