"""The variable-length transformer of docs/benchmarks.md: PyTorch's own cache against memlab's pool in its
place, in interleaved runs of one process each.

    bench_transformer.py LIBMEMLAB [--pairs N] [--steps N] [--variants NAME,...]

Prints, per variant, the median of the steps' times over all runs and that of the fastest run, the ratio to
the first variant (of the medians, and a bootstrap 95 % interval of the ratio of the runs paired as they ran),
and the reserved and allocated peaks. Timed runs do not record, but for the variants "recording ..." (with Python in their stacks,
with native ones only, with none); the peaks of memlab's pool come from one more run that does.
What recording costs: --variants "memlab,recording,recording native,recording no stacks"; what PyTorch's
own memory history costs: --variants "PyTorch,history all,history python".
"""

import argparse
import glob
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

# What PyTorch's own memory history costs: the argument of _record_memory_history's `stacks`.
HISTORY = "BENCH_MEMORY_HISTORY"
OWN = {
    "PyTorch": {},
    "PyTorch expandable": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    "history all": {HISTORY: "all"},
    "history python": {HISTORY: "python"},
}
REPLACED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
VARIANTS = {
    **OWN,
    "memlab": REPLACED,
    "many streams": {**REPLACED, "MEMLAB_ONE_STREAM": "off"},
    "memlab vmm": {**REPLACED, "MEMLAB_BACKEND": "vmm"},
    "many streams vmm": {**REPLACED, "MEMLAB_ONE_STREAM": "off", "MEMLAB_BACKEND": "vmm"},
    "recording": {**REPLACED, "MEMLAB_RECORD": "on"},
    "recording native": {**REPLACED, "MEMLAB_RECORD": "on", "MEMLAB_PYTHON": "off"},
    "recording no stacks": {**REPLACED, "MEMLAB_RECORD": "on", "MEMLAB_STACK_DEPTH": "0"},
}
DEFAULT = "PyTorch,PyTorch expandable,memlab,memlab vmm"


def child(steps: int) -> None:
    import time

    import torch

    torch.manual_seed(1)
    random.seed(1)
    device = torch.device("cuda")
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6).to(device)
    if HISTORY in os.environ:
        torch.cuda.memory._record_memory_history(stacks=os.environ[HISTORY], max_entries=1_000_000)
    optimizer = torch.optim.Adam(model.parameters())
    times = []
    for step in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        batch = torch.randn(16, random.randint(64, 256), 512, device=device)
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        if step >= steps // 4:
            times.append((time.perf_counter() - start) * 1000)
    print(json.dumps({"ms": statistics.median(times),
                      "allocated": torch.cuda.max_memory_allocated(),
                      "reserved": torch.cuda.max_memory_reserved()}))


def environment_of(library: str, settings: dict, **more: str) -> dict:
    """Of a process of a variant, which does not record unless the variant or `more` says so."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMLAB_")}
    if "PYTORCH_NO_CUDA_MEMORY_CACHING" in settings:
        environment.update({"LD_PRELOAD": library, "MEMLAB_RECORD": "off"} | more)
    return environment | settings


def run(library: str, settings: dict, steps: int, record: bool) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        environment = environment_of(library, settings, MEMLAB_OUTPUT=folder + "/",
                                     MEMLAB_RECORD="on" if record else "off")
        output = subprocess.run([sys.executable, __file__, "--child", str(steps)], env=environment, check=True,
                                stdout=subprocess.PIPE, text=True).stdout
        result = json.loads(output.splitlines()[-1])
        for path in glob.glob(folder + "/*.json"):
            with open(path, encoding="utf-8") as file:
                stats = json.load(file)["devices"][0]["memory_stats"]
            result["allocated"] = stats["allocated_bytes.all.peak"]
            result["reserved"] = stats["reserved_bytes.all.peak"]
    return result


def interval(ratios: list[float]) -> tuple[float, float]:
    chooser = random.Random(1)
    means = sorted(statistics.fmean(chooser.choices(ratios, k=len(ratios))) for _ in range(2000))
    return means[50], means[1949]


def main() -> int:
    if len(sys.argv) == 3 and sys.argv[1] == "--child":
        child(int(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--variants", default=DEFAULT,
                        help="the first one is what the ratios are to; also: " +
                        ", ".join(name for name in VARIANTS if name not in DEFAULT.split(",")))
    options = parser.parse_args()
    names = options.variants.split(",")

    times = {name: [] for name in names}
    results = {}
    for _ in range(options.pairs):
        for name in names:
            results[name] = run(options.library, VARIANTS[name], options.steps, record=False)
            times[name].append(results[name]["ms"])
    print(f"{'':20} {'ms a step':>10} {'fastest':>8} {'ratio':>7} {'95 % interval':>16} "
          f"{'reserved MiB':>13} {'allocated MiB':>14} {'reserved/allocated':>19}")
    for name in names:
        if name not in OWN:
            results[name] = run(options.library, VARIANTS[name], options.steps, record=True)
        ratios = [time / own for time, own in zip(times[name], times[names[0]])]
        low, high = interval(ratios)
        peaks = results[name]
        print(f"{name:20} {statistics.median(times[name]):10.2f} {min(times[name]):8.2f} "
              f"{statistics.median(times[name]) / statistics.median(times[names[0]]):7.3f} "
              f"{low:7.3f} to {high:.3f} {peaks['reserved'] / 2**20:13.0f} {peaks['allocated'] / 2**20:14.0f} "
              f"{peaks['reserved'] / peaks['allocated']:19.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
