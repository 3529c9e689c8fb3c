"""bench_stacks.py LIBMEMLAB [--program torch|driver] [--rounds N] [--nested N] [--cold KIB]: what a call site
costs.

Allocates and frees one small piece of device memory again and again, N Python calls deep, under memlab's
pool: without a recording, and recorded with no stacks, with native ones and with Python in them. `torch`
makes tensors with PyTorch (its own cache off, so that each reaches memlab), `driver` calls cuMemAlloc
through ctypes and needs no PyTorch. Each variant is a process of its own, in turn; prints the medians of
the processes' best rounds in ns for a pair of allocation and free. The difference between two lines is what
the stack costs. With --cold so much other memory is written between any two pairs, as a training program does:
a pair is then timed by itself, and a round's figure is the mean of all pairs but the slowest hundredth.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

COUNT = 2000
VARIANTS = {
    "not recorded": {"MEMLAB_RECORD": "off"},
    "recorded, no stacks": {"MEMLAB_STACK_DEPTH": "0"},
    "native stacks": {"MEMLAB_PYTHON": "off"},
    "native and Python": {},
}


def nested(depth: int):
    """A call of `depth` functions, each with a name and a line of its own."""
    space = {"level_0": lambda body: body()}
    for level in range(1, depth + 1):
        exec(compile("\n" * 7 * level + f"def level_{level}(body):\n    return level_{level - 1}(body)\n",
                     __file__, "exec"), space)
    return space[f"level_{depth}"]


def with_torch():
    import torch

    empty, device = torch.empty, torch.device("cuda")
    return lambda: empty(1024, device=device)


def with_driver():
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    pointer, size = ctypes.c_uint64(), ctypes.c_size_t(4096)
    reference, allocate, free = ctypes.byref(pointer), cuda.cuMemAlloc_v2, cuda.cuMemFree_v2

    def pair() -> None:
        allocate(reference, size)
        free(pointer)
    return pair


def child(program: str, depth: int, cold: int) -> None:
    pair = with_torch() if program == "torch" else with_driver()
    call = nested(depth)
    now = time.perf_counter_ns

    def pairs() -> float:
        begin = now()
        for _ in range(COUNT):
            pair()
        return (now() - begin) / COUNT

    def cold_pairs() -> float:
        other, times = ctypes.create_string_buffer(cold << 10), []
        for i in range(COUNT // 10):
            ctypes.memset(other, i & 255, len(other))
            begin = now()
            pair()
            times.append(now() - begin)
        # Not the median: what is done once in some pairs (events are added up in batches) counts too.
        return statistics.fmean(sorted(times)[:-len(times) // 100])

    print(min(call(cold_pairs if cold else pairs) for _ in range(21)))


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("--program", choices=("torch", "driver"), default="torch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nested", type=int, default=12)
    parser.add_argument("--cold", type=int, default=0, metavar="KIB")
    options = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    stack = {}
    for _ in range(options.rounds):
        for name, settings in VARIANTS.items():
            with tempfile.TemporaryDirectory() as folder:
                environment = {key: value for key, value in os.environ.items() if not key.startswith("MEMLAB_")}
                environment |= {"LD_PRELOAD": options.library, "MEMLAB_OUTPUT": folder + "/",
                                "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} | settings
                output = subprocess.run([sys.executable, __file__, "--child", options.program,
                                         str(options.nested), str(options.cold)], env=environment, check=True,
                                        stdout=subprocess.PIPE, text=True).stdout
                times[name].append(float(output.splitlines()[-1]))
                for file in os.listdir(folder):
                    if file.endswith(".json"):
                        with open(os.path.join(folder, file), encoding="utf-8") as text:
                            report = json.load(text)
                        site = max(report["sites"], key=lambda each: each["count"])
                        frames = report["stacks"][site["stack"]]["frames"]
                        python = sum("python" in report["frames"][frame] for frame in frames)
                        stack[name] = f"{len(frames) - python} native, {python} Python frames"
    for name, values in times.items():
        print(f"{name:20} {statistics.median(values):8.0f} ns  "
              f"({min(values):.0f} to {max(values):.0f})  {stack.get(name, '')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
