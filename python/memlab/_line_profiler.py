"""Memory by line of chosen functions, as they run: pytorch_memlab's line profiler, of figures that memlab records."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from types import CodeType, FrameType, TracebackType
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, TextIO, Tuple, Type, TypeVar, Union

from . import _library, _line_events, _line_figures
from ._gpu import gpu_number
from ._line_table import Records, RecordsDisplay, Source

DEFAULT_COLUMNS = ("active_bytes.all.peak", "reserved_bytes.all.peak")

_Function = TypeVar("_Function", bound=Callable[..., Any])
Selection = Union[None, str, Callable[..., Any], Sequence[Union[str, Callable[..., Any]]]]


def _code_of(function: Any) -> Optional[CodeType]:
    """Of the function that decorators, methods and partial objects call in the end."""
    while True:
        inner = getattr(function, "__wrapped__", None) or getattr(function, "__func__", None)
        if inner is None and isinstance(function, functools.partial):
            inner = function.func
        if inner is None:
            break
        function = inner
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


class _Line:
    """A line of a frame that is being run."""

    __slots__ = ("profiler", "code", "number", "gpu", "begin", "peaks")

    def __init__(self, profiler: LineProfiler, code: CodeType, number: int, reading: _line_figures.Reading) -> None:
        self.profiler, self.code, self.number = profiler, code, number
        self.restart(reading)

    def restart(self, reading: _line_figures.Reading) -> None:
        self.gpu = self.profiler.target_gpu
        self.begin = reading.values
        self.peaks = reading.restarted()

    def fold(self, reading: _line_figures.Reading) -> None:
        for at in _line_figures.PEAKS:
            if reading.values[at] > self.peaks[at]:
                self.peaks[at] = reading.values[at]

    def figures(self, end: _line_figures.Reading) -> List[int]:
        values = list(end.values)
        for at in _line_figures.PEAKS:
            values[at] = self.peaks[at]
        for at in _line_figures.SUMS:
            values[at] -= self.begin[at]
        return values


class _Followed:
    """All enabled profilers' functions, and the frames of these that are being run. A reading of a GPU counts for each."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._busy = False  # the thread that holds the lock is in here: what it calls may be profiled, too
        self._profilers: List[LineProfiler] = []
        self._by_code: Dict[CodeType, List[LineProfiler]] = {}
        self._open: Dict[Tuple[int, int], _Line] = {}  # by the id() of frame and profiler
        self._events = _line_events.events(self._begin, self._line, self._end)

    def set(self, profiler: LineProfiler) -> None:
        """Its functions or whether it is enabled changed."""
        with self.lock:
            if profiler in self._profilers:
                self._profilers.remove(profiler)
            if profiler.enabled:
                self._profilers.append(profiler)
            by_code: Dict[CodeType, List[LineProfiler]] = {}
            for each in self._profilers:
                for code in each.sources:
                    by_code.setdefault(code, []).append(each)
            self._by_code = by_code
            self._open = {key: line for key, line in self._open.items() if line.profiler in by_code.get(line.code, ())}
            self._events.follow(set(by_code))

    def retarget(self, profiler: LineProfiler) -> None:
        """Its open lines count on another GPU from here on."""
        with self.lock:
            lines = [line for line in self._open.values() if line.profiler is profiler]
            if lines:
                reading = self._read(profiler.target_gpu)
                for line in lines:
                    line.restart(reading)

    def _read(self, gpu: int) -> _line_figures.Reading:
        reading = _line_figures.read(gpu)
        for line in self._open.values():
            if line.gpu == gpu:
                line.fold(reading)
        return reading

    def _step(self, frame: FrameType, number: Optional[int], ends_line: bool, returned: bool) -> None:
        """The frame ends the line that it is at, if `ends_line`, and begins the line `number`, if any."""
        finished: List[Callable[[], None]] = []
        with self.lock:
            if self._busy:
                return
            self._busy = True
            try:
                readings: Dict[int, _line_figures.Reading] = {}
                for profiler in self._by_code.get(frame.f_code, ()):
                    gpu, key = profiler.target_gpu, (id(frame), id(profiler))
                    reading = readings.get(gpu) or readings.setdefault(gpu, self._read(gpu))
                    line = self._open.pop(key, None)
                    if line is not None and ends_line:
                        profiler.records.add(line.code, line.number, line.figures(reading), reading)
                    if number is not None:
                        self._open[key] = _Line(profiler, frame.f_code, number, reading)
                    if returned:
                        finished += profiler.when_finished(frame.f_code)
            finally:
                self._busy = False
        for work in finished:
            work()

    def _begin(self, frame: FrameType, number: int) -> None:
        self._step(frame, number, False, False)

    def _line(self, frame: FrameType, number: int) -> None:
        self._step(frame, number, True, False)

    def _end(self, frame: FrameType, returned: bool) -> None:
        self._step(frame, None, True, returned)


    def forked(self) -> None:
        """In the child: another thread of the parent's may have held the lock."""
        self.lock, self._busy = threading.RLock(), False
        self._open.clear()


