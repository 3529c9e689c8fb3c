"""Training steps with NVTX ranges around forward, backward and optimizer. Prints what autograd saved
for backward: what the forward range must leave behind.
"""

import torch

LAYERS, WIDTH, BATCH, STEPS = 6, 1024, 8192, 12


def main() -> None:
    torch.manual_seed(7)
    layers = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(BATCH, WIDTH, device="cuda")
    known = {tensor.untyped_storage().data_ptr() for tensor in [batch, *model.parameters()]}
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if tensor.is_cuda and storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    for _ in range(STEPS):
        saved.clear()
        torch.cuda.nvtx.range_push("step")
        torch.cuda.nvtx.range_push("forward")
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = model(batch).square().mean()
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_push("backward")
        loss.backward()
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_push("optimizer")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.nvtx.range_pop()
        del loss
        torch.cuda.nvtx.range_pop()
    print(f"saved {sum(saved.values())} parameters {sum(p.nbytes for p in model.parameters())}")


main()
