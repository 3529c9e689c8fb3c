"""hot_code.py LIBMEMLAB: what every allocation runs lies together in the library.

Between two allocations the program's own code evicts memlab's from the caches. Functions that every allocation runs
are therefore marked [[gnu::hot]], so that the linker puts them beside each other (CONTRIBUTING.md). This test fails if
a function of its list has lost the mark, if the linker does not sort, or if the compiler leaves out prefetch
instructions (trace/prefetch.hpp), which no other test would notice.
"""

import subprocess
import sys

FUNCTIONS = [
    "memlab::allocator::BlockIndex::insert(",
    "memlab::allocator::BlockStore::take(",
    "memlab::allocator::Pool::Impl::allocate(",
    "memlab::allocator::Pool::Impl::free(",
    "memlab::allocator::SizePolicy::plan(",
    "memlab::interpose::CudaFences::record(",
    "memlab::interpose::allocate_device(",
    "memlab::interpose::free_device(",
    "memlab::interpose::LiveAllocations::erase(",
    "memlab::interpose::LiveAllocations::put(",
    "memlab::interpose::allocate_from_driver(",
    "memlab::interpose::free_device_async(",
    "memlab::interpose::PoolRecorder::on_alloc(",
    "memlab::interpose::PoolRecorder::on_freed(",
    "memlab::profiler::Recorder::record(memlab::trace::Event)",
    "memlab::profiler::Recorder::capture_call_site(",
    "memlab::profiler::StackTable::intern(",
    "memlab::profiler::python::read_frames(",
    "void memlab::profiler::unwind::walk_stack<64ul>(",
    "memlab::trace::LogWriter::on_freed(",
    "memlab::trace::encode_fields(",
    "memlab::interpose::record_suballocation(",
    "memlab::interpose::record_suballocation_freed(",
    "c10::reportMemoryUsageToProfiler(void*, long, unsigned long,",
    "cuCtxGetDevice_v2",
    "cuDevicePrimaryCtxGetState",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
]
# 45 KiB in a release build of gcc 12, of 965 KiB of code: with room for growth, and still far below where a function
# without its mark may land.
MOST_BYTES = 128 << 10

ASKING_AHEAD = ["Recorder::prefetch(", "LogWriter::prefetch(", "LogFile::prefetch_append("]
# 34 in a release build of gcc 12: with room for a compiler that merges some.
FEWEST_REQUESTS = 20


def requests_ahead(library: str) -> int:
    """How many prefetch instructions the functions of ASKING_AHEAD have."""
    code = subprocess.run(["objdump", "-d", "-C", "--no-show-raw-insn", library], check=True, stdout=subprocess.PIPE,
                          text=True).stdout
    count = 0
    inside = False
    for line in code.splitlines():
        if line.endswith(">:"):
            inside = any(function in line for function in ASKING_AHEAD)
        elif inside and "prefetch" in line:
            count += 1
    return count


def main() -> int:
    symbols = subprocess.run(["nm", "-C", "--defined-only", sys.argv[1]], check=True, stdout=subprocess.PIPE,
                             text=True).stdout
    addresses: dict[str, int] = {}
    for line in symbols.splitlines():
        address, kind, name = line.split(" ", 2)
        if kind not in "tT" or "[clone" in name:
            continue
        for function in FUNCTIONS:
            if name == function or (name.startswith(function) and not function.startswith("cu")):
                addresses[function] = int(address, 16)
    missing = [function for function in FUNCTIONS if function not in addresses]
    if missing:
        print("not in the library (renamed? then change this list):", *missing, sep="\n  ")
        return 1
    ordered = sorted(addresses.items(), key=lambda item: item[1])
    size = ordered[-1][1] - ordered[0][1]
    print(f"{len(ordered)} functions within {size >> 10} KiB")
    if size > MOST_BYTES:
        print(f"more than {MOST_BYTES >> 10} KiB: one of them is not marked [[gnu::hot]]")
        for name, address in ordered:
            print(f"  {address:#10x} {name}")
        return 1
    requests = requests_ahead(sys.argv[1])
    print(f"{requests} lines are asked for ahead of an event")
    if requests < FEWEST_REQUESTS:
        print(f"fewer than {FEWEST_REQUESTS}: the compiler has left out calls that only prefetch")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
