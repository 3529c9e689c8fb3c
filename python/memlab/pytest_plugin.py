"""pytest --memlab: limits of GPU memory for tests (docs/python.md, In tests).

pytest starts itself again once, under memlab (_pytest_start.py), before it captures output and before a test is imported.
A limit that does not hold is an exception of the test's call or teardown for all that comes after: xfail, reruns, reports.
Figures travel in the reports' properties, which xdist's workers send and JUnit's file has.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import re
from typing import Any, Callable, Dict, Generator, List, Optional, Tuple, TypeVar, cast

from ._annotations import scope, snapshot
from ._pytest_baseline import Baseline
from ._pytest_limits import BASELINE, MARKERS, Limits, limits_of, parse_size
from ._pytest_measure import Call, Window, leak_message
from ._pytest_start import ensure_memlab

pytest: Any = importlib.import_module("pytest")  # types are checked where it is not installed, too
_Hook = TypeVar("_Hook", bound=Callable[..., Any])
_SHOWN = 10  # rows of the table
_NAME_LENGTH = 180  # of a kept recording
# Properties of a report.
_OURS = "memlab_"
_NEEDED, _LIBRARIES, _LEFT = "memlab_gpu_bytes", "memlab_library_bytes", "memlab_left_bytes"
_MODEL, _BASELINE, _UNCHECKED = "memlab_gpu_model", "memlab_baseline_bytes", "memlab_not_checked"


def _wrapper(**options: bool) -> Callable[[_Hook], _Hook]:
    return cast(Callable[[_Hook], _Hook], pytest.hookimpl(hookwrapper=True, **options))


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage; write --memlab-fail-on-increase=PERCENT, or put another "
                                         "option behind it")
    return value


def pytest_addoption(parser: Any) -> None:
    """The options and the ini values."""
    group = parser.getgroup("memlab")
    group.addoption("--memlab", action="store_true", help="record GPU memory, and check the tests' limits of it")
    group.addoption("--memlab-update", action="store_true",
                    help="with --memlab: write the peaks of tests with a gpu_baseline marker to the baseline file")
    group.addoption("--memlab-fail-on-increase", metavar="PERCENT", type=_percent, nargs="?", const=0.0,
                    help="with --memlab: tests fail that need more than their baseline, by more than PERCENT (default 0)")
    group.addoption("--memlab-keep", metavar="FOLDER",
                    help="with --memlab: keep a recording of each failing test here, named by its id")
    parser.addini("memlab_limit_gpu_memory", "limit of GPU memory for tests without a limit_gpu_memory marker: 24 MiB")
    parser.addini("memlab_baseline", "file of gpu_baseline, below the rootdir", default="gpu-baseline.json")
    parser.addini("memlab_keep", "folder of --memlab-keep, below the rootdir")


@_wrapper(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> Generator[None, Any, None]:
    """A wrapper, as the one that begins to capture output, and before that. xdist's workers inherit memlab from the
    controller."""
    options = early_config.known_args_namespace
    if options.memlab:
        ensure_memlab()
    else:
        for name, given in (("update", options.memlab_update), ("keep", options.memlab_keep is not None),
                            ("fail-on-increase", options.memlab_fail_on_increase is not None)):
            if given:
                raise pytest.UsageError(f"--memlab-{name} needs --memlab")
    yield


def pytest_configure(config: Any) -> None:
    """The markers, and the plugin's state."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    config.pluginmanager.register(_Checks(config), "memlab_checks")
    config.pluginmanager.register(_Summary(config), "memlab_summary")


