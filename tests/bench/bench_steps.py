"""What a training step takes: a variable-length transformer in PyTorch, with its own cache and with memlab's pool
in its place, and a small network in JAX, in processes that run side by side and take turns.

    bench_steps.py LIBMEMLAB [--pairs N] [--together N] [--steps N] [--in-a-row N] [--batch N]
                   [--variants NAME,...] [--before LIBMEMLAB]

Prints, per variant, the median of the steps' times over all processes, the ratio to the first variant, the mean
over the steps of the least time that any process needed for that very step (all see the same sizes) with its
ratio, and the reserved and allocated peaks. The ratio of two processes is the median of those of their rounds, the
same steps one right after the other, on the same two cores; what is printed is the mean of all pairs, with a
bootstrap 95 % interval.
Timed runs of PyTorch do not record, except the variants "recording ..." (with Python in their stacks, with native
ones only, with none); the peaks of memlab's pool come from one more run that does. Those of JAX record.
What recording costs: --variants "memlab vmm,recording,recording native,recording no stacks"; what names of
nn.Modules cost: --variants "preloaded,preloaded names" and "many nn.Modules,many nn.Modules names"; what being able
to step aside costs: --variants "preloaded,preloaded yield"; what PyTorch's
own memory history costs: --variants "PyTorch,history all,history python"; memory that the driver's pools or the
program's own mappings serve: --variants "JAX async,memlab JAX async" and "JAX platform,memlab JAX platform". Two
builds of memlab beside each other: --before ANOTHER_LIBMEMLAB --variants "before memlab vmm,memlab vmm".
"""

import argparse
import glob
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

# What PyTorch's own memory history costs: the argument of _record_memory_history's `stacks`.
HISTORY = "BENCH_MEMORY_HISTORY"


class Variant(NamedTuple):
    """A way to run a workload."""
    workload: str
    preloaded: bool
    settings: dict[str, str]


def torch_cache(**settings: str) -> Variant:
    return Variant("transformer", False, settings)


def torch_preloaded(**settings: str) -> Variant:
    return Variant("transformer", True, settings)


def torch_replaced(**settings: str) -> Variant:
    # To wait for one's turn is no reason to give memory back: training has no such pauses.
    return Variant("transformer", True, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "MEMLAB_RECORD": "off",
                                         "MEMLAB_TRIM_AFTER": "5min"} | settings)


def jax(allocator: str, preloaded: bool) -> Variant:
    return Variant("jax", preloaded, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false",
                                      "XLA_PYTHON_CLIENT_ALLOCATOR": allocator})


VARIANTS = {
    "PyTorch": torch_cache(),
    "PyTorch expandable": torch_cache(PYTORCH_ALLOC_CONF="expandable_segments:True"),
    # PyTorch's own cache, each of its tensors recorded.
    "preloaded": torch_preloaded(),
    "preloaded native": torch_preloaded(MEMLAB_PYTHON="off"),
    "preloaded unrecorded": torch_preloaded(MEMLAB_RECORD="off"),
    "preloaded no stacks": torch_preloaded(MEMLAB_STACK_DEPTH="0"),
    "preloaded no ledger": torch_preloaded(MEMLAB_LEDGER="off"),
    "preloaded yield": torch_preloaded(MEMLAB_YIELD="on"),
    "preloaded names": torch_preloaded(MEMLAB_NAMES="auto"),
    "many nn.Modules": Variant("nn_modules", True, {}),
    "many nn.Modules names": Variant("nn_modules", True, {"MEMLAB_NAMES": "auto"}),
    "history all": torch_cache(**{HISTORY: "all"}),
    "history python": torch_cache(**{HISTORY: "python"}),
    "memlab classic": torch_replaced(MEMLAB_BACKEND="classic"),
    "many streams": torch_replaced(MEMLAB_ONE_STREAM="off", MEMLAB_BACKEND="classic"),
    "memlab vmm": torch_replaced(MEMLAB_BACKEND="vmm"),
    "many streams vmm": torch_replaced(MEMLAB_ONE_STREAM="off", MEMLAB_BACKEND="vmm"),
    "recording": torch_replaced(MEMLAB_RECORD="on"),
    "recording classic": torch_replaced(MEMLAB_RECORD="on", MEMLAB_BACKEND="classic"),
    "recording native": torch_replaced(MEMLAB_RECORD="on", MEMLAB_PYTHON="off"),
    "recording no stacks": torch_replaced(MEMLAB_RECORD="on", MEMLAB_STACK_DEPTH="0"),
    "JAX": jax("default", False),
    "memlab JAX": jax("default", True),
    "JAX async": jax("cuda_async", False),
    "memlab JAX async": jax("cuda_async", True),
    "JAX platform": jax("platform", False),
    "memlab JAX platform": jax("platform", True),
}
STARTUP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python", "memlab", "startup")
BEFORE = "before "  # in front of a variant's name: with the library of --before
DEFAULT = "PyTorch,PyTorch expandable,memlab classic,memlab vmm"


