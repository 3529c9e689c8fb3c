"""pytorch_tensors.py MODE FILE

PyTorch with its own cache, in one of several ways of using it. At each mark the cache's own statistics
(torch.cuda.memory_stats) are written to FILE, as JSON: memlab's report must have the same bytes there, and the
same number of blocks at the end. Prints losses and sums exactly (repr).

MODE: training, peaks, graphs, mempool, streams, threads, out_of_memory, compiled, generate; with PYTORCH_ALLOC_CONF=
expandable_segments:True or backend:cudaMallocAsync any of them. many, and many_killed, which ends by SIGKILL: 400,000
tensors, for a log that is a ring by then.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import sys
import threading
import warnings
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402  (cuBLAS reads the variable when it is loaded)

marks: list[dict[str, object]] = []
highest = {"allocated": 0, "reserved": 0}  # before the latest reset of the cache's peaks


def reset_peaks() -> None:
    stats = torch.cuda.memory_stats()
    for name, peak in highest.items():
        highest[name] = max(peak, stats[f"{name}_bytes.all.peak"])
    torch.cuda.reset_peak_memory_stats()


def mark(name: str) -> None:
    stats = torch.cuda.memory_stats()
    marks.append({"name": name, "allocated": stats["allocated_bytes.all.current"],
                  "reserved": stats["reserved_bytes.all.current"],
                  # 0 where cudaMallocAsync serves: it does not count them
                  "blocks": stats.get("allocation.all.allocated", 0), "live": stats.get("allocation.all.current", 0),
                  "allocated_peak": max(highest["allocated"], stats["allocated_bytes.all.peak"]),
                  "reserved_peak": max(highest["reserved"], stats["reserved_bytes.all.peak"])})
    tell = getattr(ctypes.CDLL(None), "memlab_api_mark", None)
    if tell is not None:
        tell(name.encode())


def make_model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    layer = torch.nn.TransformerEncoderLayer(d_model=256, nhead=4, dim_feedforward=1024, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, num_layers=3, enable_nested_tensor=False).cuda()
    return model, torch.optim.Adam(model.parameters(), lr=1e-4, capturable=True)


def training() -> None:
    model, optimizer = make_model()
    generator = torch.Generator().manual_seed(5)
    mark("model")
    for step in range(8):
        batch = torch.randn(8, 40 + 24 * (step % 3), 256, generator=generator).cuda()
        loss = model(batch).square().mean()
        mark(f"forward {step}")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item()!r}")
        mark(f"step {step}")
    torch.cuda.empty_cache()
    mark("emptied")


def peaks() -> None:
    """memlab.peak() has the peak that PyTorch has of the same lines, and their names. The first step makes cuBLAS's memory,
    which is not PyTorch's."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "python"))
    import memlab

    warnings.simplefilter("ignore", memlab.NotRecordedWarning)
    model, optimizer = make_model()
    generator = torch.Generator().manual_seed(5)
    for step in range(5):
        batch = torch.randn(8, 40 + 24 * (step % 3), 256, generator=generator).cuda()
        reset_peaks()
        before = torch.cuda.memory_allocated()
        with memlab.peak() as p:
            loss = model(batch).square().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        grew = torch.cuda.max_memory_allocated() - before
        if step > 0 and p.growth_bytes not in (None, grew):
            print(f"step {step}: memlab.peak() has {p.growth_bytes}")
        if p.sites is not None and sum(site.bytes for site in p.sites) + p.other_bytes != p.bytes:
            print(f"step {step}: the sites are not the peak")
        if p.lines is not None and not any(line.file == __file__ and line.function == "peaks" for line in p.lines):
            print(f"step {step}: no line of this file")
        print(f"step {step} loss {loss.item()!r}, grew by {grew}")
        mark(f"step {step}")


def graphs() -> None:
    model, optimizer = make_model()
    batch = torch.zeros(8, 64, 256, device="cuda")

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    mark("warm")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    mark("captured")
    generator = torch.Generator().manual_seed(6)
    for number in range(20):
        batch.copy_(torch.randn(8, 64, 256, generator=generator))
        graph.replay()
        print(f"replay {number} loss {loss.item()!r}")
    mark("replayed")
    del graph, loss
    torch.cuda.empty_cache()
    mark("ended")


def mempool() -> None:
    pool = torch.cuda.MemPool()
    kept = [torch.ones(1 << 20, device="cuda")]
    with torch.cuda.use_mem_pool(pool):
        kept += [torch.full((1 << 18,), float(i), device="cuda") for i in range(20)]
        mark("in the pool")
    kept += [torch.zeros(3 << 20, device="cuda")]
    mark("beside it")
    print(repr(sum(each.sum().item() for each in kept)))
    del kept
    del pool
    torch.cuda.empty_cache()
    mark("gone")


def streams() -> None:
    side = torch.cuda.Stream()
    total = torch.zeros((), device="cuda")
    for number in range(50):
        data = torch.full((1 + 37 * number, 1000), float(number), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            result = data.sum()
            data.record_stream(side)
        torch.cuda.current_stream().wait_stream(side)
        total += result
        del data, result
        if number % 10 == 9:
            mark(f"after {number}")
    print(repr(total.item()))


def threads() -> None:
    sums = [0.0] * 6

    def work(number: int) -> None:
        for turn in range(200):
            piece = torch.full((1000 * (1 + (turn * 7 + number) % 13),), 1.0, device="cuda")
            sums[number] += piece.sum().item()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(len(sums))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(repr(sums))
    mark("all threads")


def out_of_memory() -> None:
    kept = []
    whole = torch.cuda.get_device_properties(0).total_memory
    try:
        while len(kept) < 1000:
            kept.append(torch.empty(whole // 7, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        print("out of memory")
    mark("full")
    kept.clear()
    torch.cuda.empty_cache()
    print(repr(torch.ones(1000, device="cuda").sum().item()))
    mark("recovered")


def compiled() -> None:
    model, optimizer = make_model()
    step = torch.compile(lambda batch: model(batch).square().mean())
    generator = torch.Generator().manual_seed(7)
    for number in range(4):
        batch = torch.randn(8, 64, 256, generator=generator).cuda()
        loss = step(batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        print(f"step {number} loss {loss.item()!r}")
        mark(f"step {number}")


def generate() -> None:
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=1000, n_positions=128, n_embd=256, n_layer=4, n_head=4)).cuda().eval()
    mark("model")
    prompt = torch.randint(1000, (4, 16), generator=torch.Generator().manual_seed(8)).cuda()
    for number in range(2):
        tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=48, do_sample=False,
                                pad_token_id=0)
        print(f"generated {tokens.sum().item()}")
        mark(f"generated {number}")


def many() -> None:
    sizes = random.Random(9)
    window: list[torch.Tensor | None] = [None] * 64
    for number in range(400_000):
        window[sizes.randrange(len(window))] = torch.empty(sizes.randrange(1, 1 << 20), dtype=torch.uint8, device="cuda")
        if number % 10_000 == 0:
            mark(f"tensor {number}")


def many_killed() -> None:
    many()


def main() -> None:
    mode, path = sys.argv[1:]
    torch.manual_seed(77)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    globals()[mode]()
    mark("end")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(marks, file)
    if mode == "many_killed":
        os.kill(os.getpid(), signal.SIGKILL)


main()