_followed = _Followed()
os.register_at_fork(after_in_child=_followed.forked)


class LineProfiler:
    """The memory of PyTorch's cache on a GPU at the end of each line of chosen functions:

        with memlab.LineProfiler(train_step) as profiler:
            train_step(batch)
        profiler.display()                      # print() it, or let a notebook show it

    The columns are keys of torch.cuda.memory_stats() of three parts, as "allocated_bytes.all.current", and "line_bytes.all.made"
    and "line_bytes.all.kept": what a line allocated, and what of that was more when it ended than when it began. For several
    runs of a line each is the maximum. Nothing is synchronized, emptied or reset (docs/python.md, Line by line).

    Functions are given by themselves; decorated ones, methods, generators and coroutines are followed into the code that
    was written. What they call counts for the line that calls it. Without memlab nothing is collected.
    """

    def __init__(self, *functions: Callable[..., Any], target_gpu: Any = 0) -> None:
        self.enabled = False
        self.sources: Dict[CodeType, Source] = {}
        self.records = Records()
        self._finished: Dict[CodeType, List[Callable[[], None]]] = {}
        self._gpu = gpu_number(target_gpu)
        for function in functions:
            self.add_function(function)

    @property
    def target_gpu(self) -> int:
        """The GPU that is looked at; it may be set at any time, within a profiled function, too."""
        return self._gpu

    @target_gpu.setter
    def target_gpu(self, device: Any) -> None:
        self._gpu = gpu_number(device)
        _followed.retarget(self)

    def add_function(self, func: Callable[..., Any]) -> None:
        """Profiles one more. What has no Python code is warned of."""
        code = _code_of(func)
        if code is None:
            _library.warn(f"the line profiler cannot follow {func!r}: it has no Python code", UserWarning)
            return
        self.add_code(code, getattr(func, "__qualname__", code.co_name))

    def add_code(self, code: CodeType, name: str) -> None:
        """Profiles the function that has this code, which may not be there yet."""
        if code not in self.sources:
            self.sources[code] = Source(code, name)
            if self.enabled:
                _followed.set(self)

    def enable(self) -> None:
        if _line_figures.recorded():
            self.enabled = True
            _followed.set(self)

    def disable(self) -> None:
        self.enabled = False
        _followed.set(self)

    def clear(self) -> None:
        """Forgets its functions, and what was collected."""
        self.sources, self._finished, self.records = {}, {}, Records()
        _followed.set(self)

    def __enter__(self) -> LineProfiler:
        self.enable()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.disable()

    def display(self, func: Selection = None, columns: Sequence[str] = DEFAULT_COLUMNS) -> RecordsDisplay:
        """What was collected, of all functions, of one, or of a list of them; each the function or its qualified name.

        ValueError: a column that there is not (it lists those that there are), or a function that is not profiled.
        """
        columns = [columns] if isinstance(columns, str) else list(columns)
        self.records.check(columns)
        chosen = list(self.sources.values()) if func is None else self._chosen(func)
        with _followed.lock:
            return RecordsDisplay({source: self.records.lines_of(source.code, columns) for source in chosen}, columns,
                                  self.records.notes(columns))

    def print_stats(self, func: Selection = None, columns: Sequence[str] = DEFAULT_COLUMNS,
                    stream: Optional[TextIO] = None) -> None:
        """Writes display() to `stream`; by default standard output."""
        (sys.stdout if stream is None else stream).write(str(self.display(func, columns)))

    def has(self, func: Callable[..., Any]) -> bool:
        return _code_of(func) in self.sources

    def on_finished(self, func: Callable[..., Any], work: Callable[[], None]) -> None:
        """Calls it each time that a call of the function has returned."""
        code = _code_of(func)
        if code is not None:
            self._finished.setdefault(code, []).append(work)

    def when_finished(self, code: CodeType) -> List[Callable[[], None]]:
        return self._finished.get(code, [])

    def _chosen(self, func: Selection) -> List[Source]:
        wanted = [func] if isinstance(func, str) or callable(func) else list(func or ())
        chosen: List[Source] = []
        for each in wanted:
            found = [source for code, source in self.sources.items()
                     if (source.name == each if isinstance(each, str) else code is _code_of(each) or code == _code_of(each))]
            if not found and self.sources:
                profiled = ", ".join(source.name for source in self.sources.values())
                name = each if isinstance(each, str) else getattr(each, "__qualname__", repr(each))
                raise ValueError(f"{name} is not profiled; these functions are: {profiled}")
            chosen += [source for source in found if source not in chosen]
        return chosen


