"""One rank of a small data-parallel training (gloo, so that several ranks may share one GPU): the later
ranks keep more memory. Run by torchrun.
"""

import os

import torch
import torch.distributed


def main() -> None:
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(7)
    model = torch.nn.Linear(1024, 1024).to("cuda")
    kept = torch.zeros((rank + 1) * (8 << 20), device="cuda")
    for _ in range(3):
        model.zero_grad()
        model(torch.ones(64, 1024, device="cuda")).square().mean().backward()
        for parameter in model.parameters():
            host = parameter.grad.cpu()
            torch.distributed.all_reduce(host)
            parameter.grad.copy_(host)
    torch.distributed.barrier()
    print(f"rank {rank} of {os.environ['WORLD_SIZE']} keeps {kept.nbytes >> 20} MiB", flush=True)
    torch.distributed.destroy_process_group()


main()
