"""bench_launches.py LIBMEMLAB: what recording kernels costs a PyTorch loop that is bound by its launches:
small elementwise kernels, one after another. Each mode runs in processes of its own, in turns; printed is
the median of the time of one step of 200 kernels.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

MODES = {"native": None, "memlab": {}, "MEMLAB_CUPTI=on": {"MEMLAB_CUPTI": "on"},
         "MEMLAB_KERNELS=on": {"MEMLAB_CUPTI": "on", "MEMLAB_KERNELS": "on"}}
TURNS = 3
STEPS = 60


def measure() -> None:
    import torch

    values = torch.zeros(256, device="cuda")

    def step() -> None:
        for _ in range(200):
            values.add_(1)

    for _ in range(10):
        step()
    for _ in range(STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        print((time.perf_counter() - start) * 1000)


def main() -> int:
    if sys.argv[1] == "--measure":
        measure()
        return 0
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(TURNS):
            for mode, settings in MODES.items():
                environment = dict(os.environ)
                if settings is not None:
                    environment |= {"LD_PRELOAD": sys.argv[1], "MEMLAB_OUTPUT": f"{folder}/"} | settings
                result = subprocess.run([sys.executable, __file__, "--measure"], env=environment,
                                        capture_output=True, text=True, check=False)
                if result.returncode != 0:
                    print(f"{mode}: {result.stderr}", file=sys.stderr)
                    return 1
                times[mode] += [float(line) for line in result.stdout.split()]
    print(f"{'200 launches by PyTorch':<24} {'ms':>8} {'of native':>10}")
    for mode, values in times.items():
        print(f"{mode:<24} {statistics.median(values):8.3f} "
              f"{statistics.median(values) / statistics.median(times['native']):10.3f}")
    return 0


sys.exit(main())
