"""What a tensor costs the host: PyTorch's own cache against memlab's pool in its place.

    bench_tensors.py LIBMEMLAB [--turns N] [--variants NAME,...]

One process a measurement, the variants (those of bench_steps.py in PyTorch) in turns; each line is the least time
of all batches of all turns, since what other programs do on the machine only ever adds to it. "Beside a
launch" is what the tensor adds to a kernel launch of the same loop. The step is one of a transformer so
small that the GPU waits for the host.
"""

import argparse
import json
import subprocess
import sys
import time

from bench_steps import VARIANTS, environment_of

DEFAULT = "PyTorch,memlab classic,memlab vmm,many streams"
BATCHES, COUNT = 40, 500
SIZES = (("512 B", 128), ("1 MiB", 1 << 18), ("20 MiB", 5 << 20))  # of float


def least(run, count: int) -> float:
    """Microseconds of one of `count` in a batch; the GPU is idle when a batch begins."""
    import torch

    run(count)
    best = float("inf")
    for _ in range(BATCHES):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run(count)
        best = min(best, (time.perf_counter() - start) * 1e6 / count)
    return best


def child() -> None:
    import torch

    device = torch.device("cuda")
    small = torch.zeros(128, device=device)

    def tensors(elements):
        def run(count):
            for _ in range(count):
                torch.empty(elements, device=device)
        return run

    def launches(count):
        for _ in range(count):
            small.add_(1)

    def launches_and_tensors(elements):
        def run(count):
            for _ in range(count):
                torch.empty(elements, device=device)
                small.add_(1)
        return run

    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(4, 16, 64, device=device)

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            model(batch).square().mean().backward()
            optimizer.step()

    times = {}
    for name, elements in SIZES:
        times[f"tensor of {name}, idle, us"] = least(tensors(elements), COUNT)
    alone = least(launches, COUNT)
    times["launch, us"] = alone
    for name, elements in SIZES:
        times[f"tensor of {name}, beside a launch, us"] = least(launches_and_tensors(elements), COUNT) - alone
    times["step of a small transformer, us"] = least(steps, 4)
    print(json.dumps(times))


def main() -> int:
    if sys.argv[1:] == ["--child"]:
        child()
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--variants", default=DEFAULT, help="also: " + ", ".join(VARIANTS))
    options = parser.parse_args()
    names = options.variants.split(",")
    best: dict[str, dict[str, float]] = {name: {} for name in names}
    for _ in range(options.turns):
        for name in names:
            output = subprocess.run([sys.executable, __file__, "--child"], check=True, text=True,
                                    env=environment_of(options.library, VARIANTS[name]),
                                    stdout=subprocess.PIPE).stdout
            for line, value in json.loads(output.splitlines()[-1]).items():
                best[name][line] = min(value, best[name].get(line, float("inf")))
    print(f"{'':44}" + "".join(f"{name:>22}" for name in names))
    for line in best[names[0]]:
        print(f"{line:44}" + "".join(f"{best[name][line]:22.2f}" for name in names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