_global_profiler = LineProfiler()


def clear_global_line_profiler() -> None:
    """Forgets the functions of profile() and profile_every(), and what was collected of them."""
    _global_profiler.clear()


def set_target_gpu(gpu_id: Any) -> None:
    """The GPU that profile() and profile_every() look at: its number or a torch.device. At any time."""
    _global_profiler.target_gpu = gpu_id


def _profile_globally(func: Callable[..., Any]) -> bool:
    if not _global_profiler.enabled:
        _global_profiler.enable()
    _global_profiler.add_function(func)
    return _global_profiler.enabled and _global_profiler.has(func)


def profile(func: _Function, columns: Sequence[str] = DEFAULT_COLUMNS) -> _Function:
    """A decorator: when the program ends, the memory by line of all calls of the function is printed (LineProfiler)."""
    _global_profiler.records.check(columns)
    if _profile_globally(func):
        atexit.register(_print_if_profiled, func, tuple(columns))
    return func


def _print_if_profiled(func: Callable[..., Any], columns: Sequence[str]) -> None:
    if _global_profiler.has(func):
        _global_profiler.print_stats(func, columns)


def profile_every(output_interval: int = 1, enable: bool = True,
                  columns: Sequence[str] = DEFAULT_COLUMNS) -> Callable[[_Function], _Function]:
    """As profile(), printed after each `output_interval` calls that have returned. `enable=False` switches it off."""
    if not isinstance(output_interval, int):
        raise TypeError(f"profile_every takes a number of calls, as in @memlab.profile_every(1), not {output_interval!r}")
    if output_interval < 1:
        raise ValueError(f"profile_every prints after 1 call or more, not after {output_interval}")
    _global_profiler.records.check(columns)

    def decorate(func: _Function) -> _Function:
        if enable and _profile_globally(func):
            calls = 0

            def count() -> None:
                nonlocal calls
                calls += 1
                if calls % output_interval == 0:
                    _print_if_profiled(func, columns)

            _global_profiler.on_finished(func, count)
        return func

    return decorate