class Round(NamedTuple):
    """What a process does in its turn."""
    in_a_row: int  # steps; the first of them is not timed
    batch: int  # sequences of a step


def transformer(batch_size: int, wrap: Callable = lambda model: model) -> Callable[[], None]:
    import torch

    torch.manual_seed(1)
    device = torch.device("cuda")
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = wrap(torch.nn.TransformerEncoder(layer, 6).to(device))
    if HISTORY in os.environ:
        torch.cuda.memory._record_memory_history(stacks=os.environ[HISTORY], max_entries=1_000_000)
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        batch = torch.randn(batch_size, random.randint(64, 256), 512, device=device)
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()

    return step


def nn_modules(batch_size: int) -> Callable[[], None]:
    """A model of 1,000 nn.Modules, small ones: the host limits the step."""
    import torch

    torch.manual_seed(1)
    block = [torch.nn.Sequential(torch.nn.LayerNorm(256), torch.nn.Linear(256, 256), torch.nn.GELU()) for _ in range(250)]
    model = torch.nn.Sequential(*block).cuda()
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(torch.randn(batch_size * random.randint(4, 16), 256, device="cuda")).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()

    return step


def jax_network(batch_size: int) -> Callable[[], None]:
    import jax as framework
    import jax.numpy as jnp

    weights = [(jnp.arange(1 << 20, dtype=jnp.float32) % 7).reshape(1024, 1024) / 4096 for _ in range(4)]

    def loss(parameters, batch):
        for weight in parameters:
            batch = jnp.tanh(batch @ weight)
        return (batch * batch).mean()

    gradient = framework.jit(framework.value_and_grad(loss))

    def step() -> None:
        batch = jnp.ones((16 * batch_size * random.randint(1, 3), 1024))
        framework.block_until_ready(gradient(weights, batch))

    return step


def peaks_of_torch() -> dict[str, int]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    return {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}


def child(workload: str, turn: Round) -> None:
    """Runs so many steps for each line that comes, and answers with the times of all but the first in ms."""
    random.seed(1)
    step = {"transformer": transformer, "nn_modules": nn_modules, "jax": jax_network}[workload](turn.batch)
    for _ in range(turn.in_a_row):  # what is compiled at first is, while the others do the same
        step()
    for _ in sys.stdin:
        times = []
        for _ in range(turn.in_a_row):
            start = time.perf_counter()
            step()
            times.append((time.perf_counter() - start) * 1000)
        print(json.dumps({"ms": times[1:]} | peaks_of_torch()), flush=True)


class Libraries(NamedTuple):
    """The builds of memlab that are compared; mostly one."""
    now: str
    before: str

    def of(self, name: str) -> tuple[str, Variant]:
        if name.startswith(BEFORE):
            return self.before, VARIANTS[name.removeprefix(BEFORE)]
        return self.now, VARIANTS[name]


def environment_of(library: str, variant: Variant, **more: str) -> dict:
    """Of a process of a variant; `more` comes last. All have Python's hashes alike, so that their tables are."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMLAB_")}
    environment["PYTHONHASHSEED"] = "0"
    if variant.preloaded:
        environment["LD_PRELOAD"] = library
    if variant.settings.get("MEMLAB_NAMES") == "auto":  # as memlab-run does without the wheel
        environment["PYTHONPATH"] = ":".join(filter(None, (STARTUP, environment.get("PYTHONPATH", ""))))
    return environment | variant.settings | more


class Process:
    """Of one variant. It runs a round of steps when it is told to."""

    def __init__(self, library: str, variant: Variant, turn: Round, **more: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        environment = environment_of(library, variant, MEMLAB_OUTPUT=self.folder.name + "/", **more)
        command = [sys.executable, __file__, "--child", variant.workload, *(str(number) for number in turn)]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def stay_on(self, cores: set[int]) -> None:
        """For a process that has just begun: its threads inherit it."""
        os.sched_setaffinity(self.process.pid, cores)

    def run_round(self) -> dict:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"bench_steps.py: a process ended: exit code {self.process.wait()}")
        return json.loads(line)

    def end(self) -> dict:
        """The peaks as memlab recorded them, of the framework's cache where it has one; empty where it did not."""
        self.process.communicate()
        peaks = {}
        for path in glob.glob(self.folder.name + "/*.json"):
            with open(path, encoding="utf-8") as file:
                devices = json.load(file)["devices"]
                stats = next((each for each in devices if each.get("allocator")), devices[0])["memory_stats"]
            peaks = {"allocated": stats["allocated_bytes.all.peak"], "reserved": stats["reserved_bytes.all.peak"]}
        self.folder.cleanup()
        return peaks


def cores_of(number: int, count: int, width: int = 2) -> set[int]:
    """For one of `count` (the training and its backward pass take turns), as far apart as the machine has them."""
    cores = sorted(os.sched_getaffinity(0))
    first = number * len(cores) // count
    return set((cores * 2)[first:first + width])