class _Checks:
    """In the process that runs the tests."""

    def __init__(self, config: Any) -> None:
        self._on = bool(config.getoption("--memlab"))
        self._is_worker = hasattr(config, "workerinput")
        default = config.getini("memlab_limit_gpu_memory")
        self._default = parse_size(default, "memlab_limit_gpu_memory") if default else None
        self._allowed: Optional[float] = config.getoption("--memlab-fail-on-increase")
        self._updates = bool(config.getoption("--memlab-update"))
        self._baseline = Baseline(_baseline_path(config))
        keep = config.getoption("--memlab-keep")
        ini = config.getini("memlab_keep")
        self._keep = os.path.abspath(keep) if keep else os.path.join(str(config.rootdir), ini) if ini else None
        self._scopes = self._keep is not None or os.environ.get("MEMLAB_FILES") != "off"
        self._limits = Limits()  # of the test that runs
        self._window: Optional[Window] = None
        self._torn_down: Any = None  # the item whose fixtures are
        self._problem: Optional[BaseException] = None  # of the phase that ends
        self._passed = False  # the test's call did

    def pytest_collection_modifyitems(self, items: List[Any]) -> None:
        """Wrong markers end the run before the tests; where xdist's workers collect, which cannot, they fail their tests."""
        for item in () if self._is_worker else items:
            limits_of(item, self._default)

    def _limits_of(self, item: Any) -> Limits:
        try:
            return limits_of(item, self._default)
        except pytest.UsageError as error:
            self._problem = pytest.fail.Exception(str(error), pytrace=False)
            return Limits()

    @_wrapper(tryfirst=True)
    def pytest_runtest_setup(self, item: Any) -> Generator[None, Any, None]:
        """Before the first fixture."""
        item.user_properties[:] = [each for each in item.user_properties if not each[0].startswith(_OURS)]  # of a rerun
        self._passed, self._problem = False, None
        self._limits = self._limits_of(item)
        self._window = Window() if self._on and self._limits.leaks is not None else None
        yield

    @_wrapper()
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, None]:
        """What a wider fixture than a test's allocates is not the test's."""
        window, wider = self._window, fixturedef.scope != "function"
        if window is not None and wider:
            window.begin_wider()
        yield
        if wider and self._on:
            fixturedef.addfinalizer(self._ends_wider)  # the latest is the first that runs
        if window is not None:
            window.end_wider() if wider else window.set_up()

    def _ends_wider(self) -> None:
        """A wider fixture's teardown begins: behind its last test, what that left in it goes with the fixture."""
        if self._torn_down is not None and self._window is not None and self._limits.leaks is not None:
            try:
                self._window.settle(self._limits.leaks, getattr(self._torn_down, "funcargs", None))
            except Exception:  # of the marker's filter: it is called again at the end
                self._window.left = None

    def pytest_fixture_post_finalizer(self, fixturedef: Any) -> None:
        """The same of its teardown, which may be in the setup of a test with the next parameter."""
        if self._window is not None:
            self._window.torn_down(fixturedef.scope != "function")

    @_wrapper(tryfirst=True)
    def pytest_runtest_call(self, item: Any) -> Generator[None, Any, None]:
        """Around the test's function: fixtures are set up before, and torn down after."""
        limits = self._limits = self._limits_of(item)  # fixtures may have added markers
        if not self._on:
            self._not_checked(item, limits.names, "run with --memlab")
            yield
            return
        call = Call(limits)
        with call:
            if self._scopes:
                with scope(item.nodeid):
                    outcome = yield
            else:
                outcome = yield
        self._passed = outcome.excinfo is None
        try:
            self._judge(item, call)
        finally:
            call.close()

    def _judge(self, item: Any, call: Call) -> None:
        limits = self._limits
        if call.needed is None:
            self._not_checked(item, limits.names, "no GPU was used, or memlab is switched off")
            return
        item.user_properties.append((_NEEDED, call.needed))
        if call.libraries:
            item.user_properties.append((_LIBRARIES, call.libraries))
        if self._passed:
            messages = call.exceeded() + (self._compare(item, call) if limits.baseline else [])
            if messages:
                self._problem = pytest.fail.Exception("\n".join(messages), pytrace=False)

    def _not_checked(self, item: Any, names: List[str], why: str) -> None:
        item.user_properties += [(_UNCHECKED, f"{name}: {why}") for name in names]

    def _compare(self, item: Any, call: Call) -> List[str]:
        """With the baseline of this GPU's model. Returns a message if the test fails."""
        model, needed = call.gpu_model, call.needed
        if model is None or needed is None:
            self._not_checked(item, [BASELINE], "the GPU's model is not known")
            return []
        item.user_properties.append((_MODEL, model))
        before = None if self._updates else self._baseline.get(model, item.nodeid)
        if before is None:
            if not self._updates:
                self._not_checked(item, [BASELINE], f"no baseline of {model} yet: run with --memlab-update")
            return []
        item.user_properties.append((_BASELINE, before))
        if self._allowed is None or needed <= before * (1 + self._allowed / 100):
            return []
        return [f"The test needed {needed} bytes of GPU memory, {needed - before} more than its baseline of {before} on "
                f"{model}. At the peak:{call.holders()}"]

    @_wrapper(tryfirst=True)
    def pytest_runtest_teardown(self, item: Any) -> Generator[None, Any, None]:
        """After the last fixture's teardown."""
        self._torn_down = item
        outcome = yield
        self._torn_down = None
        window, self._window = self._window, None
        limit = self._limits.leaks
        if window is None or limit is None or not self._passed or outcome.excinfo is not None:
            return
        try:
            window.settle(limit, getattr(item, "funcargs", None))
            item.user_properties.append((_LEFT, sum(site.bytes for site in window.left or () if not site.library)))
            if window.leaks:
                self._problem = pytest.fail.Exception(leak_message(window.leaks, limit), pytrace=False)
        except Exception as error:  # of the marker's filter
            self._problem = error

    @_wrapper(tryfirst=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Generator[None, Any, None]:
        """A limit that does not hold is the phase's exception, before anybody has looked at that."""
        problem, self._problem = self._problem, None
        if problem is not None and call.excinfo is None:
            try:
                raise problem
            except BaseException:  # what pytest.fail() raises is no Exception
                call.excinfo = pytest.ExceptionInfo.from_current()
        outcome = yield
        report = outcome.get_result()
        if self._on and self._keep is not None and report.failed:
            path = os.path.join(self._keep, _file_name(item.nodeid, call.when))
            try:
                os.makedirs(self._keep, exist_ok=True)
                kept = snapshot(path)
            except OSError as error:
                report.sections.append(("memlab", f"no recording was kept: {error}"))
                return
            if kept is not None:
                report.sections.append(("memlab", f"recording: {kept}"))


def _file_name(test: str, when: str) -> str:
    """Of a test's recording. A hash tells apart what would be the same."""
    plain = test.replace("::", ".").replace("/", ".")
    name = re.sub(r"[^\w.\-\[\]]", "_", plain)
    if name != plain or len(name) > _NAME_LENGTH:
        digest = hashlib.sha256(test.encode("utf-8", "surrogatepass")).hexdigest()
        name = f"{name[:_NAME_LENGTH]}.{digest[:8]}"
    return f"{name}.json" if when == "call" else f"{name}.{when}.json"


def _baseline_path(config: Any) -> str:
    return os.path.join(str(config.rootdir), config.getini("memlab_baseline"))


def _plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


class _Summary:
    """In the process that prints: xdist's controller, or the one that runs the tests."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._on = bool(config.getoption("--memlab"))
        self._updates = bool(config.getoption("--memlab-update"))
        self._unchecked: Dict[str, List[Tuple[str, str]]] = {}  # by test: marker, why
        self._needed: Dict[str, int] = {}
        self._new: Dict[Tuple[str, str], int] = {}  # by model and test
        self._increased: Dict[str, Tuple[int, int]] = {}  # needed, baseline
        self._written: Optional[str] = None

    def pytest_runtest_logreport(self, report: Any) -> None:
        """One for each phase of a test."""
        if report.when != "call":
            return
        properties = dict(report.user_properties)
        if _NEEDED in properties:
            self._needed[report.nodeid] = properties[_NEEDED]
        if report.passed and _MODEL in properties:
            self._new[properties[_MODEL], report.nodeid] = properties[_NEEDED]
        self._increased.pop(report.nodeid, None)
        if properties.get(_BASELINE, properties.get(_NEEDED, 0)) < properties.get(_NEEDED, 0):
            self._increased[report.nodeid] = (properties[_NEEDED], properties[_BASELINE])
        unchecked = [value.partition(": ") for name, value in report.user_properties if name == _UNCHECKED]
        self._unchecked[report.nodeid] = [(marker, why) for marker, _, why in unchecked]

    def pytest_sessionfinish(self) -> None:
        """Writes the baselines of tests that passed."""
        if self._updates and self._new and not hasattr(self._config, "workerinput"):
            baseline = Baseline(_baseline_path(self._config))
            for (model, test), peak in self._new.items():
                baseline.put(model, test, peak)
            baseline.write()
            self._written = baseline.path

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The hungriest tests, increases, and the limits that were not checked."""
        write = terminalreporter.write_line
        hungriest = sorted((item for item in self._needed.items() if item[1]), key=lambda item: -item[1])
        if hungriest:
            terminalreporter.section("memlab: GPU memory")
            for test, needed in hungriest[:_SHOWN]:
                write(f"{needed:>15,} bytes  {test}")
        for test, (needed, before) in sorted(self._increased.items()):
            write(f"memlab: more than its baseline: {needed - before:+,} bytes, {needed / before - 1:+.1%}  {test}"
                  if before else f"memlab: more than its baseline: {needed:+,} bytes  {test}")
        if self._written is not None:
            write(f"memlab: {_plural(len(self._new), 'baseline')} written to {self._written}")
        for why in sorted({why for limits in self._unchecked.values() for _, why in limits}):
            limits = [(test, marker) for test, each in self._unchecked.items() for marker, reason in each if reason == why]
            write(f"memlab: {_plural(len(limits), 'limit')} not checked: {why}")
            for test, marker in limits if self._on else ():
                write(f"    {test}  {marker}")
