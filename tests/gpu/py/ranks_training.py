"""Training over NCCL with one GPU per rank, run by torchrun: in each of the ways that are named, one after the other.

    ranks_training.py WAY...

ddp, fsdp, pipeline (activations and gradients sent from rank to rank) and registered (NCCL's own memory, registered as
user buffers) train or sum with deterministic algorithms; rank 0 prints what each rank got, as digests of every bit.
Three end the run: out_of_memory, killed and stuck are what becomes of the last rank while the others wait for it. With
stray the last rank asks for the first GPU's free memory by mistake, which makes a context there.

Each rank keeps 32 MiB more than the one before it. With NVML_OUT=FOLDER, what NVML says of each rank's GPU at the end
is written there.
"""

import ctypes
import datetime
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402  (cuBLAS reads the variable when it is loaded)
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

STEPS = 5


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """Of every bit."""
    sum_ = hashlib.sha256()
    for tensor in tensors:
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        sum_.update(local.detach().reshape(-1).contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return sum_.hexdigest()[:16]


def transformer() -> torch.nn.Module:
    torch.manual_seed(1234)
    layer = torch.nn.TransformerEncoderLayer(d_model=256, nhead=4, dim_feedforward=1024, dropout=0.1, batch_first=True)
    return torch.nn.Sequential(torch.nn.Embedding(1000, 256),
                               torch.nn.TransformerEncoder(layer, num_layers=4, enable_nested_tensor=False),
                               torch.nn.Linear(256, 1000)).to("cuda")


def train(model: torch.nn.Module) -> str:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(99 + dist.get_rank())
    losses = []
    for step in range(STEPS):
        length = 64 + 32 * (step % 3)
        tokens = torch.randint(0, 1000, (8, length), generator=generator).to("cuda")
        target = torch.randint(0, 1000, (8, length), generator=generator).to("cuda")
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), target.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return f"{digest(model.parameters())} losses {losses!r}"


def ddp() -> str:
    return train(DistributedDataParallel(transformer(), device_ids=[torch.cuda.current_device()]))


def fsdp() -> str:
    from torch.distributed.fsdp import fully_shard

    model = transformer()
    for layer in model[1].layers:
        fully_shard(layer)
    fully_shard(model)
    return train(model)


def pipeline() -> str:
    """A stage per rank."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    torch.manual_seed(5 + rank)
    stage = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).to("cuda")
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    for step in range(STEPS):
        given = torch.full((256 + 64 * step, 1024), 0.01 * step, device="cuda")
        if rank > 0:
            dist.recv(given, rank - 1)
        given.requires_grad_()
        made = stage(given)
        optimizer.zero_grad(set_to_none=True)
        if rank < last:
            dist.send(made.detach(), rank + 1)
            gradient = torch.empty_like(made)
            dist.recv(gradient, rank + 1)
            made.backward(gradient)
        else:
            made.square().mean().backward()
        if rank > 0:
            dist.send(given.grad, rank - 1)
        optimizer.step()
    return digest(stage.parameters())


def registered() -> str:
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        values = torch.arange(1 << 22, device="cuda", dtype=torch.float32) % 1024
        values *= dist.get_rank() + 1
    backend.register_mem_pool(pool)
    dist.all_reduce(values)
    torch.cuda.synchronize()
    text = digest([values])
    backend.deregister_mem_pool(pool)
    return text


def last_rank() -> bool:
    return dist.get_rank() == dist.get_world_size() - 1


def wait_for_all() -> str:
    dist.all_reduce(torch.ones(1, device="cuda"))
    torch.cuda.synchronize()
    return "nobody was missing"


def out_of_memory() -> str:
    if last_rank():
        torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
    return wait_for_all()


def killed() -> str:
    if last_rank():
        os.kill(os.getpid(), signal.SIGKILL)
    return wait_for_all()


def stuck() -> str:
    if last_rank():
        time.sleep(600)
    return wait_for_all()


def stray() -> str:
    if last_rank():
        torch.cuda.mem_get_info(0)  # makes a context on the first rank's GPU
    return wait_for_all()


WAYS = {way.__name__: way for way in (ddp, fsdp, pipeline, registered, out_of_memory, killed, stuck, stray)}


class NvmlMemory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def what_nvml_says(folder: Path) -> None:
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device, memory = ctypes.c_void_p(), NvmlMemory()
    bus = torch.cuda.get_device_properties(torch.cuda.current_device())
    name = f"{bus.pci_domain_id:08x}:{bus.pci_bus_id:02x}:{bus.pci_device_id:02x}.0".encode()
    free, total = torch.cuda.mem_get_info()
    for code in (nvml.nvmlInit_v2(), nvml.nvmlDeviceGetHandleByPciBusId_v2(name, ctypes.byref(device)),
                 nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))):
        if code != 0:
            raise OSError(f"NVML answers {code}")
    (folder / f"nvml.{dist.get_rank()}.json").write_text(
        json.dumps({"used_bytes": memory.used, "cuda_used_bytes": total - free}), encoding="utf-8")


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=120),
                            device_id=torch.device("cuda", torch.cuda.current_device()))
    kept = torch.zeros((dist.get_rank() + 1) * (8 << 20), device="cuda")
    for way in sys.argv[1:]:
        answers: list = [None] * dist.get_world_size()
        dist.all_gather_object(answers, WAYS[way]())
        if dist.get_rank() == 0:
            for rank, answer in enumerate(answers):
                print(f"{way}: rank {rank}: {answer}", flush=True)
    if "NVML_OUT" in os.environ:
        dist.barrier()
        what_nvml_says(Path(os.environ["NVML_OUT"]))
        dist.barrier()
    assert kept.nbytes > 0
    dist.destroy_process_group()


main()
