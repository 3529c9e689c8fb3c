"""A training step captured into a CUDA graph by PyTorch's own means and replayed with new data: PyTorch's own
cache serves the graph's memory pool. Prints each loss exactly (repr): whatever is underneath the cache, every
bit must be the same.
"""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402  (cuBLAS reads the variable when it is loaded)


def main() -> None:
    torch.manual_seed(4321)
    torch.use_deterministic_algorithms(True)
    device = torch.device("cuda")
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    batch = torch.zeros(64, 256, device=device)
    target = torch.zeros(64, 256, device=device)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(batch), target)
        loss.backward()
        optimizer.step()
        return loss

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    generator = torch.Generator().manual_seed(7)
    for number in range(40):
        batch.copy_(torch.randn(64, 256, generator=generator))
        target.copy_(torch.randn(64, 256, generator=generator))
        graph.replay()
        # Memory that comes and goes beside the replays must not be the graph's.
        noise = torch.full((1 + number, 1 << 18), float(number), device=device)
        if number % 8 == 0:
            print(f"replay {number} loss {loss.item()!r} beside it {noise.sum().item()!r}", flush=True)
        del noise
    del graph
    torch.cuda.empty_cache()
    print(f"sum of parameters {sum(p.detach().double().sum().item() for p in model.parameters())!r}")


main()
