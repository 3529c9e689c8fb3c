"""driver_history.py HISTORY.xz OUT.xz [--events N]

Replays the allocations of a recording of pytorch_history.py through the driver itself and writes
what each of its allocators kept: cuMemAlloc/cuMemFree (device memory in use, from cuMemGetInfo) and
cuMemAllocAsync/cuMemFreeAsync on one stream (what the pool reserved) with a release threshold of 0
and without bound, with a synchronization where the recorded program had one (the end of a step).
The what-if models of plain CUDA and of cudaMallocAsync are checked against it. Needs cuda-bindings.

The output's first line is JSON; each further line is `EVENT BYTES` under a line naming the allocator:
after the event of that number (allocations and frees counted from 1) so much was kept. A line is
written where the number changed; `sync` stands for a synchronization.
"""

from __future__ import annotations

import argparse
import lzma
import json

from cuda.bindings import driver


def check(result):
    """The values of a driver call, or an error."""
    if result[0] != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(str(result[0]))
    return result[1] if len(result) == 2 else result[1:]


class Plain:
    """cuMemAlloc and cuMemFree."""

    name = "plain"

    def __init__(self) -> None:
        self.before = self.used()

    def used(self) -> int:
        free, total = check(driver.cuMemGetInfo())
        return int(total) - int(free)

    def allocate(self, size: int) -> int:
        return int(check(driver.cuMemAlloc(size)))

    def free(self, pointer: int) -> None:
        driver.cuMemFree(pointer)

    def kept(self) -> int:
        return self.used() - self.before

    def synchronize(self) -> None:
        driver.cuCtxSynchronize()


class Async:
    """cuMemAllocAsync and cuMemFreeAsync on one stream and a pool of its own."""

    def __init__(self, threshold: int, name: str) -> None:
        self.name = name
        properties = driver.CUmemPoolProps()
        properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = 0
        self.pool = check(driver.cuMemPoolCreate(properties))
        check((*driver.cuMemPoolSetAttribute(
            self.pool, driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            driver.cuuint64_t(threshold)), None))
        self.stream = check(driver.cuStreamCreate(1))

    def allocate(self, size: int) -> int:
        return int(check(driver.cuMemAllocFromPoolAsync(size, self.pool, self.stream)))

    def free(self, pointer: int) -> None:
        driver.cuMemFreeAsync(pointer, self.stream)

    def kept(self) -> int:
        return int(check(driver.cuMemPoolGetAttribute(
            self.pool, driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)))

    def synchronize(self) -> None:
        driver.cuStreamSynchronize(self.stream)


def replay(allocator, lines: list[str], ends: set[int], limit: int) -> list[str]:
    """Runs the recorded calls; what was kept, where it changed."""
    out = [allocator.name]
    held: dict[str, int] = {}
    event = allocations = last = 0
    for line in lines:
        what, address, *rest = line.split()
        if what not in "afr":
            continue
        event += 1
        if event > limit:
            break
        if what == "a":
            held[address] = allocator.allocate(int(rest[0]))
            allocations += 1
        else:
            allocator.free(held.pop(address))
        now = allocator.kept()
        if now != last:
            out.append(f"{event} {now}")
            last = now
        if what == "a" and allocations in ends:
            allocator.synchronize()
            out.append(f"{event} sync")
            now = allocator.kept()
            if now != last:
                out.append(f"{event} {now}")
                last = now
    for pointer in held.values():
        allocator.free(pointer)
    allocator.synchronize()
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("history")
    parser.add_argument("out")
    parser.add_argument("--events", type=int, default=6000)
    arguments = parser.parse_args()
    with lzma.open(arguments.history, "rt", encoding="ascii") as file:
        head = json.loads(file.readline())
        lines = file.read().splitlines()
    check((*driver.cuInit(0), None))
    device = check(driver.cuDeviceGet(0))
    context = check(driver.cuDevicePrimaryCtxRetain(device))
    check((*driver.cuCtxSetCurrent(context), None))
    ends = set(head["allocations_by_step"])
    everything = 1 << 62
    out = [json.dumps({"history": head["workload"], "gpu": head["gpu"], "driver": int(check(driver.cuDriverGetVersion())),
                       "events": arguments.events})]
    for allocator, limit in ((Plain(), arguments.events), (Async(0, "async threshold 0"), arguments.events),
                             (Async((1 << 64) - 1, "async threshold max"), everything)):
        rows = replay(allocator, lines, ends, limit)
        out += rows
        print(f"{allocator.name}: {len(rows)} changes, most {max([int(r.split()[1]) for r in rows[1:] if 'sync' not in r], default=0) / (1 << 20):.1f} MiB")
    with lzma.open(arguments.out, "wt", encoding="ascii", preset=9 | lzma.PRESET_EXTREME) as file:
        file.write("\n".join(out) + "\n")


main()
