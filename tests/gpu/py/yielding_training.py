"""yielding_training.py STEPS MIB

A small transformer, trained with deterministic algorithms, beside so many MiB of tensors that nobody touches. Says
"ready" after the first step, and at the end one line of JSON: every loss exactly, the sum of the parameters, and that of
the untouched tensors. tests/gpu/step_aside.py moves its memory meanwhile: every bit must be as without."""

from __future__ import annotations

import json
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402  (cuBLAS reads the variable when it is loaded)


def main() -> None:
    steps, mebibytes = int(sys.argv[1]), int(sys.argv[2])
    torch.manual_seed(1234)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    device = torch.device("cuda")
    held = [torch.arange(i, i + (64 << 20) // 4, dtype=torch.int32, device=device) for i in range(mebibytes // 64)]
    layer = torch.nn.TransformerEncoderLayer(d_model=256, nhead=4, dim_feedforward=1024, dropout=0.1, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(1000, 256),
                                torch.nn.TransformerEncoder(layer, num_layers=4, enable_nested_tensor=False),
                                torch.nn.Linear(256, 1000)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(99)
    losses = []
    for step in range(steps):
        length = 32 + 16 * (step % 3)
        tokens = torch.randint(0, 1000, (8, length), generator=generator).to(device)
        target = torch.randint(0, 1000, (8, length), generator=generator).to(device)
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), target.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(repr(loss.item()))
        if step == 0:
            print("ready", flush=True)
    total = sum(parameter.detach().double().sum().item() for parameter in model.parameters())
    untouched = [int(each.to(torch.int64).sum().item()) for each in held]
    print(json.dumps({"losses": losses, "parameters": repr(total), "untouched": untouched}), flush=True)


main()
