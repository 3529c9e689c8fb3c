"""Recordings, read by the memlab-report that this package has. Needs neither a preload nor a GPU."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import json
import os
import subprocess
import tempfile
from typing import Any, Dict, Iterator, List, Optional, Union

from ._package import tool_path

_Path = Union[str, "os.PathLike[str]"]


class ReportError(RuntimeError):
    """memlab-report ended with another exit code than 0. Its text is the one line that says what is wrong."""

    def __init__(self, message: str, code: int, output: str) -> None:
        super().__init__(message)
        self.code = code  #: 2: bad input or usage; 1: a limit of `check` is exceeded
        self.output = output  #: what it had printed


def _failed(message: str, code: int, output: str) -> ReportError:
    """`check` says on standard output what it found, last that it failed."""
    said = [*message.splitlines()[:1], *output.splitlines()[-1:], f"memlab-report ended with exit code {code}"]
    return ReportError(said[0], code, output)


def _command(arguments: List[str]) -> List[str]:
    return [tool_path("memlab-report"), *arguments]


def report(*arguments: _Path) -> str:
    """Runs memlab-report with these arguments and returns what it prints: report("leaks", "memlab.train.4711.json").

    ReportError: it found something wrong, or a limit of `check` is exceeded. FileNotFoundError: the program is not here.
    """
    done = subprocess.run(_command([os.fspath(argument) for argument in arguments]), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, encoding="utf-8",
                          errors="surrogateescape")
    if done.returncode != 0:
        raise _failed(done.stderr, done.returncode, done.stdout)
    return done.stdout


def html(path: _Path, out: _Path, after: Optional[_Path] = None) -> str:
    """Writes the page of a recording, or of two to compare, to `out`, for a browser. Returns the absolute path of the page.

    ReportError: as of report().
    """
    page = os.path.abspath(out)
    report("html", "--output", page, _file(path), *([] if after is None else [_file(after)]))
    return page


def _file(path: Optional[_Path]) -> str:
    """The recording at the path; ReportError for None. A process that still runs has a log only, beside the report's name."""
    if path is None:  # of recording()
        raise ReportError("there is no recording: this process does not run under memlab, or has not used CUDA yet", 2, "")
    name = os.fspath(path)
    log = name[:-len(".json")] + ".memlog" if name.endswith(".json") else name
    return log if not os.path.exists(name) and os.path.exists(log) else name


@dataclasses.dataclass(frozen=True)
class Curve:
    """A figure over time (docs/numbers.md); None: not known."""

    peak_bytes: Optional[int]
    peak_time_ns: Optional[int]  #: since the process started
    at_end_bytes: Optional[int]


@dataclasses.dataclass(frozen=True)
class Device:
    """A GPU, or a cache on one that memlab sees from inside: PyTorch's tensors."""

    index: int
    gpu: int
    allocator: Optional[str]  #: "PyTorch"; None: the GPU itself
    name: str
    total_bytes: int
    curves: Dict[str, Curve]  #: requested, allocated, active, reserved, device_used

    @property
    def peak_bytes(self) -> Optional[int]:
        """The most that was allocated at a time."""
        return self.curves["allocated"].peak_bytes


@dataclasses.dataclass(frozen=True)
class Place:
    """A call site, with the figures of `memlab-report sites`."""

    device: int  #: index of the Device
    function: Optional[str]
    file: Optional[str]
    line: Optional[int]
    module: Optional[str]  #: the binary, where the names are not known
    kind: str  #: of memory
    api: str  #: the function that was called
    at_peak_bytes: int  #: held at the device's peak
    at_peak_count: int
    bytes: int  #: of all allocations
    count: int
    live_bytes: int  #: never freed
    live_count: int
    temporaries: int  #: freed before the thread's next allocation


@dataclasses.dataclass(frozen=True)
class Event:
    """An allocation or a free, a line of `memlab-report export --to csv`."""

    thread: int
    time: str  #: of day, UTC: "04:41:46.351081"
    action: str  #: "allocate", "free", "allocate failure"
    address: Optional[int]  #: None of a failure
    bytes: int  #: as asked for
    stream: int


