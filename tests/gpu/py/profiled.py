"""torch.profiler at work, memlab or not beside it. Prints what the profiler found: names of the kernels
that ran on the GPU and how often, which must be the same whoever else is in the process.
"""

import torch
from torch.profiler import ProfilerActivity, profile


def work(matrix: torch.Tensor) -> float:
    result = matrix
    for _ in range(20):
        result = torch.relu(result @ matrix) * 0.01
    return result.sum().item()


def main() -> None:
    torch.manual_seed(7)
    matrix = torch.randn(512, 512, device="cuda")
    work(matrix)
    for turn in range(2):  # the second turn finds CUPTI as the first left it
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            work(matrix)
        # Some runs also give host calls a device time (63 cudaFree, without memlab too): only work counts.
        kernels = {event.key: event.count for event in profiler.key_averages()
                   if event.self_device_time_total > 0
                   and not event.key.startswith(("aten::", "cuda", "Activity Buffer"))}
        print(f"turn {turn}: {sum(kernels.values())} pieces of work on the GPU")
        for name in sorted(kernels):
            print(f"  {kernels[name]} {name[:90]}")


main()
