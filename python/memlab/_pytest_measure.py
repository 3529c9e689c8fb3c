"""What a test took of the GPU, and what it left (docs/python.md, In tests).

Of its call: memlab.peak()'s figures, without what libraries took for themselves at their first use and keep, so that a test
needs the same whichever comes first. Of the whole test, with the setup and the teardown of its function-scoped fixtures:
what was allocated in it and is still there afterwards, allocation by allocation. The setup and the teardown of wider
fixtures are cut out: what is allocated there is the fixture's.
"""

from __future__ import annotations

import contextlib
import gc
from types import TracebackType
from typing import Any, Dict, List, Optional, Type

from ._peak import Site, made_between, moment, peak
from ._pytest_limits import LeakLimit, Limits

_SITES = 3  # shown of a peak
_STACKS = 5  # shown of a leak
_FRAMES = 8  # of each of these


class Call:
    """Measures a test's call; a context manager, to be closed when the limits were looked at."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._whole = peak(limit=0)
        # The same, whose call sites are asked for only where a limit does not hold: they cost more than all the rest.
        self._at_peak = peak() if limits.baseline or any(limit.is_plain for limit in limits.memory) else None
        self._filtered = [(limit, peak(_SITES, limit.device, limit.kind)) for limit in limits.memory if not limit.is_plain]
        self._open = contextlib.ExitStack()
        self.needed: Optional[int] = None  #: bytes; None: no GPU was used, or nothing is recorded
        self.libraries = 0  #: bytes that libraries took for themselves meanwhile; not in `needed`

    def __enter__(self) -> Call:
        if self._at_peak is not None:
            self._at_peak.__enter__()
        for _, each in self._filtered:
            self._open.enter_context(each)
        self._open.enter_context(self._whole)
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self._open.__exit__(kind, error, traceback)
        if self._whole.growth_bytes is None or not self._whole.gpu_names:
            return
        self.needed, self.libraries = _needed(self._whole), self._whole.library_bytes or 0

    @property
    def gpu_model(self) -> Optional[str]:
        """Of the GPUs that were used so far: one name for several of a model."""
        return ", ".join(sorted(set(self._whole.gpu_names or ()))) or None

    def exceeded(self) -> List[str]:
        """A message for each limit that does not hold."""
        messages = []
        measured = [(limit, self.needed, None) for limit in self._limits.memory if limit.is_plain]
        for limit, needed, by in [*measured, *((limit, _needed(by, limit.kind), by) for limit, by in self._filtered)]:
            if needed is not None and needed > limit.bytes:
                messages.append(f"The test needed {needed} bytes of {limit.memory}, its limit is {limit.bytes}. "
                                f"At the peak:{self.holders(by)}")
        count = (self._whole.allocated_count or 0) - (self._whole.library_count or 0)
        if self._limits.allocations is not None and count > self._limits.allocations:
            messages.append(f"The test made {count} allocations of GPU memory, its limit is {self._limits.allocations}.")
        return messages

    def holders(self, measured: Optional[peak] = None) -> str:
        """Lines with who held the memory at the peak of all, or of `measured`."""
        self.close(_SITES)
        measured = measured or self._at_peak
        return "".join(f"\n  {site}" for site in (measured and measured.sites) or ())

    def close(self, sites: int = 0) -> None:
        """Nothing is measured any more."""
        if self._at_peak is not None and self._at_peak.bytes is None:
            self._at_peak.limit = sites
            self._at_peak.__exit__(None, None, None)


def _needed(measured: peak, kind: str = "device") -> Optional[int]:
    own = measured.own_growth_bytes if kind == "device" else None
    return measured.growth_bytes if own is None else own


class Window:
    """Which allocations are a test's. Made before its setup."""

    def __init__(self) -> None:
        self._moments = [moment()]
        self._latest = self._moments[0]
        self._depth = 0
        self.left: Optional[List[Site]] = None  #: what is still there, by call stack; None: not determined yet
        self.leaks: List[Site] = []  #: of these, the call stacks beyond the limit

    def begin_wider(self) -> None:
        """The setup of a wider fixture begins; it may have others set up first."""
        if self._depth == 0:
            self._moments.append(moment())
        self._depth += 1

    def end_wider(self) -> None:
        """It ends."""
        self._depth -= 1
        if self._depth == 0:
            self._latest = moment()
            self._moments.append(self._latest)

    def set_up(self) -> None:
        """A function-scoped fixture was set up."""
        if self._depth == 0:
            self._latest = moment()

    def torn_down(self, wider: bool) -> None:
        """A fixture was torn down: what was allocated since the latest such moment is that fixture's."""
        if self._depth != 0:
            return
        now = moment()
        if wider:
            self._moments += [self._latest, now]
        self._latest = now

    def settle(self, limit: LeakLimit, arguments: Optional[Dict[str, Any]]) -> None:
        """Determines what is left, the first time that this is called: when the teardown of a wider fixture than the test's
        begins, or else at the end. `arguments`: the test's, which hold what its fixtures returned; pytest would clear them a
        moment later."""
        if self.left is not None:
            return
        if isinstance(arguments, dict):
            arguments.clear()
        for _ in range(2):
            self.left = made_between([*self._moments, moment()]) or []
            self.leaks = [site for site in self.left if site.bytes > limit.bytes and limit.counts(site)]
            if not self.leaks:
                break
            gc.collect()  # what only waits for the garbage collector is not left


def leak_message(sites: List[Site], limit: LeakLimit) -> str:
    """With the call stacks, the program's own lines."""
    stacks = "1 call stack" if len(sites) == 1 else f"{len(sites)} call stacks"
    lines = [f"The test left {sum(site.bytes for site in sites)} bytes of GPU memory behind, by {stacks} with more than "
             f"its limit of {limit.bytes} each:"]
    for site in sites[:_STACKS]:
        lines.append(f"  {site.bytes} bytes in {site.count}, {site.api}:")
        frames = [frame for frame in site.frames if frame.file is not None and not frame.library] or site.frames
        lines += [f"    {frame}" for frame in frames[:_FRAMES]]
    if len(sites) > _STACKS:
        lines.append(f"  and {len(sites) - _STACKS} more")
    return "\n".join(lines)
