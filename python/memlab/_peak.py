"""The most memory that a part of a program needed, and who held it."""

from __future__ import annotations

import dataclasses
import json
from types import TracebackType
from typing import Any, Dict, List, Optional, Tuple, Type

from . import _library

_ROOM = 1 << 18  # of the JSON; more costs a second call


@dataclasses.dataclass(frozen=True)
class Frame:
    """A frame of a call stack: of Python, or native, which has a binary and an address in it."""

    function: Optional[str] = None
    file: Optional[str] = None
    line: Optional[int] = None
    library: bool = False  #: Python code of an installed package or of the standard library
    module: Optional[str] = None
    address: Optional[int] = None

    def __str__(self) -> str:
        if self.file is not None:
            return f"{self.file}:{self.line} {self.function}"
        return self.function or f"{self.module or '(unknown)'}+{self.address or 0:#x}"


@dataclasses.dataclass(frozen=True)
class Site:
    """What one call site held at the peak."""

    bytes: int
    count: int  #: of the allocations that these were
    gpu: int
    allocator: Optional[str]  #: "PyTorch" of a tensor in its cache; None: the driver's, or of memlab's pool
    kind: str  #: of memory: "device", "suballocation", ...
    api: str  #: the function that was called
    frames: Tuple[Frame, ...]  #: the call into CUDA first

    @classmethod
    def of(cls, site: Dict[str, Any]) -> Site:
        """Of an interval's JSON."""
        return cls(site["bytes"], site["count"], site["gpu"], site.get("allocator"), site["kind"], site["api"],
                   tuple(Frame(**frame) for frame in site["frames"]))

    @property
    def place(self) -> Optional[Frame]:
        """The program's own line: the innermost Python frame that is not of a library, else of Python, else any."""
        python = [frame for frame in self.frames if frame.file is not None]
        own = [frame for frame in python if not frame.library]
        return next(iter(own or python or self.frames), None)

    def __str__(self) -> str:
        return f"{self.bytes} bytes in {self.count}: {self.place or self.api}"


@dataclasses.dataclass(frozen=True)
class Line:
    """What the allocations below one line of Python held at the peak."""

    file: str
    line: int
    function: str
    bytes: int
    count: int


@dataclasses.dataclass(frozen=True)
class NnModule:
    """What the calls of one nn.Module of PyTorch's held at the peak, without those of nn.Modules within."""

    name: Optional[str]  #: its qualified name; None: it has none yet
    class_name: Optional[str]
    bytes: int
    count: int

    def __str__(self) -> str:
        return f"{self.bytes} bytes in {self.count}: {self.name or '(no name)'} {self.class_name or ''}".rstrip()


class peak:
    """Measures the memory that a part of the program needs:

        with memlab.peak() as p:
            loss = model(batch)
        print(p.bytes, p.sites[0])

    All figures are None until it ends, and without memlab. They are counted by the recorder of this process, which sees
    every allocation; no log is read. Device memory of all GPUs and threads counts, in blocks (docs/numbers.md, allocated),
    PyTorch's tensors in place of its segments. It may be nested, and 64 may be open at a time. To enter and to
    leave costs less than a snapshot; in between an allocation costs some tens of nanoseconds more. In a forked child the
    figures of a peak that its parent entered are None.
    """

    bytes: Optional[int] = None  #: the most that was allocated at a time
    growth_bytes: Optional[int] = None  #: by how much that is more than begin_bytes
    begin_bytes: Optional[int] = None  #: allocated when it began
    end_bytes: Optional[int] = None  #: allocated when it ended
    allocated_bytes: Optional[int] = None  #: sum of all allocations in it
    allocated_count: Optional[int] = None
    freed_bytes: Optional[int] = None  #: sum of all frees in it
    freed_count: Optional[int] = None
    at_least: Optional[bool] = None  #: memory may be missing: the report says why, under `missed`
    sites: Optional[List[Site]] = None  #: who held `bytes`, largest first: the `limit` largest
    other_bytes: Optional[int] = None  #: what the other call sites held
    nn_modules: Optional[List[NnModule]] = None  #: all whose calls allocated of `bytes`, largest first

    def __init__(self, limit: int = 50) -> None:
        self._limit = max(limit, 0)
        self._interval = 0

    @property
    def lines(self) -> Optional[List[Line]]:
        """`sites` by the program's own line (Site.place), largest first; sites without a frame of Python's are left out."""
        if self.sites is None:
            return None
        by_line: Dict[Tuple[str, int, str], Tuple[int, int]] = {}
        for site in self.sites:
            place = site.place
            if place is not None and place.file is not None:
                key = (place.file, place.line or 0, place.function or "")
                held = by_line.get(key, (0, 0))
                by_line[key] = (held[0] + site.bytes, held[1] + site.count)
        lines = [Line(*key, *held) for key, held in by_line.items()]
        return sorted(lines, key=lambda line: -line.bytes)

    def __enter__(self) -> peak:
        self._interval = _library.call("interval_begin") or 0
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        interval, self._interval = self._interval, 0
        text = _library.filled("interval_end", interval, self._limit, room=_ROOM) if interval else None
        if text is not None:
            self._take(json.loads(text))

    def _take(self, document: Dict[str, Any]) -> None:
        self.bytes = document["peak_bytes"]
        self.growth_bytes = document["peak_bytes"] - document["begin_bytes"]
        for name in ("begin_bytes", "end_bytes", "allocated_bytes", "allocated_count", "freed_bytes", "freed_count",
                     "at_least", "other_bytes"):
            setattr(self, name, document[name])
        self.sites = [Site.of(site) for site in document["sites"]]
        if "nn_modules" in document:  # the library that was preloaded may be older
            self.nn_modules = [NnModule(each["name"], each["class"], each["bytes"], each["count"])
                               for each in document["nn_modules"]]

    def __repr__(self) -> str:
        return f"memlab.peak(bytes={self.bytes}, growth_bytes={self.growth_bytes})"
