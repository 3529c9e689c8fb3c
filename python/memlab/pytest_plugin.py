"""pytest --memlab: limits of GPU memory for tests (docs/python.md, In tests).

pytest starts itself again once, under memlab, when it has only its command line: before it captures output and before a
test is imported. A test's figures are memlab.peak()'s around its call; what fixtures hold was there before, and is theirs.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import threading
from typing import Any, Callable, Dict, Generator, List, Optional, Tuple, TypeVar, cast

from . import _library
from ._annotations import stats
from ._package import tool_path
from ._peak import peak

pytest: Any = importlib.import_module("pytest")  # types are checked where it is not installed, too
_Hook = TypeVar("_Hook", bound=Callable[..., Any])
_STARTED = "MEMLAB_PYTEST_STARTED"  # by this plugin, in the environment: not again
_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_SHOWN = 10  # rows of the table
_NEEDED, _UNCHECKED = "memlab_gpu_bytes", "memlab_not_checked"  # properties of a report


def _wrapper(**options: bool) -> Callable[[_Hook], _Hook]:
    return cast(Callable[[_Hook], _Hook], pytest.hookimpl(hookwrapper=True, **options))


def parse_size(value: Any) -> int:
    """Bytes of "24 MiB", "1GB", 4096."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(value))
    if match is None or match.group(2).upper() not in _UNITS:
        raise pytest.UsageError(f"limit_gpu_memory: {value!r} is not a size: write it as 24 MiB, 1.5 GiB or 4096")
    return int(float(match.group(1)) * _UNITS[match.group(2).upper()])


def pytest_addoption(parser: Any) -> None:
    """The option and the ini value."""
    parser.getgroup("memlab").addoption("--memlab", action="store_true",
                                        help="record GPU memory, and check the tests' limits of it")
    parser.addini("memlab_limit_gpu_memory", "limit of GPU memory for tests without a limit_gpu_memory marker: 24 MiB")


def _refusal() -> Optional[str]:
    """Why this process cannot be started again."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        if "/libcuda.so" in maps.read():
            return "CUDA is loaded already"
    if threading.active_count() > 1:
        return "threads run already"
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            if int(descriptor) > 2 and os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
                return "sockets are open already"
        except OSError:  # the folder's own
            continue
    return None


def _start_again() -> None:
    if os.environ.pop(_STARTED, None) is not None:
        raise pytest.UsageError("--memlab: memlab was not loaded into the new process; see memlab-run --doctor")
    reason = _refusal()
    if reason is not None:
        raise pytest.UsageError(f"--memlab: {reason}, so pytest cannot be started again: run memlab-run -- python3 -m pytest")
    os.environ[_STARTED] = "1"
    command = getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv]  # orig_argv: from CPython 3.10 on
    try:
        os.execv(tool_path("memlab-run"), ["memlab-run", "--", sys.executable, *command[1:]])
    except OSError as error:
        raise pytest.UsageError(f"--memlab: {tool_path('memlab-run')}: {error.strerror}; install memlab again") from error


@_wrapper(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> Generator[None, Any, None]:
    """Starts pytest again under memlab. A wrapper, as the one that begins to capture output, and before that. xdist's
    workers inherit memlab from the controller."""
    if early_config.known_args_namespace.memlab:
        if _library.has("interval_begin"):
            os.environ.pop(_STARTED, None)
        else:
            _start_again()
    yield


def pytest_configure(config: Any) -> None:
    """The marker, and the plugin's state."""
    config.addinivalue_line("markers", "limit_gpu_memory(size): the GPU memory that the test's call may add to what its "
                                       'fixtures hold, as "24 MiB"; checked with --memlab')
    config.pluginmanager.register(_Limits(config), "memlab_limits")


class _Limits:
    """One run of pytest. Figures travel in the reports' properties, which xdist's workers send and JUnit's file has."""

    def __init__(self, config: Any) -> None:
        self._on = bool(config.getoption("--memlab"))
        self._default = config.getini("memlab_limit_gpu_memory")
        if self._default:
            parse_size(self._default)  # a wrong one ends the run before the tests
        self._exceeded: Dict[str, str] = {}
        self._unchecked: List[Tuple[str, str]] = []  # why, test
        self._needed: Dict[str, int] = {}

    def _limit(self, item: Any) -> Optional[int]:
        marker = item.get_closest_marker("limit_gpu_memory")
        if marker is None:
            return parse_size(self._default) if self._default else None
        if len(marker.args) != 1 or marker.kwargs:
            raise pytest.UsageError(f'{item.nodeid}: limit_gpu_memory takes one size, as limit_gpu_memory("24 MiB")')
        return parse_size(marker.args[0])

    @_wrapper(tryfirst=True)
    def pytest_runtest_call(self, item: Any) -> Generator[None, Any, None]:
        """Around the test's function: fixtures are set up before, and torn down after."""
        limit = self._limit(item)
        self._exceeded.pop(item.nodeid, None)  # of a run before, where tests are run again
        if not self._on:
            if limit is not None:
                item.user_properties.append((_UNCHECKED, "run with --memlab"))
            yield
            return
        measured = peak(limit=3)
        with measured:
            yield
        needed = measured.growth_bytes
        if needed is None or stats() is None:
            if limit is not None:
                item.user_properties.append((_UNCHECKED, "no GPU was used, or memlab is switched off"))
            return
        item.user_properties.append((_NEEDED, needed))
        if limit is not None and needed > limit:
            self._exceeded[item.nodeid] = "\n".join([
                f"The test needed {needed} bytes of GPU memory, its limit is {limit}. At the peak:",
                *(f"  {site}" for site in measured.sites or ())])

    @_wrapper()
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Generator[None, Any, None]:
        """A test that passed beyond its limit failed."""
        outcome = yield
        report = outcome.get_result()
        if call.when == "call":
            message = self._exceeded.pop(item.nodeid, None)
            if message is not None and report.outcome == "passed":
                report.outcome, report.longrepr = "failed", message

    def pytest_runtest_logreport(self, report: Any) -> None:
        """In the process that prints."""
        if report.when == "call":
            properties = dict(report.user_properties)
            if _NEEDED in properties:
                self._needed[report.nodeid] = properties[_NEEDED]
            if _UNCHECKED in properties:
                self._unchecked.append((properties[_UNCHECKED], report.nodeid))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The hungriest tests, and the limits that were not checked."""
        hungriest = sorted((item for item in self._needed.items() if item[1]), key=lambda item: -item[1])
        if hungriest:
            terminalreporter.section("memlab: GPU memory")
            for test, needed in hungriest[:_SHOWN]:
                terminalreporter.write_line(f"{needed:>15,} bytes  {test}")
        for why in sorted({reason for reason, _ in self._unchecked}):
            tests = [test for reason, test in self._unchecked if reason == why]
            terminalreporter.write_line(f"memlab: {len(tests)} limits not checked: {why}")
            for test in tests if self._on else ():
                terminalreporter.write_line(f"    {test}")
