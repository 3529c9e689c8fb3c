"""When a profiled function begins, reaches a line, and ends.

CPython 3.12 and later tell it of the functions that are profiled alone (sys.monitoring, PEP 669): the rest of the program
runs as without, in all threads, and debuggers and coverage keep their tools.

Earlier versions have trace functions only, which are of the thread that begins, and see all that it does. It is one of C's
(PyEval_SetTrace): before one of sys.settrace() is called, the interpreter copies the frame's variables into a dictionary,
which up to 3.10 keeps what they held until the next line, and so tensors alive that the program let go. Where there is one
of sys.settrace() already, a debugger's or coverage's, that goes on being called.
"""

from __future__ import annotations

import ctypes
import dis
import sys
from types import CodeType, FrameType
from typing import Any, Callable, Dict, List, Optional, Set

Begin = Callable[[FrameType, int], None]  # a frame, at a line
End = Callable[[FrameType, bool], None]  # a frame; whether it returned


class Events:
    """Calls these for the frames of `codes`."""

    def __init__(self, begin: Begin, line: Begin, end: End) -> None:
        self.begin, self.line, self.end = begin, line, end
        self.codes: Set[CodeType] = set()

    def follow(self, codes: Set[CodeType]) -> None:
        """From now on those of these."""
        raise NotImplementedError


class NativeTrace(Events):
    """Before CPython 3.12."""

    def __init__(self, begin: Begin, line: Begin, end: End) -> None:
        super().__init__(begin, line, end)
        kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int, ctypes.c_void_p)
        self._function = kind(self._called)  # kept: the interpreter has its address
        self._by_python: Optional[TraceFunction] = None
        self._active = False

    def follow(self, codes: Set[CodeType]) -> None:
        self.codes = set(codes)
        self._active = self._active and sys.gettrace() is None  # else another has taken its place
        if codes and not self._active and sys.gettrace() is not None:
            self._by_python = self._by_python or TraceFunction(self.begin, self.line, self.end)
        if self._by_python is not None:
            self._by_python.follow(codes)
            self._by_python = self._by_python if codes else None
        elif bool(codes) != self._active:
            self._active = bool(codes)
            ctypes.pythonapi.PyEval_SetTrace(ctypes.cast(self._function, ctypes.c_void_p) if codes else None, None)

    def _called(self, _: Any, frame: FrameType, event: int, result: Optional[int]) -> int:
        if frame.f_code in self.codes:
            if event == 0:  # PyTrace_CALL, _LINE, _RETURN
                self.begin(frame, frame.f_lineno)
            elif event == 2:
                self.line(frame, frame.f_lineno)
            elif event == 3:
                self.end(frame, result is not None and not _suspended(frame))
        return 0


_SUSPENDS = {dis.opmap[name] for name in ("YIELD_VALUE", "YIELD_FROM") if name in dis.opmap}


def _suspended(frame: FrameType) -> bool:
    """Whether a frame that is left goes on later."""
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] in _SUSPENDS


class TraceFunction(Events):
    """Before CPython 3.12, behind another trace function."""

    def __init__(self, begin: Begin, line: Begin, end: End) -> None:
        super().__init__(begin, line, end)
        self._previous: Any = None

    def follow(self, codes: Set[CodeType]) -> None:
        self.codes = set(codes)
        active = sys.gettrace() == self._called
        if codes and not active:
            self._previous = sys.gettrace()
            sys.settrace(self._called)
        elif active and not codes:
            sys.settrace(self._previous)
            self._previous = None

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        previous = self._previous
        other = previous(frame, event, argument) if previous is not None else None
        code = frame.f_code
        if event != "call" or code not in self.codes:
            return other
        self.begin(frame, frame.f_lineno)
        return self._tracer(other)

    def _tracer(self, other: Any) -> Any:
        raised = False

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal other, raised
            if other is not None:
                other = other(frame, event, argument)
            if event == "line":
                raised = False
                self.line(frame, frame.f_lineno)
            elif event == "exception":
                raised = True
            elif event == "return":
                self.end(frame, not raised and not _suspended(frame))
            return trace

        return trace


class Monitoring(Events):
    """CPython 3.12 and later."""

    def __init__(self, begin: Begin, line: Begin, end: End) -> None:
        super().__init__(begin, line, end)
        self._tool: Optional[int] = None

    def follow(self, codes: Set[CodeType]) -> None:
        monitoring: Any = getattr(sys, "monitoring")
        if self._tool is None:
            if not codes:
                return
            self._tool = self._take_tool(monitoring)
        events = monitoring.events
        local = events.PY_START | events.PY_RESUME | events.LINE | events.PY_RETURN | events.PY_YIELD
        for code in self.codes - codes:
            monitoring.set_local_events(self._tool, code, 0)
        for code in codes - self.codes:
            monitoring.set_local_events(self._tool, code, local)
        self.codes = set(codes)
        # Frames that end by an exception, and generators that are thrown one, are told for all code or none.
        monitoring.set_events(self._tool, events.PY_UNWIND | events.PY_THROW if codes else 0)
        if not codes:
            for event in self._handlers(events):
                monitoring.register_callback(self._tool, event, None)
            monitoring.free_tool_id(self._tool)
            self._tool = None

    def _take_tool(self, monitoring: Any) -> int:
        # 0, 1, 2 and 5 are meant for debuggers, coverage, profilers and optimizers.
        for tool in (3, 4, 2, 1, 5, 0):
            if monitoring.get_tool(tool) is None:
                monitoring.use_tool_id(tool, "memlab")
                for event, handler in self._handlers(monitoring.events).items():
                    monitoring.register_callback(tool, event, handler)
                return tool
        raise RuntimeError("the line profiler finds no free tool of sys.monitoring: end another profiler or debugger first")

    def _handlers(self, events: Any) -> Dict[int, Callable[..., None]]:
        return {events.PY_START: self._begun, events.PY_RESUME: self._begun, events.PY_THROW: self._begun,
                events.LINE: self._at_line, events.PY_RETURN: self._returned, events.PY_YIELD: self._left,
                events.PY_UNWIND: self._left}

    # The frame that an event is of calls the handler.
    def _begun(self, code: CodeType, *_: Any) -> None:
        if code in self.codes:
            frame = sys._getframe(1)
            self.begin(frame, frame.f_lineno)

    def _at_line(self, code: CodeType, line: int) -> None:
        if code in self.codes:
            self.line(sys._getframe(1), line)

    def _returned(self, code: CodeType, *_: Any) -> None:
        if code in self.codes:
            self.end(sys._getframe(1), True)

    def _left(self, code: CodeType, *_: Any) -> None:
        if code in self.codes:
            self.end(sys._getframe(1), False)


def events(begin: Begin, line: Begin, end: End) -> Events:
    kind = Monitoring if hasattr(sys, "monitoring") else NativeTrace
    return kind(begin, line, end)
