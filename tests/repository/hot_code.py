"""hot_code.py LIBMEMLAB [--unordered]: what every allocation runs lies together in the library.

Between two allocations the program's own code evicts memlab's from the caches. Functions that every allocation runs
are therefore marked [[gnu::hot]], so that the linker puts them beside each other (CONTRIBUTING.md), those of a tensor's
event in the order of interpose/hot_code.ld. This test fails if a function of its lists has lost the mark, if the linker
does not sort, or if a name in hot_code.ld fits no function any more. --unordered: of a linker that takes no hot_code.ld.
"""

import fnmatch
import re
import subprocess
import sys
from pathlib import Path

FUNCTIONS = [
    "memlab::allocator::BlockIndex::insert(",
    "memlab::allocator::BlockStore::take_from(",
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
    "memlab::profiler::Recorder::capture_tensor_site(",
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
# What the free of a tensor runs, and what runs besides when one is allocated, with Python in its stack.
TENSOR_FREED = [
    "c10::reportMemoryUsageToProfiler(void*, long, unsigned long,",
    "memlab::interpose::record_suballocation_freed(",
    "memlab::profiler::Recorder::prefetch_suballocation(",
    "memlab::profiler::Recorder::record_freed(memlab::profiler::Suballocation const&)",
    "memlab::trace::LogWriter::on_short(",
]
TENSOR_ALLOCATED = [
    *TENSOR_FREED,
    "memlab::interpose::record_suballocation(",
    "memlab::profiler::CallSites::capture(",
    "memlab::profiler::Recorder::record_allocated(",
    "memlab::profiler::python::hash_frames(",
    "memlab::profiler::KnownStacks::find(",
    "memlab::profiler::KnownStacks::hash_words(",
    "memlab::profiler::KnownStacks::use(",
]
# 4 and 20 KiB in a release build of gcc 12.
MOST_BYTES_FREED = 8 << 10
MOST_BYTES_ALLOCATED = 32 << 10
# 73 KiB in a release build of gcc 12, of 1.2 MiB of code: with room for growth, and still far below where a function
# without its mark may land.
MOST_BYTES = 128 << 10


def functions_of(library: str, *options: str) -> list[tuple[int, str]]:
    """Where each function begins, and its name."""
    lines = subprocess.run(["nm", "--defined-only", *options, library], check=True, stdout=subprocess.PIPE,
                           text=True).stdout.splitlines()
    symbols = [line.split(" ", 2) for line in lines]
    return [(int(address, 16), name) for address, kind, name in symbols
            if kind in "tTwW" and "[clone" not in name and ".cold" not in name]


def find_unfit(library: str) -> list[str]:
    """The names in hot_code.ld that fit no function of the library."""
    script = Path(__file__).resolve().parents[2] / "interpose" / "hot_code.ld"
    prefix = ".text.hot."
    sections = [prefix + name for _, name in functions_of(library)]
    patterns = [pattern for statement in re.findall(r"^ *\*\((.*)\)$", script.read_text(encoding="utf-8"), re.MULTILINE)
                for pattern in statement.split() if pattern not in (".text.hot", ".text.hot.*")]
    return [pattern for pattern in patterns if not fnmatch.filter(sections, pattern)]


def are_together(named: list[tuple[int, str]], functions: list[str], most_bytes: int) -> bool:
    """Whether they lie within so many bytes; if not, says why."""
    addresses = {}
    for address, name in named:
        for function in functions:
            if name == function or (name.startswith(function) and not function.startswith("cu")):
                addresses[function] = address
    missing = [function for function in functions if function not in addresses]
    if missing:
        print("not in the library (renamed? then change this list):", *missing, sep="\n  ")
        return False
    ordered = sorted(addresses.items(), key=lambda item: item[1])
    size = ordered[-1][1] - ordered[0][1]
    print(f"{len(ordered)} functions within {size} bytes")
    if size > most_bytes:
        print(f"more than {most_bytes}: one of them is not marked [[gnu::hot]], or not in interpose/hot_code.ld")
        for name, address in ordered:
            print(f"  {address:#10x} {name}")
    return size <= most_bytes


def main() -> int:
    named = functions_of(sys.argv[1], "-C")
    groups = [(FUNCTIONS, MOST_BYTES)]
    unfit = []
    if "--unordered" not in sys.argv[2:]:
        groups += [(TENSOR_FREED, MOST_BYTES_FREED), (TENSOR_ALLOCATED, MOST_BYTES_ALLOCATED)]
        unfit = find_unfit(sys.argv[1])
    together = [are_together(named, *group) for group in groups]
    if unfit:
        print("in interpose/hot_code.ld, but no function of the library (renamed?):", *unfit, sep="\n  ")
    return 1 if unfit or not all(together) else 0


if __name__ == "__main__":
    sys.exit(main())
