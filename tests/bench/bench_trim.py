"""bench_trim.py LIBMEMLAB [--seconds S] [--step SECONDS,...]

What giving cached memory back (MEMLAB_TRIM_AFTER, 500 ms by default) costs a program of long steps. In each step
PyTorch, with memlab's pool in place of its cache, takes 64 tensors of 32 MiB, fills and frees them, and does
nothing for the rest of the step. With steps longer than the delay the memory goes back in each of them. Beside each
other: the default, and MEMLAB_TRIM_AFTER=0, which gives nothing back.

Prints the time that the tensors took: the mean of all steps but the first, the worst, and what the default lost of the
time of all steps. Needs PyTorch and a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

TENSORS, BYTES = 64, 32 << 20


def child(step: float, count: int) -> None:
    import torch

    torch.cuda.init()
    torch.ones(1, device="cuda")
    torch.cuda.synchronize()
    times = []
    for _ in range(count):
        start = time.perf_counter()
        tensors = [torch.empty(BYTES, dtype=torch.uint8, device="cuda").fill_(1) for _ in range(TENSORS)]
        torch.cuda.synchronize()
        tensors.clear()
        taken = time.perf_counter() - start
        times.append(taken)
        time.sleep(max(0.0, step - taken))
    print(json.dumps(times))


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        child(float(sys.argv[2]), int(sys.argv[3]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libmemlab")
    parser.add_argument("--seconds", type=float, default=90, help="for each length of a step (default: 90)")
    parser.add_argument("--step", default="0.012,5", help="lengths of a step in seconds (default: 0.012,5)")
    arguments = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for text in arguments.step.split(","):
            step = float(text)
            count = max(2, round(arguments.seconds / step))
            for trim_after in ("500ms", "0"):
                environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMLAB_")}
                environment |= {"LD_PRELOAD": arguments.libmemlab, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
                                "MEMLAB_RECORD": "off", "MEMLAB_TRIM_AFTER": trim_after, "MEMLAB_OUTPUT": folder + "/"}
                command = [sys.executable, __file__, "--child", text, str(count)]
                runs.append((step, trim_after, subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)))
        results = {}
        for step, trim_after, process in runs:
            output, _ = process.communicate()
            if process.returncode != 0:
                raise SystemExit(f"bench_trim.py: a process ended with {process.returncode}")
            results[step, trim_after] = json.loads(output)[1:]
    print(f"{'step':>8} {'MEMLAB_TRIM_AFTER':>18} {'mean ms':>9} {'worst ms':>9} {'lost of the time':>17}")
    for (step, trim_after), times in results.items():
        lost = (sum(times) - sum(results[step, "0"])) / (step * len(times))
        print(f"{step:>6g} s {trim_after:>18} {1000 * statistics.fmean(times):>9.3f} {1000 * max(times):>9.3f} "
              + (f"{100 * lost:>15.4f} %" if trim_after != "0" else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