def in_turns(names: list[str], number: int) -> list[str]:
    """All of them; who goes first is not always the same one."""
    first = number % len(names)
    return names[first:] + names[:first]


def run_together(libraries: Libraries, names: list[str], count: int, rounds: int, turn: Round) -> dict[str, list[dict]]:
    """`count` processes of each variant, all alive at once, that take turns: what the machine does meanwhile, it
    does to all of them. A quarter of the rounds is left out: everything is new to them."""
    order = [(name, number) for number in range(count) for name in in_turns(names, number)]
    processes = [(name, Process(*libraries.of(name), turn), []) for name, _ in order]
    for (_, process, _), (_, number) in zip(processes, order):
        process.stay_on(cores_of(number, count))
    results: dict[str, list[dict]] = {name: [] for name in names}
    for number in range(rounds):
        for name, process, times in processes:
            answer = process.run_round()
            if number >= rounds // 4:
                times += answer["ms"]
            if number == rounds - 1:
                results[name].append(answer | {"steps": times})
    for _, process, _ in processes:
        process.end()
    return results


def peaks_of(library: str, variant: Variant, rounds: int, turn: Round) -> dict:
    process = Process(library, variant, turn, MEMLAB_RECORD="on")
    for _ in range(rounds):
        process.run_round()
    return process.end()


def ratio_of(steps: list[float], own: list[float], in_a_row: int) -> float:
    """Of two processes that took turns. What the machine does to the one, it does to the other soon."""
    timed = in_a_row - 1
    return statistics.median(sum(steps[at:at + timed]) / sum(own[at:at + timed])
                             for at in range(0, len(steps), timed))


def mean_of_least(processes: list[list[float]]) -> float:
    """Over what they did one after the other, the least time of any of them for each: it has the least of what else the
    host did."""
    return statistics.fmean(min(times) for times in zip(*processes))


def interval(ratios: list[float]) -> tuple[float, float]:
    chooser = random.Random(1)
    means = sorted(statistics.fmean(chooser.choices(ratios, k=len(ratios))) for _ in range(2000))
    return means[50], means[1949]


def peaks_text(peaks: dict) -> str:
    """Empty where nobody counted: JAX without memlab."""
    if "reserved" not in peaks:
        return ""
    return (f"{peaks['reserved'] / 2**20:13.0f} {peaks['allocated'] / 2**20:14.0f} "
            f"{peaks['reserved'] / max(1, peaks['allocated']):19.3f}")


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], Round(*(int(number) for number in sys.argv[3:])))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("libmemlab")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--together", type=int, default=4, help="pairs whose processes are alive at once")
    parser.add_argument("--in-a-row", type=int, default=6, help="steps in a row; the first of them is not timed")
    parser.add_argument("--batch", type=int, default=16, help="sequences of a step; with many the GPU limits it")
    parser.add_argument("--before", default="", help='another libmemlab.so, for variants named "before ..."')
    parser.add_argument("--variants", default=DEFAULT,
                        help="the first one is what the ratios are to; also: " +
                        ", ".join(name for name in VARIANTS if name not in DEFAULT.split(",")))
    options = parser.parse_args()
    names = options.variants.split(",")
    for name in names:
        if name.removeprefix(BEFORE) not in VARIANTS:
            parser.error(f"no variant {name!r}")
        if name.startswith(BEFORE) and not options.before:
            parser.error(f"{name!r} needs --before")
    libraries = Libraries(options.libmemlab, options.before)

    if options.in_a_row < 2 or options.together < 1:
        parser.error("--in-a-row is 2 at least, --together 1")
    turn = Round(options.in_a_row, options.batch)
    rounds = max(4, options.steps // (options.in_a_row - 1))
    times: dict[str, list[list[float]]] = {name: [] for name in names}
    results: dict[str, dict] = {}
    for begun in range(0, options.pairs, options.together):
        count = min(options.together, options.pairs - begun)
        for name, processes in run_together(libraries, names, count, rounds, turn).items():
            times[name] += [process["steps"] for process in processes]
            results[name] = processes[-1]
    print(f"{'':24} {'ms a step':>10} {'ratio':>7} {'95 % interval':>16} {'least':>8} {'ratio':>7} "
          f"{'reserved MiB':>13} {'allocated MiB':>14} {'reserved/allocated':>19}")
    least: dict[str, float] = {}
    for name in names:
        library, variant = libraries.of(name)
        if variant.preloaded:
            results[name] |= peaks_of(library, variant, rounds, turn)
        processes = times[name]
        least[name] = mean_of_least(processes)
        ratios = [ratio_of(steps, own, options.in_a_row) for steps, own in zip(processes, times[names[0]])]
        low, high = interval(ratios)
        print(f"{name:24} {statistics.median(itertools.chain(*processes)):10.3f} {statistics.fmean(ratios):7.3f} "
              f"{low:7.3f} to {high:.3f} {least[name]:8.3f} {least[name] / least[names[0]]:7.3f} "
              + peaks_text(results[name]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
