"""The most memory that a part of a program needed, and who held it."""

from __future__ import annotations

import ctypes
import dataclasses
import json
from types import TracebackType
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type

from . import _library
from ._gpu import gpu_number

KINDS = ("device", "managed", "pinned")


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
    #: A library took it for itself and keeps it: cuBLAS, cuDNN and NCCL with their handles, PyTorch's CUDA code as
    #: workspaces of cuBLAS. Told by the binaries, as `memlab-report leaks` does where functions have no names.
    library: bool = False

    @classmethod
    def of(cls, site: Dict[str, Any]) -> Site:
        """Of an interval's JSON."""
        return cls(site["bytes"], site["count"], site["gpu"], site.get("allocator"), site["kind"], site["api"],
                   tuple(Frame(**frame) for frame in site["frames"]), site.get("library", False))

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
    """What one nn.Module of PyTorch's held at the peak, without those within: allocated by its calls, and its own."""

    name: Optional[str]  #: its qualified name; None: it has none yet
    class_name: Optional[str]
    bytes: int
    count: int

    def __str__(self) -> str:
        return f"{self.bytes} bytes in {self.count}: {self.name or '(no name)'} {self.class_name or ''}".rstrip()


def check_kind(kind: Any) -> str:
    """The kind of memory. ValueError: there is none of that name."""
    if kind not in KINDS:
        raise ValueError(f"kind is one of {', '.join(KINDS)}, not {kind!r}")
    return str(kind)


def moment() -> int:
    """How many allocations this process has made, for made_between(); 0 without memlab or before CUDA was used."""
    return int(_library.call("moment") or 0)


def made_between(moments: Sequence[int]) -> Optional[List[Site]]:
    """The device memory that was allocated between the first and the second of the moments, the third and the fourth, ...,
    and is still allocated, by call site, largest first. None: without memlab, or before CUDA was used."""
    array = (ctypes.c_uint64 * len(moments))(*moments)
    text = _library.filled("made_between", array, len(moments), 1 << 30, room=_library.LARGE)
    return None if text is None else [Site.of(site) for site in json.loads(text)["sites"]]


class peak:
    """Measures the memory that a part of the program needs:

        with memlab.peak() as p:
            loss = model(batch)
        print(p.bytes, p.sites[0])

    All figures are None until it ends, and without memlab. They are counted by the recorder of this process, which sees
    every allocation; no log is read. Device memory of all GPUs and threads counts, in blocks (docs/numbers.md, allocated),
    PyTorch's tensors in place of its segments. `device`, a GPU's number, "cuda:1" or a torch.device, counts that GPU's
    alone; `kind` "managed" or "pinned" counts managed memory or pinned host memory in place of device memory. ValueError,
    TypeError: they are none of these. Others may be nested in it, and 64 may be open at a time. To enter and to
    leave costs less than a snapshot; in between an allocation costs some tens of nanoseconds more. In a forked child the
    figures of a peak that its parent entered are None.
    """

    bytes: Optional[int] = None  #: the most that was allocated at a time
    growth_bytes: Optional[int] = None  #: by how much that is more than begin_bytes
    begin_ns: Optional[int] = None  #: when it began, since the process started
    end_ns: Optional[int] = None
    begin_bytes: Optional[int] = None  #: allocated when it began
    end_bytes: Optional[int] = None  #: allocated when it ended
    allocated_bytes: Optional[int] = None  #: sum of all allocations in it
    allocated_count: Optional[int] = None
    freed_bytes: Optional[int] = None  #: sum of all frees in it
    freed_count: Optional[int] = None
    library_bytes: Optional[int] = None  #: of `allocated_bytes`: what libraries took for themselves and kept (Site.library)
    library_count: Optional[int] = None
    own_growth_bytes: Optional[int] = None  #: growth_bytes if they had not
    at_least: Optional[bool] = None  #: memory may be missing: the report says why, under `missed`
    other_bytes: Optional[int] = None  #: what the other call sites held
    nn_modules: Optional[List[NnModule]] = None  #: all that held of `bytes`, largest first

    moments: Optional[Tuple[int, int, int]] = None  #: allocations in the process until it began, its peak, it ended
    gpu_names: Optional[List[str]] = None  #: of the GPUs that the process had used, in the order of their numbers

    def __init__(self, limit: int = 50, device: Any = None, kind: str = "device") -> None:
        if not isinstance(limit, int):
            raise TypeError(f"memlab.peak takes how many call sites it is to have, not {limit!r}")
        self.limit = max(limit, 0)  #: how many of `sites` it will have; until it ends
        self._filter = (None if device is None else gpu_number(device), check_kind(kind))
        self._interval = 0
        self._is_open = False
        self._holders: List[Dict[str, Any]] = []
        self._sites: Optional[List[Site]] = None

    @property
    def sites(self) -> Optional[List[Site]]:
        """Who held `bytes`, largest first: the `limit` largest."""
        if self._sites is None and self.bytes is not None:
            self._sites = [Site.of(site) for site in self._holders]
        return self._sites

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
        if self._is_open:
            raise RuntimeError("this memlab.peak has not ended yet: make another one for a part within")
        self._is_open = True
        gpu, kind = self._filter
        if gpu is None and kind == "device":
            self._interval = _library.call("interval_begin") or 0
        else:
            self._interval = _library.call("interval_begin_of", -1 if gpu is None else gpu,
                                           None if kind == "device" else kind.encode()) or 0
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        interval, self._interval, self._is_open = self._interval, 0, False
        text = _library.filled("interval_end", interval, self.limit, room=_library.LARGE) if interval else None
        if text is not None:
            self._take(json.loads(text))

    def _take(self, document: Dict[str, Any]) -> None:
        self.bytes = document["peak_bytes"]
        self.growth_bytes = document["peak_bytes"] - document["begin_bytes"]
        for name in ("begin_ns", "end_ns", "begin_bytes", "end_bytes", "allocated_bytes", "allocated_count", "freed_bytes",
                     "freed_count", "at_least", "other_bytes"):
            setattr(self, name, document[name])
        self._holders, self._sites = document["sites"], None
        for name in ("library_bytes", "library_count", "own_growth_bytes"):
            setattr(self, name, document.get(name))  # the library that was preloaded may be older
        if "gpus" in document:
            self.moments = (document["begin_moment"], document["peak_moment"], document["end_moment"])
            self.gpu_names = [gpu["name"] for gpu in document["gpus"]]
        if "nn_modules" in document:
            self.nn_modules = [NnModule(each["name"], each["class"], each["bytes"], each["count"])
                               for each in document["nn_modules"]]

    def __repr__(self) -> str:
        return f"memlab.peak(bytes={self.bytes}, growth_bytes={self.growth_bytes})"