class Recording:
    """The recording of one process: load()."""

    def __init__(self, path: str, summary: Dict[str, Any]) -> None:
        self.path = path
        self.summary = summary  #: what `memlab-report --json` says of it

    def __repr__(self) -> str:
        return f"<memlab.Recording {self.path}: {self.summary['process']['ended_text']}>"

    @property
    def devices(self) -> List[Device]:
        """The GPUs that were used, and the caches on them."""
        return [Device(device["index"], device["gpu"], device["allocator"], device["name"], device["total_bytes"],
                       {name: Curve(**curve) for name, curve in device["curves"].items()})
                for device in self.summary["devices"]]

    @property
    def lacks(self) -> List[str]:
        """What the recording lacks, in sentences; empty: nothing that memlab knows of."""
        return [lack["text"] for lack in self.summary["lacks"]]

    def sites(self, top: int = 1000) -> List[Place]:
        """Who allocated: the `top` call sites of each device with most memory at its peak, largest first."""
        places = []
        for device in self._document("sites", "--top", str(top))["devices"]:
            for site in device["sites"]:
                figures = {field.name: site[field.name] for field in dataclasses.fields(Place) if field.name in site}
                place = {name: site["place"][name] for name in ("function", "file", "line", "module")}
                places.append(Place(device=device["index"], **place, **figures))
        return places

    def lines(self, source: str) -> List[Dict[str, Any]]:
        """The lines of a source file, or of a function in it ("model.py:Net.forward"), that took memory.

        Each has `function`, `file`, `line` and the columns of `memlab-report lines`.
        """
        return [{"function": function["function"], "file": function["file"], **line}
                for group in self._document("lines", source)["groups"] for function in group["functions"]
                for line in function["lines"]]

    def events(self, device: Optional[int] = None) -> Iterator[Event]:
        """Allocations and frees in the order of time, read as they are asked for; from the event log.

        `device`: the GPU, where the program used several. ReportError: there is no log, or it is not said which GPU.
        """
        chosen = [] if device is None else ["--device", str(device)]
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said, subprocess.Popen(
                _command(["export", "--to", "csv", *chosen, self.path]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=said, encoding="utf-8", errors="surrogateescape") as running:
            assert running.stdout is not None
            try:
                rows = csv.reader(running.stdout)
                next(rows, None)
                for thread, time, action, address, size, stream in rows:
                    pointer = None if address == "(nil)" else int(address, 16)
                    yield Event(int(thread), time, action, pointer, int(size), int(stream, 0))
                if running.wait() != 0:
                    said.seek(0)
                    raise _failed(said.read(), running.returncode, "")
            finally:
                running.kill()  # the caller wants no more

    def to_pandas(self, table: str = "sites") -> Any:
        """A table, "sites" or "events", as a pandas.DataFrame with the members of Place or Event as columns.

        ImportError: pandas is not installed here.
        """
        tables = {"sites": (Place, self.sites), "events": (Event, self.events)}
        if table not in tables:
            raise ValueError(f"no table {table!r}: it is \"sites\" or \"events\"")
        pandas: Any = importlib.import_module("pandas")
        kind, rows = tables[table]
        return pandas.DataFrame([dataclasses.astuple(row) for row in rows()],
                                columns=[field.name for field in dataclasses.fields(kind)])

    def _document(self, *arguments: str) -> Dict[str, Any]:
        document: Dict[str, Any] = json.loads(report(*arguments, "--json", self.path))["reports"][0]
        return document


def load(path: Optional[_Path]) -> Recording:
    """Reads a recording: a report (memlab.*.json) or an event log (*.memlog), compressed or not.

    ReportError: it cannot be read, is None (recording() of a process without memlab), or is a run of several processes,
    whose recordings are loaded one by one.
    """
    file = _file(path)
    document = json.loads(report("--json", file))
    if "reports" not in document:
        raise ReportError(f"{file} is a run of several processes: load the recording of one of them", 2, "")
    return Recording(file, document["reports"][0])
