"""What memlab takes of a training step inside the calls that PyTorch makes of it.

    bench_hooks.py LIBMEMLAB [ANOTHER_LIBMEMLAB ...] [--turns N] [--rounds N] [--batch N] [--ddp]

bench_steps.py's transformer with each tensor recorded, under hook_timer.so, which lies beside the first library. A
process is alone on the GPU, the libraries are in turns; each line is of the medians of its rounds of 20 steps: the ns
that an allocation, a free and the end of an operator's forward take, PyTorch's own part of them included, how many
there are in a step, and what all of them are of its time. Without memlab, the first line, it is PyTorch's own part. With
--ddp the training is one rank's under DistributedDataParallel.
"""

import argparse
import ctypes
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_ranks import data_parallel, environment_of_rank, join_world, ports
from bench_steps import VARIANTS, environment_of, transformer

HOOKS = ("allocation", "free", "forward")
STEPS = 20


class Totals(ctypes.Structure):
    _fields_ = (("ticks", ctypes.c_uint64 * len(HOOKS)), ("calls", ctypes.c_uint64 * len(HOOKS)))


def child(timer: str, rounds: int, batch: int, ddp: bool) -> None:
    import torch
    import torch.distributed as dist

    library = ctypes.CDLL(timer)
    library.hook_timer_now.restype = ctypes.c_uint64
    totals = Totals.in_dll(library, "hook_timer_totals")
    if ddp:
        join_world()
    random.seed(1)
    step = transformer(batch, data_parallel) if ddp else transformer(batch)
    found = []
    for number in range(rounds + 3):
        torch.cuda.synchronize()
        ctypes.memset(ctypes.byref(totals), 0, ctypes.sizeof(totals))
        ticks, seconds = library.hook_timer_now(), time.perf_counter()
        for _ in range(STEPS):
            step()
        ticks, seconds = library.hook_timer_now() - ticks, time.perf_counter() - seconds
        if number >= 3:  # everything is new to the first
            found.append((seconds * 1000 / STEPS, sum(totals.ticks) / ticks,
                          [each * seconds * 1e9 / ticks / max(1, calls)
                           for each, calls in zip(totals.ticks, totals.calls)],
                          [calls / STEPS for calls in totals.calls]))
    texts = [f"{name} {statistics.median(row[2][hook] for row in found):.0f} ns x "
             f"{statistics.median(row[3][hook] for row in found):.0f}" for hook, name in enumerate(HOOKS)]
    print(f"{statistics.median(row[0] for row in found):.2f} ms a step; {', '.join(texts)}: "
          f"{statistics.median(row[1] for row in found):.2%} of it", flush=True)
    if ddp:
        dist.destroy_process_group()


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "ddp")
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("libmemlab", nargs="+")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--ddp", action="store_true", help="under DistributedDataParallel")
    arguments = parser.parse_args()
    timer = str(Path(arguments.libmemlab[0]).resolve().with_name("hook_timer.so"))
    cores = set(sorted(os.sched_getaffinity(0))[:2])
    port = ports()
    for _ in range(arguments.turns):
        for name in ("", *arguments.libmemlab):
            with tempfile.TemporaryDirectory() as folder:
                preloaded = f"{timer}:{Path(name).resolve()}" if name else timer
                world = environment_of_rank(0, 1, next(port)) if arguments.ddp else {}
                environment = environment_of(preloaded, VARIANTS["preloaded"], MEMLAB_OUTPUT=folder + "/", **world)
                command = [sys.executable, __file__, "--child", timer, str(arguments.rounds), str(arguments.batch),
                           "ddp" if arguments.ddp else "alone"]
                print(f"{name or 'without memlab'}: ", end="", flush=True)
                outcome = subprocess.run(command, env=environment, check=False,
                                         preexec_fn=lambda: os.sched_setaffinity(0, cores))
                if outcome.returncode != 0:
                    return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
