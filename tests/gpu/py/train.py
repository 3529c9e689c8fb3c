"""A small transformer, trained for a few steps with deterministic algorithms. Prints the loss of each
step exactly (repr): whatever serves the memory, every bit must be the same.
"""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402  (cuBLAS reads the variable when it is loaded)


def main() -> None:
    torch.manual_seed(1234)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    device = torch.device("cuda")
    layer = torch.nn.TransformerEncoderLayer(d_model=128, nhead=4, dim_feedforward=512, dropout=0.1,
                                             batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(1000, 128),
                                torch.nn.TransformerEncoder(layer, num_layers=3,
                                                            enable_nested_tensor=False),
                                torch.nn.Linear(128, 1000)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(99)
    for step in range(6):
        length = 32 + 16 * (step % 3)
        tokens = torch.randint(0, 1000, (8, length), generator=generator).to(device)
        target = torch.randint(0, 1000, (8, length), generator=generator).to(device)
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), target.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        print(f"step {step} length {length} loss {loss.item()!r}", flush=True)
    total = sum(parameter.detach().double().sum().item() for parameter in model.parameters())
    print(f"sum of parameters {total!r}")


main()
