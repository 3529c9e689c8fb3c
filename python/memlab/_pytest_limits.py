"""The limits of a test: what its markers and the ini file say (docs/python.md, In tests)."""

from __future__ import annotations

import dataclasses
import importlib
import re
from typing import Any, Callable, List, Optional, Tuple

from ._gpu import gpu_number
from ._peak import Site, check_kind

pytest: Any = importlib.import_module("pytest")  # types are checked where it is not installed, too
MEMORY, LEAKS, ALLOCATIONS, BASELINE = "limit_gpu_memory", "limit_gpu_leaks", "limit_gpu_allocations", "gpu_baseline"
MARKERS = (
    f"{MEMORY}(size, device=None, kind='device'): the memory that the test's call may add at its peak to what was there "
    'before, as "24 MiB"; of one GPU, of managed or of pinned memory; checked with --memlab',
    f"{LEAKS}(size, filter=None): the GPU memory that each call stack of the test and of its function-scoped fixtures may "
    "leave behind; filter(memlab.Site) says which call stacks count; checked with --memlab",
    f"{ALLOCATIONS}(count): how often the test's call may allocate GPU memory; checked with --memlab",
    f"{BASELINE}: the test's peak is compared with the one that --memlab-update wrote for this GPU's model",
)
_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclasses.dataclass(frozen=True)
class MemoryLimit:
    """Of the growth in the test's call."""

    bytes: int
    device: Optional[int] = None  #: a GPU's number; None: all GPUs
    kind: str = "device"

    @property
    def is_plain(self) -> bool:
        """Of device memory of all GPUs."""
        return self.device is None and self.kind == "device"

    @property
    def memory(self) -> str:
        """What is limited, in words."""
        kind = "GPU memory" if self.kind == "device" else f"{self.kind} memory"
        return kind if self.device is None else f"{kind} of GPU {self.device}"


@dataclasses.dataclass(frozen=True)
class LeakLimit:
    """Of each call stack."""

    bytes: int
    counts: Callable[[Site], bool]


@dataclasses.dataclass(frozen=True)
class Limits:
    """All of a test."""

    memory: Tuple[MemoryLimit, ...] = ()
    leaks: Optional[LeakLimit] = None
    allocations: Optional[int] = None
    baseline: bool = False

    @property
    def names(self) -> List[str]:
        """The marker of each limit."""
        return ([MEMORY] * len(self.memory) + [LEAKS] * (self.leaks is not None)
                + [ALLOCATIONS] * (self.allocations is not None) + [BASELINE] * self.baseline)


def parse_size(value: Any, where: str) -> int:
    """Bytes of "24 MiB", "1GB", 4096. UsageError: it is no size; `where` is in the message."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(value))
    if match is None or match.group(2).upper() not in _UNITS:
        raise pytest.UsageError(f"{where}: {value!r} is not a size: write it as 24 MiB, 1.5 GiB or 4096")
    return int(float(match.group(1)) * _UNITS[match.group(2).upper()])


def _arguments(marker: Any, where: str, usage: str, named: Tuple[str, ...] = ()) -> Any:
    if len(marker.args) != 1 or not set(marker.kwargs) <= set(named):
        raise pytest.UsageError(f"{where}: {marker.name} is written as {usage}")
    return marker.args[0]


def _memory_limits(item: Any, default: Optional[int]) -> Tuple[MemoryLimit, ...]:
    found: List[MemoryLimit] = []
    for marker in item.iter_markers(MEMORY):  # the closest first
        size = _arguments(marker, item.nodeid, f'{MEMORY}("24 MiB", device=0, kind="pinned")', ("device", "kind"))
        try:
            device, kind = marker.kwargs.get("device"), check_kind(marker.kwargs.get("kind", "device"))
            device = None if device is None else gpu_number(device)
        except (TypeError, ValueError) as error:
            raise pytest.UsageError(f"{item.nodeid}: {MEMORY}: {error}") from error
        limit = MemoryLimit(parse_size(size, f"{item.nodeid}: {MEMORY}"), device, kind)
        if all((limit.device, limit.kind) != (each.device, each.kind) for each in found):
            found.append(limit)
    return (MemoryLimit(default),) if not found and default is not None else tuple(found)


def _leak_limit(item: Any) -> Optional[LeakLimit]:
    marker = item.get_closest_marker(LEAKS)
    if marker is None:
        return None
    size = _arguments(marker, item.nodeid, f'{LEAKS}("1 MiB", filter=function)', ("filter",))
    counts = marker.kwargs.get("filter")
    if counts is not None and not callable(counts):
        raise pytest.UsageError(f"{item.nodeid}: {LEAKS}: filter is a function that takes a memlab.Site, not {counts!r}")
    return LeakLimit(parse_size(size, f"{item.nodeid}: {LEAKS}"), counts or (lambda site: not site.library))


def limits_of(item: Any, default: Optional[int]) -> Limits:
    """`default`: bytes, of tests without a limit of memory. UsageError: a marker is wrong, with the test and what to write."""
    marker = item.get_closest_marker(ALLOCATIONS)
    count = None
    if marker is not None:
        count = _arguments(marker, item.nodeid, f"{ALLOCATIONS}(100)")
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise pytest.UsageError(f"{item.nodeid}: {ALLOCATIONS}: {count!r} is not a number of allocations")
    marker = item.get_closest_marker(BASELINE)
    if marker is not None and (marker.args or marker.kwargs):
        raise pytest.UsageError(f"{item.nodeid}: {BASELINE} takes no arguments: --memlab-update writes the baseline")
    return Limits(_memory_limits(item, default), _leak_limit(item), count, marker is not None)
