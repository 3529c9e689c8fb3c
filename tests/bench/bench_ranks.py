"""What data-parallel training and NCCL take under memlab: a rank per GPU, in worlds of ranks that are alive side by side
and take turns.

    bench_ranks.py LIBMEMLAB [--pairs N] [--rounds N] [--ranks N] [--cores N] [--batch N]
                   [--workload ddp|all_reduce] [--variants NAME,...]

ddp: bench_steps.py's transformer, DistributedDataParallel; a round is 6 steps. all_reduce: sums over 256 MiB; a round
is 20 of them. The variants are bench_steps.py's; the ratio of two worlds is the median of those of their rounds, one
right after the other, each rank on the same cores; printed is the mean of all pairs, with a bootstrap 95 % interval,
the mean over the rounds of the least time that any world needed for that round, with its ratio, and for all_reduce the
bus bandwidth as nccl-tests reckons it: bytes · 2 (ranks − 1) / ranks / time.

NVLink multicast is left off: it can put GPUs that others share out of service.
"""

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bench_steps import VARIANTS, cores_of, environment_of, in_turns, interval, mean_of_least, ratio_of, transformer

if TYPE_CHECKING:
    import torch

STEPS = {"ddp": 6, "all_reduce": 20}
SUMMED_BYTES = 256 << 20


def ports() -> Iterator[int]:
    """One for each world; those of another process mostly begin elsewhere."""
    return itertools.count(20000 + os.getpid() % 20000)


def environment_of_rank(number: int, ranks: int, port: int) -> dict[str, str]:
    """What join_world() and NCCL read."""
    return {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
            "NVSHMEM_DISABLE_NVLS": "1"}


def join_world() -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))


def data_parallel(model: "torch.nn.Module") -> "torch.nn.Module":
    """After join_world()."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])


def rank(workload: str, batch: int) -> None:
    """A rank of a world. For each line that comes it answers with the ms a step of a round takes."""
    import torch
    import torch.distributed as dist

    join_world()
    random.seed(1)
    if workload == "ddp":
        step = transformer(batch, data_parallel)
    else:
        values = torch.ones(SUMMED_BYTES // 4, device="cuda")

        def step() -> None:
            dist.all_reduce(values)

    for _ in range(STEPS[workload]):
        step()
    for _ in sys.stdin:
        step()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS[workload]):
            step()
        torch.cuda.synchronize()
        print(json.dumps((time.perf_counter() - start) * 1000 / STEPS[workload]), flush=True)
    dist.destroy_process_group()


class World:
    """A process per GPU, each on its cores."""

    def __init__(self, library: str, name: str, workload: list[str], cores: list[set[int]], port: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.processes = []
        for number, of_rank in enumerate(cores):
            environment = environment_of(library, VARIANTS[name], MEMLAB_OUTPUT=self.folder.name + "/",
                                         **environment_of_rank(number, len(cores), port))
            self.processes.append(subprocess.Popen([sys.executable, __file__, "--rank", *workload], env=environment,
                                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            os.sched_setaffinity(self.processes[-1].pid, of_rank)

    def run_round(self) -> float:
        """The slowest rank's ms a step."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in self.processes if process.stdout is not None]
        if not all(answers):
            raise SystemExit("bench_ranks.py: a rank ended")
        return max(json.loads(answer) for answer in answers)

    def end(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            process.wait()
        self.folder.cleanup()


def main() -> int:
    if sys.argv[1:2] == ["--rank"]:
        rank(sys.argv[2], int(sys.argv[3]))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("libmemlab")
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--cores", type=int, default=4, help="of a rank: training, backward pass, NCCL's threads")
    parser.add_argument("--batch", type=int, default=16,
                        help="ddp: sequences of a rank's step; with many the GPU limits it")
    parser.add_argument("--workload", choices=tuple(STEPS), default="ddp")
    parser.add_argument("--variants", default="PyTorch,preloaded,recording",
                        help="the first one is what the ratios are to; also: " + ", ".join(VARIANTS))
    options = parser.parse_args()
    names = options.variants.split(",")
    for name in names:
        if name not in VARIANTS:
            parser.error(f"no variant {name!r}")
    workload = [options.workload, str(options.batch)]
    port = ports()
    worlds = []
    for number in range(options.pairs):
        cores = [cores_of(number * options.ranks + rank, options.pairs * options.ranks, options.cores)
                 for rank in range(options.ranks)]
        for name in in_turns(names, number):
            worlds.append((name, World(options.libmemlab, name, workload, cores, next(port)), []))
    for number in range(options.rounds):
        for _, world, times in worlds:
            taken = world.run_round()
            if number >= options.rounds // 4:  # everything is new to the first ones
                times.append(taken)
    for _, world, _ in worlds:
        world.end()
    times_of: dict[str, list[list[float]]] = {name: [times for who, _, times in worlds if who == name] for name in names}
    print(f"{options.workload:24} {'ms':>9} {'ratio':>7} {'95 % interval':>16} {'least':>9} {'ratio':>7} {'bus GB/s':>9}")
    least: dict[str, float] = {}
    for name in names:
        least[name] = mean_of_least(times_of[name])
        ratios = [ratio_of(times, own, 2) for times, own in zip(times_of[name], times_of[names[0]])]
        low, high = interval(ratios)
        median = statistics.median(itertools.chain(*times_of[name]))
        bus = SUMMED_BYTES * 2 * (options.ranks - 1) / options.ranks / median / 1e6
        print(f"{name:24} {median:9.3f} {statistics.fmean(ratios):7.3f} {low:7.3f} to {high:.3f} {least[name]:9.3f} "
              f"{least[name] / least[names[0]]:7.3f} "
              + (f"{bus:9.1f}" if options.workload == "all_reduce" else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
